#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs can be used: program, man pages, completion, and the collectives library through pkg-config.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
if grep -q '^LS_SANITIZE:[A-Z]*=.' "$LS_BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: a library with sanitizers can't be linked into other programs"
    exit 77
fi

root=$scratch/root
expect 0 env DESTDIR="$root" cmake --install "$LS_BUILD_DIR" --prefix /usr/local
installed=$root/usr/local
expect 0 "$installed/bin/lockstep" --version
prints lockstep
check "the helper of a daemon of root" test -x "$installed/libexec/lockstep/lockstep-as-user"

# ---- the collectives library ----
pkgconfig=$(find "$installed" -name lockstep-comm.pc -printf '%h\n')
check "there is a file for pkg-config" test -n "$pkgconfig"
export PKG_CONFIG_PATH=$pkgconfig
expect 0 pkg-config --cflags --libs --static lockstep-comm
flags=$(cat "$out")
# shellcheck disable=SC2086
expect 0 gcc "$LS_SOURCE_DIR/examples/allreduce.c" $flags -o allreduce
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000))
expect 0 bash -c 'RANK=1 ./allreduce & RANK=0 ./allreduce && wait $!'
prints "rank 0 of 2" "rank 1 of 2" "elements are 3"

# ---- man pages ----
pages=$installed/share/man/man1
check "a unit for systemd" grep -q "^ExecStart=.*/lockstep up --foreground" "$installed/lib/systemd/system/lockstep.service"
check "a page for the program" test -s "$pages/lockstep.1"
"$LOCKSTEP" help --all | sed -n '/^Exit codes/q; s/^  \([a-z-]*\( [a-z]*\)\{0,1\}\)   *[^ ].*/\1/p' >names
while read -r name; do
    check "a page for $name" test -s "$pages/lockstep-${name// /-}.1"
done <names
if command -v man >/dev/null; then
    for page in lockstep lockstep-train lockstep-checkpoint-ls lockstep-bench; do
        expect 0 man --warnings=w -l "$pages/$page.1"
        prints NAME SYNOPSIS
        check "$page.1 without warnings" test ! -s "$err"
    done
fi

# ---- completion ----
bash_script=$installed/share/bash-completion/completions/lockstep
zsh_script=$installed/share/zsh/site-functions/_lockstep
expect 0 bash -n "$bash_script"
if command -v zsh >/dev/null; then
    expect 0 zsh -n "$zsh_script"
fi
check "the script for zsh has every command" grep -q "'checkpoint verify') _arguments" "$zsh_script"
# completes WORD...: what bash offers for the last word.
completes() {
    bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep; echo "${COMPREPLY[*]}"' "$bash_script" "$@"
}
same "commands" "$(completes lockstep tra)" "train trace"
same "the second word of a group" "$(completes lockstep cache "")" "ls clear verify limit"
same "a group is not completed twice" "[$(completes lockstep checkpoint ls "")]" "[]"
same "options" "$(completes lockstep train --ru)" "--run-dir"
same "options of a command of two words" "$(completes lockstep cache clear --o)" "--older"
same "choices" "$(completes lockstep bench allreduce --transport "")" "shm tcp"
same "help" "$(completes lockstep help diag)" "diagnose"
finish
