#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who may use a daemon: homes that are not to be trusted, tokens of users, accounts that users can't make, the fixed port and the fixed socket.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

other=65534
as_other() { setpriv --reuid "$other" --regid "$other" --clear-groups env HOME=/nonexistent LOCKSTEP_HOME="$LOCKSTEP_HOME" "$@"; }
can_be_other=false
[ "$(id -u)" = 0 ] && as_other "$LOCKSTEP" version >/dev/null 2>&1 && can_be_other=true
chmod 711 "$scratch"

# ---- a home that others can change ----
refused() { expect 2 "$LOCKSTEP" up; says "$@"; }
mkdir -p "$LOCKSTEP_HOME"
chmod 777 "$LOCKSTEP_HOME"
refused "$LOCKSTEP_HOME " "mode 0777" "chmod go-w $LOCKSTEP_HOME"
chmod 700 "$LOCKSTEP_HOME"
for file in config.yaml token lockstep.db; do
    : >"$LOCKSTEP_HOME/$file"
    chmod 646 "$LOCKSTEP_HOME/$file"
    refused "$LOCKSTEP_HOME/$file " "mode 0646"
    rm "$LOCKSTEP_HOME/$file"
done
mkdir elsewhere
: >elsewhere/config.yaml
ln -s "$scratch/elsewhere/config.yaml" "$LOCKSTEP_HOME/config.yaml"
chmod 777 elsewhere
refused "$scratch/elsewhere "
rm "$LOCKSTEP_HOME/config.yaml"
mkdir -m 777 open
mkdir -m 700 open/home
expect 2 env LOCKSTEP_HOME="$scratch/open/home" "$LOCKSTEP" up
says "$scratch/open "
if [ "$can_be_other" = true ]; then
    chown "$other" "$LOCKSTEP_HOME"
    refused "$LOCKSTEP_HOME belongs to user" "chown root $LOCKSTEP_HOME"
    chown 0 "$LOCKSTEP_HOME"
    : >"$LOCKSTEP_HOME/token"
    chown "$other" "$LOCKSTEP_HOME/token"
    refused "$LOCKSTEP_HOME/token belongs to user"
    rm "$LOCKSTEP_HOME/token"
fi

# ---- the fixed port, unless it is taken ----
printf 'accounts: {strict: own}\naccess: {names: true}\n' >"$LOCKSTEP_HOME/config.yaml"
python3 -c "
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    s.bind(('127.0.0.1', 7600)); s.listen()
except OSError:
    pass # somebody else has it, which does as well
open('taken', 'w').close()
time.sleep(600)" &
holder=$!
wait_until "the port is taken" test -e taken
queue_up
check "another port" grep -qE '^http://127\.0\.0\.1:[0-9]+$' "$LOCKSTEP_HOME/address"
check "and not that one" sh -c "! grep -q ':7600\$' '$LOCKSTEP_HOME/address'"
check "it is said" grep -q "127.0.0.1:7600.*another port is used" "$scratch/daemon.log"
kill "$holder"

# ---- tokens ----
expect 0 "$LOCKSTEP" token
same "the owner's is in the file" "$(cat "$out")" "$(cat "$LOCKSTEP_HOME/token")"
expect 0 "$LOCKSTEP" token --read-only
reads=$(cat "$out")
expect 2 "$LOCKSTEP" token --read-only
says "--rotate"
expect 0 "$LOCKSTEP" token --list --json
same "what is listed" "$(json 'sorted(t["read_only"] for t in d["tokens"])')" "[False, True]"
check "not their text" sh -c "! grep -q '$reads' '$out'"
check "nor in the database" sh -c "! grep -qa '$reads' '$LOCKSTEP_HOME'/lockstep.db*"
address=$(cat "$LOCKSTEP_HOME/address")
# code TOKEN PATH CURL...: the status code.
code() {
    local token=$1 path=$2
    shift 2
    curl -s --max-time 60 -o "$out" -w '%{http_code}' -H "Authorization: Bearer $token" "$@" "$address$path"
}
if command -v curl >/dev/null; then
    same "it reads metrics" "$(code "$reads" /metrics)" 200
    same "it changes nothing" "$(code "$reads" /v1/down -H 'Content-Type: application/json' -d '{}')" 403
fi
expect 0 "$LOCKSTEP" token --read-only --revoke
expect 2 "$LOCKSTEP" token --read-only --revoke
command -v curl >/dev/null && same "it is over" "$(code "$reads" /metrics)" 401

