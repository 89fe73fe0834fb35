#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares packed weights with those of bitsandbytes, bit by bit, on random tensors. Run by hand:

    python3 -m venv peer && peer/bin/pip install numpy torch bitsandbytes
    peer/bin/python bench/packed_peer.py

It compiles src/compute/kernels/packed.c into a library of its own. For each shape it prints how many values differ when
tensors that bitsandbytes packed are read here (there must be none), and how far our own packing is from theirs: codes that
differ, scale codes, and the means in units in the last place. Exits with 1 if a value, a code, or a scale code differs.

Two kernels of bitsandbytes 0.50 for processors are not what it computes elsewhere, so the script takes its portable
functions: 4-bit tensors whose rows are not whole blocks (48 x 96) are read with wrong scales, and 0.2 % of the scale codes
are not those of the nearest level. A line counts the latter as "by its kernel".
"""
import ctypes
import pathlib
import subprocess
import sys
import tempfile

import bitsandbytes
import bitsandbytes.backends.default.ops as portable
import bitsandbytes.functional as peer
import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
INT8, NF4 = 2, 3
SHAPES = [(64, 64), (1024, 1024), (1024, 4096), (300, 200), (48, 96), (17, 33), (5, 7), (1000, 130), (1, 100)]


class Packed(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("rows", ctypes.c_int64), ("cols", ctypes.c_int64), ("codes", ctypes.c_void_p),
                ("scales", ctypes.c_void_p), ("scale_codes", ctypes.c_void_p), ("mean", ctypes.c_void_p)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("rows", ctypes.c_int64), ("cols", ctypes.c_int64),
                ("stride", ctypes.c_int64)]


def library(folder):
    path = f"{folder}/packed.so"
    sources = [ROOT / "src" / name for name in ("compute/kernels/packed.c", "base/bitsandbytes.c", "base/status.c", "base/assert.c")]
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-ffp-contract=off", "-D_GNU_SOURCE", f"-I{ROOT}/src",
                    f"-I{ROOT}/include", *map(str, sources), "-lm", "-o", path], check=True)
    lib = ctypes.CDLL(path)
    lib.ls_packed_bytes.restype = ctypes.c_int64
    lib.ls_packed_of.restype = Packed
    lib.ls_packed_of.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    lib.ls_packed_bytes.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return lib


class Ours:
    """One packed matrix of ours, with views of its sections."""

    def __init__(self, lib, kind, rows, cols):
        self.lib, self.rows, self.cols = lib, rows, cols
        size = lib.ls_packed_bytes(kind, rows, cols)
        self.memory = np.zeros(size + 64, np.uint8)
        start = -self.memory.ctypes.data % 64
        self.view = lib.ls_packed_of(kind, rows, cols, self.memory.ctypes.data + start)
        groups, blocks = -(-rows // 16), -(-rows * cols // 64)
        at = lambda pointer, count, dtype: self.memory[pointer - self.memory.ctypes.data:].view(np.uint8)[
            :count * np.dtype(dtype).itemsize].view(dtype)
        columns = cols if kind == INT8 else -(-cols // 2)
        self.codes = at(self.view.codes, groups * columns * 16, np.uint8).reshape(groups, columns, 16)
        self.scales = at(self.view.scales, rows if kind == INT8 else -(-blocks // 256), np.float32)
        if kind == NF4:
            self.scale_codes, self.mean = at(self.view.scale_codes, blocks, np.uint8), at(self.view.mean, 2, np.float32)

    def pack(self, weight):
        tensor = Tensor(weight.ctypes.data, 0, self.rows, self.cols, self.cols)
        assert self.lib.ls_packed_pack(ctypes.byref(self.view), ctypes.byref(tensor), 0) == 0

    def unpack(self):
        out = np.empty((self.rows, self.cols), np.float32)
        tensor = Tensor(out.ctypes.data, 0, self.rows, self.cols, self.cols)
        self.lib.ls_packed_unpack(ctypes.byref(self.view), 0, ctypes.byref(tensor))
        return out

    def arrange(self, codes):
        """Codes (rows, columns) of bytes as they lie here."""
        padded = np.zeros((self.codes.shape[0] * 16, codes.shape[1]), np.uint8)
        padded[:self.rows] = codes
        return padded.reshape(-1, 16, codes.shape[1]).transpose(0, 2, 1)


def differing(a, b):
    return int((a.view(np.uint32) != b.view(np.uint32)).sum())


def compare_nf4(lib, weight):
    rows, cols = weight.shape
    packed, state = peer.quantize_4bit(torch.from_numpy(weight), blocksize=64, compress_statistics=True, quant_type="nf4")
    scales = peer.dequantize_blockwise(state.absmax, state.state2) + state.offset
    want = portable._dequantize_4bit_compute(packed.reshape(-1), scales, state.code, 64, weight.shape, torch.float32).numpy()
    halves = packed.numpy().reshape(-1)
    flat = np.stack([halves >> 4, halves & 15], 1).reshape(-1)[:rows * cols].reshape(rows, cols)
    even = np.pad(flat, ((0, 0), (0, cols % 2)))
    theirs, own = Ours(lib, NF4, rows, cols), Ours(lib, NF4, rows, cols)
    theirs.codes[:] = theirs.arrange(even[:, ::2] | even[:, 1::2] << 4)
    theirs.scales[:], theirs.scale_codes[:] = state.state2.absmax.numpy(), state.absmax.numpy().reshape(-1)
    theirs.mean[:] = state.offset.item(), state.state2.code[0].item()
    own.pack(weight)
    # The nearest level, as their GPU kernel and portable function find it, of the differences from our mean.
    flat = np.pad(np.abs(weight.reshape(-1)), (0, -rows * cols % 64)).reshape(-1, 64).max(1) - own.mean[0]
    bounds = (state.state2.code[:-1] + state.state2.code[1:]) / 2
    nearest = torch.bucketize(torch.from_numpy(flat / np.repeat(own.scales, 256)[:flat.size].clip(1e-38)), bounds).numpy()
    wrong_scales = int((own.scale_codes != nearest).sum())
    ulp = (own.mean[0] - theirs.mean[0]) / np.spacing(theirs.mean[0])
    wrong, wrong_codes = differing(theirs.unpack(), want), int((own.codes != theirs.codes).sum())
    print(f"nf4  {rows:5} x {cols:<5} read: {wrong} differ; own packing: {wrong_codes} codes and {wrong_scales} scale codes "
          f"({int((own.scale_codes != theirs.scale_codes).sum())} by its kernel) differ, mean by {ulp:+.0f} ulp")
    return wrong + wrong_codes + wrong_scales


def compare_int8(lib, weight):
    rows, cols = weight.shape
    codes, scales, _ = peer.int8_vectorwise_quant(torch.from_numpy(weight))
    want = peer.int8_vectorwise_dequant(codes, scales).numpy()
    theirs, own = Ours(lib, INT8, rows, cols), Ours(lib, INT8, rows, cols)
    theirs.codes[:], theirs.scales[:] = theirs.arrange(codes.numpy().view(np.uint8)), scales.numpy()
    own.pack(weight)
    wrong = differing(theirs.unpack(), want) + int((own.codes != theirs.codes).sum())
    print(f"int8 {rows:5} x {cols:<5} read or packed: {wrong} differ")
    return wrong


def main():
    print(f"bitsandbytes {bitsandbytes.__version__}, torch {torch.__version__}")
    wrong, random = 0, np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        lib = library(folder)
        for rows, cols in SHAPES:
            for weight in (random.normal(size=(rows, cols)) * 0.02, random.standard_t(3, size=(rows, cols))):
                weight = np.ascontiguousarray(weight, np.float32)
                wrong += compare_nf4(lib, weight) + compare_int8(lib, weight)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
