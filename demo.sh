#!/usr/bin/env bash
# From nothing to a trained language model in a few minutes: ./demo.sh
# Installs what is missing, builds, takes a corpus from a Debian package, trains for about three minutes, and shows what came out.
set -eu
cd "$(dirname "$0")"
tools/install.sh $(grep -v '^#' tools/packages) bible-kjv

echo "building ..."
cmake --preset release >/dev/null
cmake --build build/release -j "$(nproc)" --target lockstep | { grep -E 'warning|error|FAILED' || true; }
lockstep=build/release/lockstep

mkdir -p runs/demo-data
corpus=runs/demo-data/kjv.txt
[ -s "$corpus" ] || bible -l 9999 gen1:1-rev22:21 > "$corpus"
echo "corpus: the King James Bible, $(wc -c < "$corpus") bytes of text, from the package bible-kjv"
echo

"$lockstep" train examples/demo.yaml --run-dir runs/demo "$@"

cat <<'TXT'

What you just saw: a text corpus became tokens, a model of a few million parameters learned from them on this machine's
cores, and every number of the run is in runs/demo.

  report   runs/demo/report.html        open it in a browser: loss, speed, where the time went, samples
  sample   build/release/lockstep sample runs/demo --prompt "And the king said" --max-tokens 300
  eval     build/release/lockstep eval runs/demo --data runs/demo-data/kjv.txt
  export   build/release/lockstep export runs/demo -o runs/demo-hf      a directory that Hugging Face transformers loads
  resume   interrupt './demo.sh --fresh' with Ctrl-C and run './demo.sh' again: same bits as if nothing had happened
  yours    copy examples/demo.yaml, point data.train at your own text, and run 'lockstep train' on it
TXT
