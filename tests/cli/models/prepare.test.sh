# SPDX-License-Identifier: Apache-2.0
# data prepare with a pipeline: what each step removes, the same bytes for any number of threads and after kills, bad input.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

# Documents of sentences that differ; planted: a copy, a near copy, private data, a question of an evaluation.
python3 - <<'END' || exit 1
import json, random
random.seed(7)
words = [a + b for a in "ba ce di fo gu ha je ki lo mu".split() for b in "lan mer nit pos ruk sel tam wyd zor".split()]
def sentence():
    return "The " + " ".join(random.choice(words) for _ in range(9)) + " of " + random.choice(words) + " and " + random.choice(words) + "."
documents = [" ".join(sentence() for _ in range(12)) for _ in range(300)]
question = " ".join(random.choice(words) for _ in range(20))
documents[40] = documents[3].replace(" ", "\t ").replace("b", "B")
near = documents[5].split(" ")
near[30] = "other"
documents[41] = " ".join(near)
documents[42] += " Write to ada@example.org, call +49 30 123456, card 4111 1111 1111 1111, IBAN DE89 3704 0044 0532 0130 00."
cut = question.title().split(" ")
documents[43] += "\n" + "\n".join(", ".join(cut[i:i + 5]) for i in range(0, 20, 5))
documents[44] = "Too short."
documents[45] = documents[45].replace(". ", ".\r\n\r\n\r\n")
for number in range(3):
    with open(f"in-{number}.jsonl", "w") as out:
        for i in range(number * 100, number * 100 + 100):
            out.write(json.dumps({"id": i, "text": documents[i], "from": f"page {i}"}) + "\n")
with open("in-0.jsonl", "a") as out:
    out.write('{"id": 900, "text": 7}\nnot JSON\n')
with open("in-1.jsonl", "ab") as out:
    out.write(b'{"id": 901, "text": "' + documents[150].encode()[::-1] + b' \xff\xfe"}\n')
with open("test.jsonl", "w") as out:
    out.write(json.dumps({"question": question, "answer": "none"}) + "\n")
END
cat >web.yaml <<'END'
input: ['in-*.jsonl']
invalid_utf8: drop
steps:
  - step: normalise
  - step: gopher_quality
  - step: gopher_repetition
  - step: fineweb
    short_lines_max: 1
  - step: dedup_exact
  - step: dedup_minhash
  - step: pii
  - step: decontaminate
    against: [test.jsonl]
END

expect 0 "$LOCKSTEP" data prepare web.yaml -o one --threads 1
prints "dedup_exact" "in one/data"
python3 - one >found <<'END'
import glob, json, subprocess, sys
def lines(pattern):
    for path in sorted(glob.glob(pattern)):
        for line in subprocess.run(["zstd", "-dc", path], check=True, capture_output=True).stdout.splitlines():
            yield json.loads(line)
kept = {record["id"]: record for record in lines(sys.argv[1] + "/data/*.zst")}
gone = {(record["file"], record["line"]): record for record in lines(sys.argv[1] + "/removed/*.zst")}
print("kept", len(kept), "gone", len(gone))
for line in (41, 42, 44, 45, 101, 102):
    record = gone[("in-0.jsonl", line)]
    print(line, record["step"], record["reason"], record.get("survivor", {}).get("line"))
print(gone[("in-1.jsonl", 101)]["reason"], "|", gone[("in-0.jsonl", 44)]["why"])
print(kept[42]["text"][-56:], "|", kept[42]["from"], "|", "\r" in kept[45]["text"])
END
same "what was removed" "$(cat found)" "kept 296 gone 7
41 dedup_exact copy 4
42 dedup_minhash similar 6
44 decontaminate contaminated None
45 gopher_quality words_few None
101 read no_text None
102 read broken None
not_utf8 | holds text of test.jsonl:1
Write to [MAIL], call [PHONE], card [CARD], IBAN [IBAN]. | page 42 | False"

# The same bytes for any number of threads, for processes at once, and after kills at any time, also while a report is written.
mkdir three && touch three/report.html.tmp.12 three/report.json.tmp.34
expect 0 "$LOCKSTEP" data prepare web.yaml -o three --threads 3
check "the same bytes with three threads" diff -r one three
pids=()
for _ in 1 2 3; do
    "$LOCKSTEP" data prepare web.yaml -o many --threads 2 >many.out 2>&1 &
    pids+=($!)
done
for pid in "${pids[@]}"; do check "one of several processes" wait "$pid"; done
check "the same bytes by several processes" diff -r one many
for pause in 0.002 0.01 0.02 0.03 0.05; do
    "$LOCKSTEP" data prepare web.yaml -o killed >/dev/null 2>&1 &
    sleep $pause
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
done
expect 0 "$LOCKSTEP" data prepare web.yaml -o killed
check "the same bytes after kills" diff -r one killed
expect 0 "$LOCKSTEP" data show one/data

# What was removed can be asked for.
expect 0 "$LOCKSTEP" data removed one --step dedup_minhash
prints "in-0.jsonl:42  dedup_minhash, similar" "kept: in-0.jsonl:6" "1 of 1 removed documents"
expect 0 "$LOCKSTEP" data removed one --json -n 2
same "counts" "$(field "$out" count) $(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["documents"]))' "$out")" "7 2"
expect 2 "$LOCKSTEP" data removed one --step dedupe
says "no step dedupe" "dedup_minhash"
expect 2 "$LOCKSTEP" data removed in-0.jsonl
says "no report.json"