# ---- accounts ----
expect 0 "$LOCKSTEP" accounts team --weight 2
expect 0 "$LOCKSTEP" submit hello.yaml --account team --hold --json
job=$(json 'd["job"]')
expect 2 "$LOCKSTEP" accounts team --delete
says "1 job that has not ended"
expect 0 "$LOCKSTEP" cancel "$job"
wait_until "it has ended" is_state "$job" CANCELLED
expect 0 "$LOCKSTEP" accounts team --delete --json
check "it is not listed" sh -c "! grep -q '\"team\"' '$out'"
expect 2 "$LOCKSTEP" accounts team --delete
expect 0 "$LOCKSTEP" down
mkdir -m 777 models
export LOCKSTEP_REGISTRY=$scratch/models
queue_up
expect 0 "$LOCKSTEP" accounts --json
check "nor after a restart" sh -c "! grep -q '\"team\"' '$out'"
expect 0 "$LOCKSTEP" submit hello.yaml --account team # an administrator makes it anew

if [ "$can_be_other" != true ]; then
    echo "not as another user: only root can become one, and he must reach $LOCKSTEP"
    finish
fi

# ---- another user: own account and token, own jobs over TCP ----
mkdir his
cp hello.yaml his/
chown -R "$other" his
user=$(getent passwd "$other" | cut -d: -f1)
in_his() { (cd his && as_other "$@"); }
expect 2 in_his "$LOCKSTEP" submit hello.yaml --account fresh
says "account fresh does not exist"
expect 0 in_his "$LOCKSTEP" submit hello.yaml
expect 0 "$LOCKSTEP" submit waits.yaml --name shown --json
mine=$(json 'd["job"]')
expect 0 as_other "$LOCKSTEP" ps --all --json
same "names are shown, as set" "$(json "[(j['name'], j['user'], 'run_dir' in j) for j in d['jobs'] if j['job'] == $mine]")" "[('shown', 'root', False)]"
expect 2 as_other "$LOCKSTEP" logs "$mine"
expect 2 as_other "$LOCKSTEP" token --revoke --user root
expect 0 as_other "$LOCKSTEP" token
his=$(cat "$out")
if command -v curl >/dev/null; then
    address=$(cat "$LOCKSTEP_HOME/address")
    body="{\"file\": \"name: his\\njob: {command: [sh, -c, 'id -u; id -g']}\\n\", \"directory\": \"$scratch/his\"}"
    same "a job with his token" "$(code "$his" /v1/jobs -H 'Content-Type: application/json' -d "$body")" 201
    job=$(json 'd["job"]')
    expect 0 "$LOCKSTEP" wait "$job"
    expect 0 "$LOCKSTEP" logs "$job"
    prints "$other"
    check "not root's" sh -c "! grep -qE '(^|\] )0\$' '$out'"
    chmod 666 "$out"
    without=$(as_other curl -s --max-time 60 -o "$out" -w '%{http_code}' -H 'Content-Type: application/json' -d "$body" "$address/v1/jobs")
    same "a job without a token, by his process" "$without" 201
    job=$(json 'd["job"]')
    expect 0 "$LOCKSTEP" ps "$job" --json
    same "whose it is" "$(json 'd["uid"], d["gid"]')" "$other $(getent passwd "$other" | cut -d: -f4)"
    expect 0 "$LOCKSTEP" wait "$job"
    expect 0 "$LOCKSTEP" token --revoke --user "$user"
    same "his token is over" "$(code "$his" /v1/jobs)" 401
