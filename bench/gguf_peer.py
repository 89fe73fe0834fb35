#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares GGUF export with the package gguf and with llama.cpp. Run by hand:

    python3 -m venv peer && peer/bin/pip install numpy gguf llama-cpp-python
    peer/bin/python bench/gguf_peer.py blocks
    peer/bin/python bench/gguf_peer.py model LOCKSTEP MODEL --text FILE [--quant f32] [--prompts 50] [--tokens 64]

blocks compiles src/storage/gguf into a library of its own and encodes random numbers: types that have one definition must
have the bytes of the package gguf; for the K types it prints the squared error and the time relative to ggml's quantiser.

model exports MODEL (whatever `lockstep export` takes) and checks
  tensors   each has the values of the safetensors export, read and put in order by this script (--quant f32)
  ids       llama.cpp gives the ids of `lockstep tokenize encode` for pieces of FILE and for texts that are hard to split
  answers   greedy answers of llama.cpp and of `lockstep sample` are equal, byte for byte
Exits with 1 if anything differs."""
import argparse, ctypes, glob, json, os, pathlib, struct, subprocess, sys, tempfile, time

import gguf, llama_cpp, numpy
from gguf import GGMLQuantizationType as T

ROOT = pathlib.Path(__file__).resolve().parent.parent
HARD = ["  two  spaces", "tabs\t\tand\n\nlines\r\n", "I've 1234567 things, THEY'LL say…", "naïve café 東京 🚀 a", " ", "\n", "x" * 100, "a<|im_end|>b", "<s> </s>", "a<|endoftext|>b",
        "▁a ▁ b", "½ ² ﬁ", "don't DON'T 'tis", "\u00a0nbsp\u2003em", "👨‍👩‍👧", "a  \n  b\t c"]

def run(*command):
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")
    return done.stdout

# ---- blocks ----

def encoders(scratch):
    path, src = os.path.join(scratch, "blocks.so"), ROOT / "src"
    run("cc", "-std=gnu17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", f"-I{src}", f"-I{ROOT / 'include'}", "-o", path,
        *(str(src / name) for name in ("storage/gguf/blocks.c", "storage/gguf/blocks_k.c", "base/assert.c", "base/status.c", "base/log.c")))
    ours = ctypes.CDLL(path, mode=os.RTLD_LAZY)
    ours.ls_block_row_bytes.restype = ctypes.c_uint64
    ours.ls_block_row_bytes.argtypes = [ctypes.c_int, ctypes.c_uint64]
    ours.ls_block_encode.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p]
    ggml = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(llama_cpp.__file__), "lib", "libggml-base.so"))[0])
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    def here(kind, x):
        out = numpy.zeros(ours.ls_block_row_bytes(int(kind), x.size), numpy.uint8)
        ours.ls_block_encode(int(kind), x.ctypes.data, x.size, out.ctypes.data)
        return out
    def there(kind, x):
        out = numpy.zeros(ours.ls_block_row_bytes(int(kind), x.size), numpy.uint8)
        ggml.ggml_quantize_chunk(int(kind), x.ctypes.data, out.ctypes.data, 0, x.size // 256, 256, None)
        return out
    return here, there

def blocks():
    wrong, n, rng = 0, 1 << 20, numpy.random.default_rng(1)
    with tempfile.TemporaryDirectory() as scratch:
        here, there = encoders(scratch)
    f = numpy.float32
    kinds = {"normal": rng.standard_normal(n), "laplace": rng.laplace(size=n), "student": rng.standard_t(3, n), "positive": abs(rng.standard_normal(n)), "uniform": rng.uniform(-1, 1, n),
             "shifted": rng.standard_normal(n) * 0.01 + 0.3}
    edges = numpy.concatenate([numpy.zeros(512), numpy.full(512, 0.5), numpy.linspace(-1e4, 1e4, 4096), 1e-7 * rng.standard_normal(4096), 1e-38 * rng.standard_normal(4096), kinds["normal"]]).astype(f)
    for kind in (T.F32, T.F16, T.BF16, T.Q8_0, T.Q5_0, T.Q5_1):
        with numpy.errstate(all="ignore"):
            equal = numpy.array_equal(here(kind, edges), gguf.quants.quantize(edges.reshape(-1, 256), kind).view(numpy.uint8).ravel())
        wrong += not equal
        print(f"{kind.name}: bytes {'equal' if equal else 'DIFFER'}")
    for kind in (T.Q4_K, T.Q5_K, T.Q6_K):
        for name, x in kinds.items():
            x, t0 = x.astype(f), time.time()
            a, t1 = here(kind, x), time.time()
            b, t2 = there(kind, x), time.time()
            error = [((gguf.quants.dequantize(y, kind).ravel().astype(float) - x) ** 2).sum() for y in (a, b)]
            wrong += error[0] > 1.001 * error[1]
            print(f"{kind.name} {name:9s} squared error {error[0] / error[1]:.4f}, time {(t1 - t0) / (t2 - t1):.2f} of ggml's")
    return wrong

# ---- a model ----

def pieces(path, count, size):
    data = open(path, encoding="utf-8").read()
    step = max(1, (len(data) - size) // count)
    return [data[i * step:i * step + size] for i in range(count)]

def differing_ids(lockstep, folder, llama, texts, scratch):
    wrong = 0
    for text in texts:
        path = os.path.join(scratch, "text")
        open(path, "wb").write(text.encode())
        ours = [int(i) for i in run(lockstep, "tokenize", "encode", "--tokenizer", folder, path).split()]
        theirs = llama.tokenize(text.encode(), add_bos=False, special=True)
        if ours != theirs:
            wrong += 1
            print(f"  ids of {text[:60]!r}: {ours[:12]} here, {theirs[:12]} there")
    print(f"ids: {len(texts) - wrong} of {len(texts)} texts equal")
    return wrong

def differing_tensors(path, folder):
    reader, data = gguf.GGUFReader(path), open(os.path.join(folder, "model.safetensors"), "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    arch = reader.get_field("general.architecture").contents()
    names = gguf.get_tensor_name_map([k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch][0], 1000)
    heads = {part: reader.get_field(f"{arch}.attention.{key}").contents() for part, key in (("attn_q", "head_count"), ("attn_k", "head_count_kv"))}
    found, wrong, count = {t.name: t for t in reader.tensors}, 0, 0
    for name, entry in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        a, b = entry["data_offsets"]
        value = numpy.frombuffer(data[8 + n + a:8 + n + b], dtype="<f4").reshape(entry["shape"])
        stem, suffix = name.rsplit(".", 1)
        theirs = names.get_name(stem) + "." + suffix
        part = theirs.split(".")[-2]
        if arch == "gpt2" and value.ndim == 2 and theirs.startswith("blk"):
            value = value.T
        if arch == "llama" and part in heads:
            value = value.reshape(heads[part], 2, value.shape[0] // heads[part] // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        got = gguf.dequantize(found.pop(theirs).data, T.F32).reshape(value.shape)
        wrong += got.tobytes() != numpy.ascontiguousarray(value).tobytes()
        count += 1
    print(f"tensors: {count - wrong} of {count} equal, besides them {sorted(found)}")
    return wrong

def differing_answers(lockstep, model, llama, prompts, tokens):
    wrong, vocab = 0, llama._model.vocab
    for prompt in prompts:
        ours = run(lockstep, "sample", model, "--prompt", prompt, "--temperature", "0", "--max-tokens", str(tokens))
        ids, out = llama.tokenize(prompt.encode(), add_bos=False, special=True), []
        llama.reset()
        llama.eval(ids)
        while len(out) < tokens:
            token = int(numpy.argmax(llama.scores[llama.n_tokens - 1]))
            if llama_cpp.llama_vocab_is_eog(vocab, token):
                break
            out.append(token)
            llama.eval([token])
        theirs = llama.detokenize(out, prev_tokens=ids, special=True).rstrip(b"\n").decode(errors="replace").encode()
        if not ours.rstrip(b"\n").endswith(theirs):
            wrong += 1
            print(f"  differs after {prompt!r}:\n    {ours!r}\n    {theirs!r}")
    print(f"answers: {len(prompts) - wrong} of {len(prompts)} equal, {tokens} tokens each")
    return wrong

def model(args):
    with tempfile.TemporaryDirectory() as scratch:
        path, folder = os.path.join(scratch, "model.gguf"), os.path.join(scratch, "hf")
        print(run(args.lockstep, "export", args.model, "--gguf", path, "--quant", args.quant).decode().strip())
        run(args.lockstep, "export", args.model, "-o", folder)
        wrong = differing_tensors(path, folder) if args.quant == "f32" else 0
        quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        llama_cpp.llama_log_set(quiet, None)
        llama = llama_cpp.Llama(path, n_ctx=0, logits_all=True, verbose=False, n_threads=2, flash_attn=False, type_k=0, type_v=0)
        wrong += differing_ids(args.lockstep, folder, llama, pieces(args.text, 100, 200) + HARD, scratch)
        return wrong + differing_answers(args.lockstep, args.model, llama, pieces(args.text, args.prompts, 40), args.tokens)

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("blocks")
    one = what.add_parser("model")
    one.add_argument("lockstep")
    one.add_argument("model")
    one.add_argument("--text", required=True)
    one.add_argument("--quant", default="f32")
    one.add_argument("--prompts", type=int, default=50)
    one.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    wrong = blocks() if args.what == "blocks" else model(args)
    sys.stdout.flush()
    os._exit(1 if wrong else 0)  # the bindings of llama.cpp fail while Python ends

main()
