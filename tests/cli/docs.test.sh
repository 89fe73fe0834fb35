#!/usr/bin/env bash
# What README, guide and demo tell people to type exists: every command, every option of it, every key of a run file.
set -eu
cd "$LS_SOURCE_DIR"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$LOCKSTEP" help --all | sed -n 's/^  \([a-z][a-z -]*[a-z]\)  .*/\1/p' > "$work/commands"
"$LOCKSTEP" train --keys > "$work/keys"

# Lines to type: "lockstep NAME ..." indented in a page, in backticks, behind build/release/ or timeout.
lines_of() {
    grep -ohE '(^ {4}|`|build/release/|timeout .* )lockstep [a-z][^`#]*' "$@" | sed -E 's/.*lockstep ([a-z])/\1/'
}
# Keys in backticks, with or without a value.
keys_of() {
    grep -ohE '`(model|tokenizer|data|train|checkpoint|eval|sample|log|job|parallel)\.[a-z_.]+' "$@" | tr -d '`' | sort -u
}

check_line() {
    local line=${1%% -- *} name word # what follows -- is another program's
    set -f
    set -- $line
    name=$1
    [ "$name" != help ] || return 0
    grep -qx "$name" "$work/commands" || name="$1 ${2:-}"
    if ! grep -qx "$name" "$work/commands"; then
        echo "'lockstep $line': there is no command '$1'"
        return
    fi
    "$LOCKSTEP" $name --help > "$work/help"
    for word in $line; do
        case $word in
        --help) ;;
        --*) grep -qE -- "(^| )${word%%=*}( |\$)" "$work/help" || echo "'lockstep $line': $name has no option $word" ;;
        esac
    done
    for word in $(grep -oE -- '--set [a-z_.]+' <<< "$line" | cut -d' ' -f2); do
        check_key "$word"
    done
}
check_key() {
    grep -qF "  $1 " "$work/keys" || echo "$1 is no key of the run file"
}

# Prints what is wrong in the documents.
check() {
    local item
    lines_of "$@" | while read -r item; do check_line "$item"; done
    keys_of "$@" | while read -r item; do check_key "$item"; done
}

documents=(README.md docs/guide/*.md docs/planning.md docs/claims.md demo.sh)
wrong=$(check "${documents[@]}")
seen=$(($(lines_of "${documents[@]}" | wc -l) + $(keys_of "${documents[@]}" | wc -l)))
echo "$seen lines and keys"
[ -z "$wrong" ] && [ "$seen" -ge 20 ] || { echo "$wrong"; exit 1; }

# What documents quote of the program is what it prints, and so are the claims.
quoted=0
for document in $(grep -l '^<!-- lockstep ' README.md docs/*.md docs/guide/*.md); do
    tools/docs.sh print "$document" > "$work/document.md"
    diff "$document" "$work/document.md" || { echo "$document quotes what is not printed any more: run tools/docs.sh"; exit 1; }
    quoted=$((quoted + $(grep -c '^<!-- lockstep ' "$document")))
done
[ "$quoted" -ge 10 ] || { echo "only $quoted quotations were found"; exit 1; }
for picture in docs/planning/*.svg; do
    LOCKSTEP_HOME=$work "$LS_BUILD_DIR/lockstep-figures" "plan-$(basename "$picture" .svg)" > "$work/picture.svg"
    cmp "$picture" "$work/picture.svg" || { echo "$picture is not drawn like that any more: run tools/docs.sh"; exit 1; }
    grep -q "src=\"planning/$(basename "$picture")\"" docs/planning.md || { echo "no document shows $picture"; exit 1; }
done
"$LS_BUILD_DIR/lockstep-claims" > "$work/claims.md"
diff docs/claims.md "$work/claims.md" || { echo "docs/claims.md is not what is printed any more: run tools/docs.sh"; exit 1; }

# The check itself notices each kind of mistake.
cat > "$work/bad.md" <<'TXT'
    lockstep dance --fast
    lockstep train mine.yaml --no-such-option
    lockstep train mine.yaml --set train.stepz=1
`train.optimizer.rl`
TXT
wrong=$(check "$work/bad.md")
[ "$(wc -l <<< "$wrong")" = 4 ] || { echo "of four mistakes in a page these were noticed:"; echo "$wrong"; exit 1; }
