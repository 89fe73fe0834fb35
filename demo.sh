#!/usr/bin/env bash
# From nothing to a trained language model in a few minutes: ./demo.sh
# Installs missing packages, builds, takes a corpus from a Debian package, trains for about three minutes, and shows the result.
# The page of the run is open while it trains, and on a terminal afterwards, too, until Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")"
tools/install.sh $(grep -v '^#' tools/packages) bible-kjv

echo "building ..."
mkdir -p build runs/demo-data
if ! { cmake --preset release && cmake --build build/release -j "$(nproc)" --target lockstep; } > build/demo.log 2>&1; then
    grep -E 'error|FAILED' build/demo.log | head -20
    echo "the build failed: see build/demo.log" >&2
    exit 1
fi
lockstep=build/release/lockstep

corpus=runs/demo-data/kjv.txt
[ -s "$corpus" ] || bible -l 9999 gen1:1-rev22:21 > "$corpus"
echo "corpus: the King James Bible, $(wc -c < "$corpus") bytes of text, from the package bible-kjv"
echo

# The page shows the runs below runs/, also one that has yet to begin.
"$lockstep" view runs > build/demo-view.txt 2>&1 < /dev/null &
view=$!
trap 'kill "$view" 2> /dev/null || true' EXIT
for _ in $(seq 50); do
    page=$(grep -o 'http://[^ ]*' build/demo-view.txt || true)
    [ -z "$page" ] || break
    sleep 0.1
done
echo "watch it train: ${page:?lockstep view does not answer: see build/demo-view.txt}/runs/demo"
echo

# A terminal shows one live line. In a file, a progress line per sixth of the run is enough; it has the validation loss, too.
train=("$lockstep" train examples/demo.yaml --run-dir runs/demo "$@")
if [ -t 1 ]; then
    "${train[@]}"
else
    "${train[@]}" | awk '
        BEGIN { last = -1 }
        /^step [0-9]+ validation loss / { next }
        /^step [0-9]+\/[0-9]+ / {
            split($2, part, "/")
            sixth = int(6 * part[1] / part[2])
            if (sixth == last) next
            last = sixth
        }
        { print; fflush() }'
fi

cat <<'TXT'

A text became tokens, and a model of a few million parameters learned from them. Everything about the run is in runs/demo.
  report   runs/demo/report.html         one file for a browser: loss, speed, where the time went, samples
  sample   build/release/lockstep sample runs/demo --prompt "And the king said" --max-tokens 300
  eval     build/release/lockstep eval runs/demo --data runs/demo-data/kjv.txt
  export   build/release/lockstep export runs/demo -o runs/demo-hf     a directory that Hugging Face transformers loads
  resume   interrupt './demo.sh --fresh' with Ctrl-C and run './demo.sh' again: the result has the same bits
  yours    copy examples/demo.yaml, point data.train at your own text, and run 'lockstep train' on it
TXT
echo "  page     $page/runs/demo         live charts, samples, settings; 'build/release/lockstep view runs' opens it again"
if [ -t 1 ]; then
    echo
    echo "The page stays open until you press Ctrl-C."
    trap 'kill "$view" 2> /dev/null; exit 0' INT
    wait "$view"
fi