# Lines that an earlier document has are removed, also in another file; later steps see what is left.
printf '%s\n' '{"text":"the footer of all pages\nfirst text of its own"}' '{"text":"second text of its own\n  the footer of all pages"}' >l0.jsonl
printf '%s\n' '{"text":"the footer of all pages"}' '{"text":"second text of its own\nthird text of its own"}' '{"text":"the footer of all pages\nthird text of its own\nsecond"}' '{"text":"second"}' >l1.jsonl
printf 'input: [l0.jsonl, l1.jsonl]\nsteps:\n  - step: dedup_lines\n    length_min: 10\n  - step: dedup_exact\n' >lines.yaml
expect 0 "$LOCKSTEP" data prepare lines.yaml -o lines
same "lines" "$(zstd -dc lines/data/*.zst)" '{"text":"the footer of all pages\nfirst text of its own"}
{"text":"second text of its own"}
{"text":"third text of its own"}
{"text":"second"}'
expect 0 "$LOCKSTEP" data removed lines
prints "l1.jsonl:1  dedup_lines" "l1.jsonl:4  dedup_exact, copy" "kept: l1.jsonl:3"

# A step that works in two parts shows the text as it was before both.
python3 -c 'import json; print(json.dumps({"text": "cafe\u0301  au lait"}, ensure_ascii=False))' >two.jsonl
printf 'input: [two.jsonl]\nsteps:\n  - step: normalise\n' >two.yaml
expect 0 "$LOCKSTEP" data prepare two.yaml -o two
same "before and after" "$(python3 -c 'import json; print(*[ascii(c[k]) for s in json.load(open("two/report.json"))["steps"] for c in s["changes"] for k in ("before", "after")])')" "'cafe\\u0301  au lait' 'caf\\xe9 au lait'"

# What the guide shows is what is printed, and its picture is that of the report.
guide=$LS_SOURCE_DIR/docs/guide
mkdir guide && cp "$guide"/pages.* "$guide/exam.jsonl" guide && cd guide || exit 1
expect 0 "$LOCKSTEP" data prepare pages.yaml --output clean
same "the table of the guide" "$(sed -n '/^STEP/,/^kept/p' "$out")" "$(sed -n '/^    STEP/,/^    kept/{s/^    //;p}' "$guide/15-preparing-data.md")"
expect 0 "$LOCKSTEP" data removed clean --step dedup_minhash
same "the removed page of the guide" "$(cat "$out")" "$(sed -n '/^    pages.jsonl:10/,/^    1 of 1/{s/^    //;p}' "$guide/15-preparing-data.md")"
python3 -c 's = open("clean/report.html").read(); print(s[s.index("<svg"):s.index("</svg>")] + "</svg>")' >funnel.svg
check "the picture of the guide" cmp funnel.svg "$guide/funnel.svg"
cd .. || exit 1

# The ranks of a job share the files.
queue_up
expect 0 "$LOCKSTEP" submit --ranks 2 -- "$LOCKSTEP" data prepare web.yaml --output queued --threads 1
job=$(cat "$out")
wait_until "the job has ended" is_state "$job" SUCCEEDED
check "the same bytes by a job of two ranks" diff -r one queued

# Mistakes are named.
sed 's/dedup_exact/dedupe_exact/' web.yaml >bad.yaml
expect 2 "$LOCKSTEP" data prepare bad.yaml -o bad
says "bad.yaml:9" "dedupe_exact" "did you mean dedup_exact"
sed 's/short_lines_max/short_line_max/' web.yaml >bad.yaml
expect 2 "$LOCKSTEP" data prepare bad.yaml -o bad
says "bad.yaml:8" "short_line_max" "short_lines_max"
printf 'input: [in-0.jsonl]\nsteps:\n  - step: language\n    model: none.bin\n    keep: [en]\n' >bad.yaml
expect 2 "$LOCKSTEP" data prepare bad.yaml -o bad
says "none.bin"
expect 2 "$LOCKSTEP" data prepare web.yaml
says "--output DIR"
for option in "--to=s3://bucket/set" "--tokenizer=tokenizer.json" "--field=body"; do
    expect 2 "$LOCKSTEP" data prepare web.yaml -o bad "$option"
    says "a pipeline makes text, not tokens"
done
printf 'input: [in-0.jsonl]\nsteps:\n  - step: pii\n    kinds: [mail, fone]\n' >bad.yaml
expect 2 "$LOCKSTEP" data prepare bad.yaml -o bad
says "bad.yaml:3" "fone is not a kind"
printf 'input: [in-0.jsonl]\nfield: body\nsteps:\n  - step: normalise\n' >bad.yaml
expect 3 "$LOCKSTEP" data prepare bad.yaml -o nothing
says "nothing is left of 102 documents: the step read removed 102" "data removed nothing"
sed 's/words_min: 1/words_min: 2/; s/drop/replace/' web.yaml >other.yaml
expect 2 "$LOCKSTEP" data prepare other.yaml -o one
says "another pipeline"
echo '{"question": "What else is in the exam now?"}' >>test.jsonl
expect 2 "$LOCKSTEP" data prepare web.yaml -o one
says "evaluation files" "have changed since"
python3 -c 'import gzip; f = gzip.open("bomb.jsonl.gz", "wb"); [f.write(b" " * (1 << 20)) for _ in range(300)]'
printf 'input: [bomb.jsonl.gz]\nsteps:\n  - step: normalise\n' >bomb.yaml
expect 3 "$LOCKSTEP" data prepare bomb.yaml -o bomb
says "bomb.jsonl.gz" "unpacks to more than"
finish
