#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A daemon of root's, and another user of the machine: what he sees of others' jobs, what he may do, as whom his own run. Names that are tricks.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

other=65534
# as_other COMMAND...: the same program, as that user.
as_other() { setpriv --reuid "$other" --regid "$other" --clear-groups env HOME=/nonexistent LOCKSTEP_HOME="$LOCKSTEP_HOME" "$@"; }

queue_up
chmod 711 "$scratch"

# ---- names and texts of others, on a terminal ----
printf 'name: "a\\u202Etxt.exe"\njob: {command: [sh, -c, "exit 0"]}\n' >turned.yaml
"$LOCKSTEP" submit turned.yaml >"$out" 2>&1
"$LOCKSTEP" ps --all >listed.txt 2>&1
check "no mark that turns reading round" sh -c "! grep -q \$'\\u202e' listed.txt"
printf 'name: "a\\e[2Jb"\njob: {command: [sh, -c, "exit 0"]}\n' >escapes.yaml
"$LOCKSTEP" submit escapes.yaml >refused.txt 2>&1
"$LOCKSTEP" ps --all >>refused.txt 2>&1
check "no escape reaches the terminal" sh -c "! grep -q \$'\\033' refused.txt"
for name in .. ../../etc/passwd /etc/passwd a/b .hidden -rf; do
    expect 2 "$LOCKSTEP" submit hello.yaml --set "name=$name"
done
head -c 300000 /dev/zero | tr '\0' '#' >huge.yaml
expect 2 "$LOCKSTEP" submit huge.yaml
head -c 100 /dev/urandom >binary.yaml
expect 2 "$LOCKSTEP" submit binary.yaml
if command -v curl >/dev/null; then
    head -c 3000000 /dev/zero >body
    checks=$((checks + 1))
    got=$(curl -s --max-time 60 --unix-socket "$LOCKSTEP_HOME/socket" -H 'Content-Type: application/json' --data-binary @body -o "$out" -w '%{http_code}' http://x/v1/jobs)
    [ "$got" = 413 ] || fail "a huge body: $got"
fi
expect 0 "$LOCKSTEP" ps

# ---- another user ----
if [ "$(id -u)" != 0 ] || ! as_other "$LOCKSTEP" version >/dev/null 2>&1; then
    echo "not as another user: only root can become one, and he must reach $LOCKSTEP"
    finish
fi
expect 0 "$LOCKSTEP" submit waits.yaml --name secret --json
mine=$(json 'd["job"]')
wait_until "mine runs" is_state "$mine" RUNNING

expect 0 as_other "$LOCKSTEP" ps --json
same "number, state, account, ranks" "$(json "[(j['name'], j['state'], j['account'], j['ranks'], j['why'], j['priority']) for j in d['jobs'] if j['job'] == $mine]")" \
    "[(None, 'RUNNING', 'root', 1, None, None)]"
check "and nothing else" sh -c "! grep -q secret '$out'"
for command in "why $mine" "logs $mine" "logs -f $mine" "cancel $mine" "hold $mine" "release $mine" "priority $mine low" "resize $mine --ranks 2" "wait $mine" "ps $mine"; do
    expect 2 as_other "$LOCKSTEP" $command
    says "belongs to another user"
done
expect 0 as_other "$LOCKSTEP" nodes --json
same "no name there either" "$(json "[j['name'] for j in d['nodes'][0]['jobs']]")" "[None]"
expect 2 as_other "$LOCKSTEP" down
says "$LOCKSTEP_HOME belongs to user root"
expect 0 "$LOCKSTEP" ps
expect 2 as_other "$LOCKSTEP" accounts mine --weight 1000
says "root and the daemon's owner"
for file in token lockstep.db "jobs/$mine/log" config.yaml; do
    expect 1 as_other cat "$LOCKSTEP_HOME/$file"
done
# Over TCP he is himself without a token, and sees what he sees by command; root's own processes need the token.
over_tcp() { as_other curl -s --max-time 60 -o "$out" -w '%{http_code}' "$(cat "$LOCKSTEP_HOME/address")$1"; }
if command -v curl >/dev/null; then
    chmod 666 "$out"
    same "the list" "$(over_tcp /v1/jobs)" 200
    check "without names" sh -c "! grep -q secret '$out'"
    same "another user's job" "$(over_tcp "/v1/jobs/$mine")" 403
    same "root without the token" "$(curl -s --max-time 60 -o /dev/null -w '%{http_code}' "$(cat "$LOCKSTEP_HOME/address")/v1/jobs")" 401
fi

# His own job runs as he, in his folder, and root sees it.
mkdir his
chown "$other" his
cat >his/job.yaml <<YAML
name: his
job: {command: [sh, -c, 'id -u; id -G; cat "$LOCKSTEP_HOME/token" || echo no token; echo > left']}
YAML
checks=$((checks + 1))
his=$(cd his && as_other "$LOCKSTEP" submit job.yaml) || fail "he can't submit"
expect 0 as_other "$LOCKSTEP" wait "$his"
expect 0 as_other "$LOCKSTEP" logs "$his"
prints "65534" "no token"
check "not in root's groups" sh -c "! grep -qE '\] 0( |\$)|\] .* 0( |\$)' '$out'"
same "who owns what it wrote" "$(stat -c %u his/left)" "$other"
expect 0 "$LOCKSTEP" logs "$his"
expect 0 "$LOCKSTEP" ps "$his" --json
same "root sees it" "$(json 'd["name"], d["uid"]')" "his $other"

# What is shared by name is open to who is named.
user=$(getent passwd "$other" | cut -d: -f1)
if [ -n "$user" ]; then
    expect 0 "$LOCKSTEP" submit waits.yaml --set "job.share=[$user]" --json
    shared=$(json 'd["job"]')
    wait_until "the shared one runs" is_state "$shared" RUNNING
    expect 0 as_other "$LOCKSTEP" why "$shared"
    expect 0 as_other "$LOCKSTEP" cancel "$shared"
fi
finish
