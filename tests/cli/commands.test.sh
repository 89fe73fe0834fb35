#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every command explains itself and refuses wrong input by name; tokenize goes there and back; samples can be repeated.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

# ---- help ----

expect 0 "$LOCKSTEP" --help
cp "$out" overview
expect 0 "$LOCKSTEP" help
check "help and --help" cmp -s "$out" overview
check "the first screen has at most 25 lines" test "$(wc -l <overview)" -le 25
expect 2 "$LOCKSTEP"
says "no command" "Usage: lockstep"
check "without a command: at most 25 lines" test "$(wc -l <"$err")" -le 25
expect 0 "$LOCKSTEP" help --all
names=$(sed -n 's/^  \([a-z-]*\( [a-z]*\)\{0,1\}\)   *[^ ].*/\1/p' "$out")
check "commands in the full list" test "$(echo "$names" | wc -l)" -ge 45
while read -r name; do
    expect 0 "$LOCKSTEP" $name --help
    prints "Usage: lockstep $name" "lockstep $name: "
    prints "Example"
    check "$name --help says nothing on stderr" test ! -s "$err"
    cp "$out" page
    expect 0 "$LOCKSTEP" help $name
    check "help $name is $name --help" cmp -s "$out" page
    expect 0 "$LOCKSTEP" $name -h
    expect 2 "$LOCKSTEP" $name --no-such-option
    says "--no-such-option" "lockstep: "
    check "$name: nothing on stdout after an error" test ! -s "$out"
done <<<"$names"
expect 0 "$LOCKSTEP" --version
expect 2 "$LOCKSTEP" trian
says trian "'train'"
expect 2 "$LOCKSTEP" smaple
says "'sample'"
# Groups have help of their own, and names of other programs lead to ours.
for group in checkpoint tokenize cache data; do
    expect 0 "$LOCKSTEP" $group --help
    prints "Usage: lockstep $group COMMAND" "  $group "
    cp "$out" page
    expect 0 "$LOCKSTEP" help $group
    check "help $group is $group --help" cmp -s "$out" page
done
expect 2 "$LOCKSTEP" no-such-group --help
while read -r theirs ours; do
    expect 2 "$LOCKSTEP" $theirs
    says "'$theirs' is not a command; use '$ours' ("
done <<'NAMES'
generate sample
finetune train
tokenise tokenize
talk chat
evaluate eval
status ps
squeue ps
stop cancel
scancel cancel
sbatch submit
NAMES
# Every entry of the table leads to a command or a group.
"$LOCKSTEP" help --all >known
sed -n '/ls_command_synonyms\[\]/,$s/^ *{"[^"]*", "\([a-z-]*\)", .*/\1/p' "$LS_SOURCE_DIR/src/cli/synonyms.c" >synonyms
check "the table of commands was read" test "$(wc -l <synonyms)" -ge 20
while read -r ours; do
    check "there is a command $ours" grep -q "^  $ours " known
done <synonyms
while read -r option text; do
    expect 2 "$LOCKSTEP" train tiny.yaml $option 1
    says "unknown option $option; use $text"
done <<'NAMES'
--lr --set train.optimizer.lr=VALUE
--batch-size --set train.global_batch=VALUE
--epochs --set train.epochs=VALUE
--resume-from-checkpoint --resume
--output-dir --run-dir DIR
NAMES
expect 2 "$LOCKSTEP" checkpoint
says "checkpoint ls"
expect 2 "$LOCKSTEP" checkpoint lss
says lss "checkpoint ls"
expect 2 "$LOCKSTEP" tokenize
says "tokenize encode"
expect 0 "$LOCKSTEP" train --keys
prints model.layers train.optimizer.lr checkpoint.every_steps

# ---- one wrong input each, named ----

expect 0 "$LOCKSTEP" train tiny.yaml --run-dir run
expect 2 "$LOCKSTEP" train
says CONFIG
expect 2 "$LOCKSTEP" train a.yaml b.yaml
says "too many"
expect 2 "$LOCKSTEP" train tiny.yaml --ranks 4
says ranks "is 4" "at most 3 ranks"
expect 2 "$LOCKSTEP" train tiny.yaml --ranks 0
says ranks "is 0"
expect 2 "$LOCKSTEP" sample nowhere
says nowhere
expect 2 "$LOCKSTEP" sample run --temperature hot
says temperature hot
expect 2 "$LOCKSTEP" sample run --top-p 1.5
says 1.5
expect 2 "$LOCKSTEP" sample run --max-tokens 0
says 0
expect 2 "$LOCKSTEP" sample run --prompt ""
says prompt
expect 2 "$LOCKSTEP" eval run
says --data --tokens
expect 2 "$LOCKSTEP" eval run --data nothing.txt
says nothing.txt
echo "12 x7" >ids
expect 3 "$LOCKSTEP" eval run --tokens ids
says ids x7
echo "12 9999" >ids
expect 3 "$LOCKSTEP" eval run --tokens ids
says ids 9999
echo "12" >ids
expect 3 "$LOCKSTEP" eval run --tokens ids
says ids
expect 2 "$LOCKSTEP" eval run --tokens missing-ids
says missing-ids
expect 2 "$LOCKSTEP" export run
says "-o"
expect 2 "$LOCKSTEP" tokenize encode --tokenizer nothing.json text.txt
says nothing.json
expect 2 "$LOCKSTEP" tokenize encode missing.txt
says missing.txt
echo "1 two 3" >ids
expect 3 "$LOCKSTEP" tokenize decode ids
says two
echo "1 300" >ids
expect 3 "$LOCKSTEP" tokenize decode ids
says 300
expect 2 "$LOCKSTEP" tokenize train missing.txt
says missing.txt
expect 2 "$LOCKSTEP" tokenize train text.txt --vocab 10
says 10 257
expect 2 "$LOCKSTEP" data prepare missing.txt
says missing.txt
for command in ls show verify prune; do
    expect 2 "$LOCKSTEP" checkpoint $command nowhere
    says nowhere
