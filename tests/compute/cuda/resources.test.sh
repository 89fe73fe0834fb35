#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What ptxas says each kernel takes, against resources.txt beside this script: memory of the stack and spilled registers
# may not grow, and a kernel that is not in the table may have neither. Registers are there for the reader.
#   LS_BUILD_DIR=build/release LS_SOURCE_DIR=. tests/compute/cuda/resources.test.sh --write    writes the table
# Skipped without nvcc, and for another version of it than the table's.
set -eu
table=$LS_SOURCE_DIR/tests/compute/cuda/resources.txt
logs=$LS_BUILD_DIR/generated/cuda
shopt -s nullglob
files=("$logs"/*.ptxas)
[ ${#files[@]} -gt 0 ] || { echo "skipped: built without nvcc"; exit 77; }
nvcc=$(sed -n 's/^NVCC:FILEPATH=//p' "$LS_BUILD_DIR/CMakeCache.txt")
version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')

# One line per kernel and architecture.
list() {
    awk '/Compiling entry function/ { split($0, word, "\047"); name = word[2]; arch = word[4] }
         /bytes stack frame/ { stack = $1; stores = $5; loads = $9 }
         /Used [0-9]+ registers/ { for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1)
                                   print name, arch, registers, stack, stores, loads }' "${files[@]}" | LC_ALL=C sort
}

if [ "${1:-}" = --write ]; then
    { echo "# nvcc $version"; echo "# kernel architecture registers stack_bytes spill_store_bytes spill_load_bytes"; list; } > "$table"
    exit 0
fi
grep -qx "# nvcc $version" "$table" || { echo "skipped: the table is of $(head -1 "$table" | cut -c3-), this is nvcc $version"; exit 77; }
list | awk -v table="$table" '
    BEGIN { while ((getline line < table) > 0) { split(line, f, " "); known[f[1] " " f[2]] = line } }
    { key = $1 " " $2; stack = stores = loads = 0
      if (key in known) { split(known[key], f, " "); stack = f[4]; stores = f[5]; loads = f[6] }
      if ($4 > stack || $5 > stores || $6 > loads) {
          printf "%s: %d bytes of stack, %d stored and %d loaded by spills; the table allows %d, %d and %d\n", key, $4, $5, $6, stack, stores, loads
          bad = 1 } }
    END { if (bad) { print "use fewer registers, or run this script with --write and say in the commit why"; exit 1 } }'