fi
# ---- the registry: users see what they added ----
expect 0 in_his "$LOCKSTEP" registry add hello.yaml --name theirs --kind data
expect 0 "$LOCKSTEP" registry add waits.yaml --name roots --kind data --parent theirs
entry() { "$LOCKSTEP" registry show "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["entry"])'; }
if command -v curl >/dev/null; then
    page() { as_other curl -s --max-time 60 -w '%{http_code}' "$address/models$1"; }
    page "" >models.html
    holds models.html ">theirs@1</a>" "you see what $user added"
    check "not root's" sh -c "! grep -q roots models.html"
    page "/lineage.svg?entry=$(entry theirs)" >lineage.svg
    holds lineage.svg "theirs@1" "added by another user"
    check "nor in the picture" sh -c "! grep -q roots lineage.svg"
    check "nor a picture of it" grep -q '404$' <(page "/lineage.svg?entry=$(entry roots)")
    code "$(cat "$LOCKSTEP_HOME/token")" /models >/dev/null
    holds "$out" ">theirs@1</a>" ">roots@1</a>"
fi
expect 0 as_other "$LOCKSTEP" nodes --json
same "names of what runs" "$(json "[j['name'] for j in d['nodes'][0]['jobs']]")" "['shown']"

# ---- more waits than one user may have open: other commands work, and all see the end ----
expect 0 in_his "$LOCKSTEP" submit "$scratch/waits.yaml" --json
job=$(json 'd["job"]')
waits=()
for ((i = 0; i < 70; i++)); do
    as_other "$LOCKSTEP" wait "$job" >/dev/null 2>>waits.err &
    waits+=($!)
done
told() { [ "$(as_other curl -s --max-time 5 -o "$out" -w '%{http_code}' "$address/v1/jobs/$job/wait")" = 429 ]; }
if command -v curl >/dev/null; then
    wait_until "a wait too many is refused" told
    prints "requests that stay open" "\"status\":\"limit\""
fi
expect 0 as_other "$LOCKSTEP" ps
touch go
for waiting in "${waits[@]}"; do
    check "a wait ends with the job" wait "$waiting"
done
expect 0 "$LOCKSTEP" down --cancel

# ---- a number in the lock of another user's folder: root ends no process for it ----
mkdir -m 700 trap
sleep 600 &
victim=$!
echo "$victim" >trap/lock
chown -R "$other" trap
python3 -c "
import fcntl, os, time
f = open('trap/lock', 'r+')
os.setgid($other)
os.setuid($other)
fcntl.lockf(f, fcntl.LOCK_EX)
print('held', flush=True)
time.sleep(600)" >held.txt &
locker=$!
wait_until "it is locked" grep -q held held.txt
expect 2 env LOCKSTEP_HOME="$scratch/trap" "$LOCKSTEP" down
says "does not belong to the owner of the folder"
check "it lives" kill -0 "$victim"
kill "$locker" "$victim"

# ---- the fixed socket of root's daemon: with a /run of its own, and a network of its own, because a folder's lock has a name there, too ----
if unshare -m -n sh -c 'mount -t tmpfs tmpfs /run' 2>/dev/null; then
    mkdir -m 700 "$scratch/home-of-other"
    chown "$other" "$scratch/home-of-other"
    cat >shared.sh <<'SH'
mount -t tmpfs tmpfs /run
PATH=$PATH:/usr/sbin:/sbin ip link set lo up
"$LOCKSTEP" up --slots 1 >/dev/null || exit 1
other() { setpriv --reuid 65534 --regid 65534 --clear-groups env -u LOCKSTEP_HOME HOME="$1/home-of-other" "$LOCKSTEP" "$2"; }
other "$1" ps || exit 2
LOCKSTEP_HOME=$1/second "$LOCKSTEP" up --slots 1 --listen '' >/dev/null || exit 3 # a second one does not take it
other "$1" ps || exit 4
LOCKSTEP_HOME=$1/second "$LOCKSTEP" down >/dev/null || exit 5
other "$1" ps || exit 6
"$LOCKSTEP" down >/dev/null || exit 7
other "$1" ps && exit 8
exit 0
SH
    expect 0 unshare -m -n bash shared.sh "$scratch"
    says "no daemon runs with $scratch/home-of-other/.lockstep as its folder"
    check "its log says who has it" grep -q "no socket at /run/lockstep" "$scratch/second/daemon.log"
else
    echo "not the fixed socket: this process may not mount"
fi

# ---- a user number that has gone to somebody else: neither the job nor the token is theirs ----
queue_up
expect 0 in_his "$LOCKSTEP" submit hello.yaml --hold --json
job=$(json 'd["job"]')
expect 0 as_other "$LOCKSTEP" token --read-only
his=$(cat "$out")
expect 0 "$LOCKSTEP" down
sed "s/^[^:]*:\([^:]*:$other:\)/somebodyelse:\1/" /etc/passwd >passwd
if unshare --mount sh -c 'mount --bind passwd /etc/passwd && [ "$(id -nu '$other')" = somebodyelse ]' 2>/dev/null; then
    unshare --mount sh -c 'mount --bind passwd /etc/passwd && exec "$0" up --foreground --slots 2' "$LOCKSTEP" >>"$scratch/daemon.log" 2>&1 </dev/null &
    wait_until "the daemon answers" "$LOCKSTEP" ps
    expect 0 "$LOCKSTEP" release "$job"
    wait_until "its job does not run" is_state "$job" FAILED
    expect 0 "$LOCKSTEP" ps "$job"
    prints "user number $other no longer belongs to user $user"
    expect 2 as_other "$LOCKSTEP" logs "$job"
    if command -v curl >/dev/null; then
        address=$(cat "$LOCKSTEP_HOME/address")
        same "nor is the token valid" "$(code "$his" /v1/jobs)" 401
    fi
    expect 0 "$LOCKSTEP" down
else
    echo "not tested: a user number under another name (no mount namespaces here)"
fi
finish
