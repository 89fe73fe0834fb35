#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lockstep-as-user: whom it serves, what it becomes, and that there is no way back.
helper=$(dirname "$LOCKSTEP")/lockstep-as-user
failed=0 checks=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# refuses CODE TEXT COMMAND...: it ends with that code and says that.
refuses() {
    local code=$1 text=$2 got=0
    shift 2
    checks=$((checks + 1))
    timeout 20 "$@" >"$scratch/out" 2>&1 </dev/null || got=$?
    if [ "$got" != "$code" ] || ! grep -q -- "$text" "$scratch/out"; then
        echo "FAIL: '$*' ended with $got, wanted $code and '$text':"
        cat "$scratch/out"
        failed=$((failed + 1))
    fi
}
# same NAME GOT WANTED
same() {
    checks=$((checks + 1))
    [ "$2" = "$3" ] || { echo "FAIL: $1: '$2', wanted '$3'"; failed=$((failed + 1)); }
}

[ -x "$helper" ] || { echo "no $helper"; exit 1; }
same "not setuid, not setgid" "$(stat -c %A "$helper" | tr -d 'rwx-')" ""
if [ "$(id -u)" != 0 ]; then
    refuses 2 "started by a daemon that runs as root" "$helper" read 1000 1000
    echo "$checks checks, $failed failed; the rest needs root"
    exit $((failed > 0))
fi
refuses 2 "started by a daemon that runs as root" setpriv --reuid 65534 --regid 65534 --clear-groups "$helper" read 65534 65534
# Real user another than the effective one, as in a setuid program.
refuses 2 "started by a daemon that runs as root" setpriv --ruid 65534 "$helper" run 65534 65534 nobody - /bin/true

nobody=$(id -nu 65534 2>/dev/null || echo 65534)

# ---- words it does not take ----
refuses 2 usage "$helper"
refuses 2 usage "$helper" read 0 0
refuses 2 usage "$helper" read 4294967295 0
refuses 2 usage "$helper" read -1 5
refuses 2 usage "$helper" read 5x 5
refuses 2 usage "$helper" read '' 5
refuses 2 usage "$helper" read 5 5 5
refuses 2 usage "$helper" run 5 5 games -
refuses 2 "by the daemon only" "$helper" read 65534 65534
refuses 1 "must be absolute" "$helper" run 65534 65534 "$nobody" - true

# ---- what it becomes ----
export SECRET=daemon LOCKSTEP_FILES=77
run() { "$helper" run 65534 65533 "$nobody" - "$@"; }
same "user" "$(run /usr/bin/id -u)" 65534
same "group" "$(run /usr/bin/id -g)" 65533
same "groups" "$(run /usr/bin/id -G | tr ' ' '\n' | grep -vx 65533 | grep -vx "$(id -g nobody 2>/dev/null || echo 65534)")" ""
same "all three user numbers" "$(run /bin/grep -h '^Uid' /proc/self/status | tr -s '\t ' ' ')" "Uid: 65534 65534 65534 65534"
same "no capability" "$(run /bin/grep -hE '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | grep -v '0000000000000000$')" ""
same "environment" "$(run /usr/bin/env | sort | tr '\n' ' ')" "LOCKSTEP_FILES=77 PATH=/usr/local/bin:/usr/bin:/bin "
same "words" "$(run /bin/echo a 'b c' '')" "a b c "
# ---- a number that belongs to another name now, or to no user any more ----
refuses 67 "another name" "$helper" run 65534 65534 somebody - /bin/true
refuses 67 "another name" "$helper" run 4000000001 65534 somebody - /bin/true
same "a user without a name" "$("$helper" run 4000000001 65534 4000000001 - /usr/bin/id -u)" 4000000001

# ---- what the daemon was started with stays with the daemon ----
same "priority and limits" "$(echo 500 >/proc/self/oom_score_adj 2>/dev/null; ulimit -S -t 5000 -f 70000; nice -n 7 "$helper" run 65534 65533 "$nobody" - /bin/sh -c 'nice; ulimit -t; ulimit -f; cat /proc/self/oom_score_adj' | tr '\n' ' ')" "0 unlimited unlimited 0 "

# A program in a folder to which the user has no way is opened before.
mkdir -m 700 "$scratch/private"
cp /bin/true "$scratch/private/it"
run "$scratch/private/it"
same "a program behind a closed folder" $? 0
exec 9<"$helper"
same "no descriptor of the caller's" "$(run /bin/ls /proc/self/fd | tr '\n' ' ')" "0 1 2 3 "
exec 9<&-

echo "$checks checks, $failed failed"
exit $((failed > 0))
