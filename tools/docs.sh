#!/usr/bin/env bash
# Writes anew what the documents quote of the program: a line <!-- lockstep ... --> and the block behind it, which is what that command prints; pictures; claims.
#   tools/docs.sh               with build/release/lockstep, or $LOCKSTEP
#   tools/docs.sh print FILE    prints one document as it should be, and writes nothing
set -eu
source_dir=$(cd "$(dirname "$0")/.." && pwd)
LOCKSTEP=${LOCKSTEP:-$source_dir/build/release/lockstep}
PATH=$(dirname "$LOCKSTEP"):$PATH
export LOCKSTEP_HOME=$source_dir/build/no-home # no calibration, no runs of one's own: what a newcomer sees

print_document() {
    local line in_block=0
    while IFS= read -r line || [ -n "$line" ]; do
        if [ $in_block = 2 ]; then # the old block, up to its end
            [ "$line" != '```' ] || in_block=0
        elif [ $in_block = 1 ] && [ "$line" = '```' ]; then
            in_block=2
        elif [[ $line =~ ^'<!-- '(lockstep\ .*)' -->'$ ]]; then
            printf '%s\n```\n' "$line"
            (cd "$source_dir" && bash -c "${BASH_REMATCH[1]}" 2>&1 | sed 's/ *$//') || true
            printf '```\n'
            in_block=1
        else
            in_block=0
            printf '%s\n' "$line"
        fi
    done < "$1"
}

if [ "${1:-}" = print ]; then
    print_document "$2"
    exit
fi
new=$(mktemp)
trap 'rm -f "$new"' EXIT
cd "$source_dir"
for document in $(grep -l '^<!-- lockstep ' README.md docs/*.md docs/guide/*.md); do
    print_document "$document" > "$new"
    cmp -s "$new" "$document" || { cat "$new" > "$document"; echo "$document"; }
done
for picture in docs/planning/*.svg; do
    lockstep-figures "plan-$(basename "$picture" .svg)" > "$new"
    cmp -s "$new" "$picture" || { cat "$new" > "$picture"; echo "$picture"; }
done
"$(dirname "$LOCKSTEP")/lockstep-claims" > "$new"
cmp -s "$new" docs/claims.md || { cat "$new" > docs/claims.md; echo docs/claims.md; }
