#!/usr/bin/env bash
# Makes a folder that runs on a machine with an NVIDIA driver and little else: the program, the tests of the CUDA backend, the
# benches of bench/gpu, and the libraries they need. Usage: bench/gpu/kit.sh [BUILD [FOLDER]]; default build/release build/gpu-kit.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build/release} kit=${2:-build/gpu-kit}
rm -rf "$kit"
mkdir -p "$kit/bin" "$kit/lib"
for program in "$build"/lockstep "$build"/compute_cuda_*_test "$build"/gpu_*; do
    [ -x "$program" ] && [ ! -d "$program" ] && cp "$program" "$kit/bin/"
done
strip --strip-debug "$kit"/bin/*
# The C library and what belongs to it are the other machine's own.
ldd "$kit"/bin/* | awk '/=> \// { print $3 }' | sort -u | grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|ld-linux[^/]*)\.so' |
    while read -r library; do cp -L "$library" "$kit/lib/"; done
cp bench/gpu/run.sh bench/gpu/*.py "$kit/" 2>/dev/null || cp bench/gpu/run.sh "$kit/"
du -sh "$kit" | cut -f1