done
expect 2 "$LOCKSTEP" checkpoint prune run --keep-last 0
says keep 0
expect 2 "$LOCKSTEP" state-hash nowhere
says nowhere
expect 2 "$LOCKSTEP" report nowhere
says nowhere
expect 2 "$LOCKSTEP" bench gmm
says gmm gemm
expect 2 "$LOCKSTEP" version extra
says "too many"
LS_ISA=mmx expect 2 "$LOCKSTEP" version
says mmx

# ---- checkpoints of a run ----

expect 0 "$LOCKSTEP" checkpoint ls run
prints " 12 "
prints "kept as" "last"
expect 0 "$LOCKSTEP" checkpoint show run
prints model.layers.1.mlp.down_proj.weight
expect 0 "$LOCKSTEP" checkpoint verify run
prints "12: good"
expect 0 "$LOCKSTEP" checkpoint prune run --keep-last 1 --keep-best 0 --dry-run
prints "would remove 4" "kept 12: last"
check "a dry run removes nothing" test -d run/checkpoints/4
expect 0 "$LOCKSTEP" checkpoint pin run/checkpoints/8
expect 0 "$LOCKSTEP" checkpoint prune run --keep-last 1 --keep-best 0
prints "removed 4" "kept 8: pinned"
check "the newest and the pinned one stay" test -d run/checkpoints/12 -a -d run/checkpoints/8 -a ! -e run/checkpoints/4
expect 2 "$LOCKSTEP" checkpoint pin run
says "is not a checkpoint" "RUN/checkpoints/200"
expect 2 "$LOCKSTEP" checkpoint unpin run/checkpoints/99
expect 0 "$LOCKSTEP" checkpoint unpin run/checkpoints/8
expect 0 "$LOCKSTEP" checkpoint prune run --keep-last 1 --keep-best 0
prints "removed 8"

# ---- tokenize: there and back ----

{
    cat text.txt
    printf 'caf\303\251  na\303\257ve\t\344\275\240\345\245\275 \360\237\230\200 x=[1,2];\r\n\n   end'
} >mixed.txt
expect 0 "$LOCKSTEP" tokenize train text.txt --vocab 320 -o bpe.json
expect 0 "$LOCKSTEP" tokenize train text.txt --vocab 320 -o bpe-again.json
check "the same text gives the same tokenizer" cmp -s bpe.json bpe-again.json
for tokenizer in bytes bpe.json; do
    expect 0 "$LOCKSTEP" tokenize encode --tokenizer $tokenizer mixed.txt
    cp "$out" encoded
    expect 0 "$LOCKSTEP" tokenize decode --tokenizer $tokenizer encoded
    check "$tokenizer: there and back" cmp -s "$out" mixed.txt
    "$LOCKSTEP" tokenize encode --tokenizer $tokenizer <mixed.txt >piped
    check "$tokenizer: from standard input" cmp -s piped encoded
done
check "BPE is shorter than bytes" test "$(wc -w <encoded)" -lt "$(wc -c <mixed.txt)"
same "bytes are their ids" "$(printf 'Az' | "$LOCKSTEP" tokenize encode)" "65 122"
same "nothing" "[$(printf '' | "$LOCKSTEP" tokenize encode)]" "[]"

# ---- samples ----

sample=("$LOCKSTEP" sample run --prompt "the king" --max-tokens 60)
expect 0 "${sample[@]}" --seed 1
cp "$out" first
prints "the king"
expect 0 "${sample[@]}" --seed 1 --threads 3
check "one seed, one text" cmp -s "$out" first
expect 0 "${sample[@]}" --seed 2
check "another seed, another text" test "$(cat "$out")" != "$(cat first)"
expect 0 "${sample[@]}" --temperature 0 --seed 1
cp "$out" greedy
for setting in "--temperature 0 --seed 2" "--top-k 1 --temperature 1.5 --seed 3" "--top-p 0.000001 --seed 4"; do
    expect 0 "${sample[@]}" $setting
    check "$setting is greedy" cmp -s "$out" greedy
done
# Longer than the context of 32: the window moves on.
expect 0 "${sample[@]}" --max-tokens 100 --temperature 0
check "samples beyond the context" test "$(wc -c <"$out")" -gt 100

# ---- output that can't be written ----

if [ -w /dev/full ]; then
    "$LOCKSTEP" --help >/dev/full 2>"$err"
    same "exit code when stdout is full" $? 1
fi

# Every thread has the thread-local variables on its stack, and workers of the daemon have 256 KiB: at 238 KiB of variables, it
# crashed when it looked up a user.
if command -v readelf >/dev/null; then
    bytes=$(readelf -lW "$LOCKSTEP" | awk '$1 == "TLS" { print $6 }')
    check "thread-local variables of at most 16 KiB, not $((bytes))" test "$((bytes))" -le 16384
fi
finish
