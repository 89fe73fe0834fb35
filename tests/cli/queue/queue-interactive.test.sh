#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Interactive jobs (submit --pty) and jobs in containers (job.image).
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

# in_terminal KEYS COMMAND...: runs it in a pseudo-terminal of 30 rows and 100 columns, types KEYS when the program says
# "ready", or closes the terminal when KEYS is "close"; "enter" types Enter when the job has given its devices back, then "exit"; "flood" types more than the program's terminal takes, then closes.
# Prints what is shown and the exit code.
cat >terminal.py <<'E2'
import fcntl, os, pty, select, struct, sys, termios, time
keys, command = sys.argv[1].encode(), sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    os.execv(command[0], command)
shown, typed, end = b"", False, time.time() + 60
while time.time() < end:
    if select.select([fd], [], [], 0.1)[0]:
        try:
            more = os.read(fd, 4096)
        except OSError:
            break
        if not more:
            break
        shown += more
    if keys == b"enter":
        if not typed and b"is HELD" in shown:
            typed = True
            os.write(fd, b"\r")
        if typed and shown.count(b"ready") == 2:
            keys = b"done"
            os.write(fd, b"exit 3\r")
    elif b"ready" in shown and not typed:
        typed = True
        if keys == b"flood":
            os.set_blocking(fd, False)
            end = time.time() + 3
            while time.time() < end:
                try:
                    os.write(fd, b"x" * 4000)
                except BlockingIOError:
                    time.sleep(0.05)
        if keys in (b"close", b"flood"):
            os.close(fd)
            break
        os.write(fd, keys)
status = os.waitpid(pid, 0)[1]
print(shown.decode(errors="replace").replace("\r", ""), "exit", os.waitstatus_to_exitcode(status))
E2
in_terminal() { timeout 90 python3 terminal.py "$@"; }

if ! has_terminals; then
    echo "skipped: no pseudo-terminals here"
    exit 77
fi
expect 2 "$LOCKSTEP" submit --pty -- true
says "needs a terminal" "lockstep logs -f"
mkdir -p "$LOCKSTEP_HOME" && echo 'idle: {look: 200ms}' >"$LOCKSTEP_HOME/config.yaml"
queue_up

# A program in a terminal of its own: its size, what is typed, its exit code.
expect 0 in_terminal $'hello\r' "$LOCKSTEP" submit --pty -- sh -c 'test -t 0 && stty size; echo ready; read x; echo "got $x, rank $RANK"; exit 3'
prints "30 100" "got hello, rank 0" "job 1 has ended" "the program ended with exit code 3" "exit 1"
is_state 1 FAILED || fail "the job of a program that failed has failed"
expect 0 "$LOCKSTEP" logs 1
prints "what its terminal shows is not kept here"
expect 0 in_terminal "" "$LOCKSTEP" submit --pty -- true
prints "exit 0"
expect 0 in_terminal "" "$LOCKSTEP" submit --pty -- no-such-program
prints "can't run no-such-program" "exit code 127"

# The terminal is closed: the program gets SIGHUP, and the device is free again.
expect 0 in_terminal close "$LOCKSTEP" submit --pty -- sh -c "trap 'echo hung up >hup; exit 1' HUP; echo ready; while :; do sleep 0.05; done"
wait_until "the program is told" test -s hup
wait_until "its job ends" is_state 4 FAILED

# A job that waits is cancelled by Ctrl-C; one that is cancelled ends its program.
expect 0 "$LOCKSTEP" submit waits.yaml --ranks 2
wait_until "the devices are taken" is_state 5 RUNNING
cat >interrupt.sh <<E2
#!/bin/sh
(until "$LOCKSTEP" ps 6 | grep -q QUEUED; do sleep 0.05; done; sleep 0.7; kill -INT \$\$) &
exec "$LOCKSTEP" submit --pty -- true
E2
chmod +x interrupt.sh
expect 0 in_terminal "" "$PWD/interrupt.sh"
prints "job 6 is QUEUED" "job 6 is cancelled" "exit 130"
touch go
expect 0 "$LOCKSTEP" wait 5
expect 2 "$LOCKSTEP" submit --pty --json -- true
says "leave out --json and --key"

# One that nobody uses gives its device back; Enter gets it again, and the program starts anew in the same terminal.
printf 'idle: {look: 200ms, interactive: 2s}\n' >"$LOCKSTEP_HOME/config.yaml"
expect 0 "$LOCKSTEP" reload
expect 0 in_terminal enter "$LOCKSTEP" submit --pty -- sh -c 'echo ready; read x; $x'
prints "gave its devices back" "Enter in its terminal, or 'lockstep release" "exit 1" "the program ended with exit code 3"
printf 'name: trains\n' >trains.yaml
expect 2 "$LOCKSTEP" submit trains.yaml --set job.interactive=true
says "job.interactive is for a program"

# Containers: what is missing is named; where podman works, ranks run in one.
expect 2 "$LOCKSTEP" submit hello.yaml --set 'job.image_options=[--privileged]'
says "job.image_options needs job.image"
expect 2 "$LOCKSTEP" submit trains.yaml --set job.image=tiny
says "a training job does not run in a container"
expect 0 "$LOCKSTEP" submit hello.yaml --set job.image=tiny --env "PATH=$scratch"
expect 1 "$LOCKSTEP" wait 8
prints "job.image is tiny, but this machine has no podman, docker, apptainer or singularity"

# The terminal is closed while more is typed than the program reads. (stty: without it Linux drops what does not fit.)
expect 0 in_terminal flood "$LOCKSTEP" submit --pty -- sh -c "stty raw -echo; trap 'echo hung up >hup2; exit 1' HUP; echo ready; while :; do sleep 0.05; done"
wait_until "a program that does not read is told" test -s hup2

# docker runs a program under an init, which passes signals on.
mkdir tools && printf '#!/bin/sh\necho "docker $*"\n' >tools/docker && chmod +x tools/docker
expect 0 "$LOCKSTEP" submit hello.yaml --set job.image=tiny --env "PATH=$PWD/tools"
expect 0 "$LOCKSTEP" wait 10
expect 0 "$LOCKSTEP" logs 10
prints "docker run --rm --init --network=host" " tiny "

printf '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n' >containers.conf
command -v runc >/dev/null && printf '[engine]\nruntime = "runc"\n' >>containers.conf
export CONTAINERS_CONF=$scratch/containers.conf
image=localhost/lockstep-test-$$
shell=$(command -v busybox || true)
if [ -n "$shell" ] && command -v podman >/dev/null && mkdir -p root/bin && cp "$shell" root/bin/busybox && ln -s busybox root/bin/sh &&
    tar -C root -c . | podman import - "$image" >/dev/null 2>&1 && podman run --rm --network=host "$image" sh -c true >/dev/null 2>&1; then
    expect 0 "$LOCKSTEP" submit --ranks 2 --set "job.image=$image" --env CONTAINERS_CONF -- sh -c 'echo rank $RANK of $WORLD_SIZE; busybox ls / >here.$RANK'
    expect 0 "$LOCKSTEP" wait 11
    expect 0 "$LOCKSTEP" logs 11
    prints "rank 0 of 2" "rank 1 of 2"
    check "the folder is the same inside, the rest is not" sh -c "grep -q bin here.0 && ! grep -q home here.1"
    podman rmi -f "$image" >/dev/null 2>&1
else
    echo "containers: not tried, because podman is missing or cannot run here"
fi
finish
