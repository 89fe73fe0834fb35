#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a GGUF file that lockstep wrote with the model it came from. Run by hand; needs the packages gguf and llama-cpp-python.

  gguf_peer.py LOCKSTEP MODEL [--quant f32] [--prompts 50] [--tokens 64] [--text FILE]

MODEL is what `lockstep export` takes. Checked and printed:
  tensors   the package gguf reads the file; with f32 each tensor has the bytes that the safetensors export has
  ids       llama.cpp gives the same ids as `lockstep tokenize encode` for pieces of FILE and for texts with odd spaces
  answers   greedy answers of llama.cpp and of `lockstep sample` are equal, byte for byte
"""
import argparse, ctypes, os, subprocess, sys, tempfile

def run(*command, stdin=None):
    done = subprocess.run(command, input=stdin, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")
    return done.stdout

def texts(path, count, size):
    data = open(path, encoding="utf-8").read()
    step = max(1, (len(data) - size) // max(1, count))
    return [data[i * step:i * step + size] for i in range(count)]

ODD = ["  two  spaces", "tabs\t\tand\n\nlines\r\n", "I've 1234567 things, THEY'LL say…", "naïve café 東京 🚀 a", " ", "\n", "x" * 100, "<|im_end|>", "<s> </s>", "a<|endoftext|>b"]

def check_ids(lockstep, folder, llama, pieces):
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for text in pieces:
            path = os.path.join(scratch, "text")
            open(path, "wb").write(text.encode())
            ours = [int(i) for i in run(lockstep, "tokenize", "encode", "--tokenizer", folder, path).split()]
            theirs = llama.tokenize(text.encode(), add_bos=False, special=True)
            if ours != theirs:
                wrong += 1
                print(f"  ids differ for {text[:60]!r}: {ours[:12]} and {theirs[:12]}")
    print(f"ids: {len(pieces) - wrong} of {len(pieces)} texts equal")
    return wrong

def check_tensors(gguf_path, folder, arch_heads):
    import gguf, numpy, json, struct
    reader = gguf.GGUFReader(gguf_path)
    data = open(os.path.join(folder, "model.safetensors"), "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    def floats(entry):
        a, b = entry["data_offsets"]
        return numpy.frombuffer(data[8 + n + a:8 + n + b], dtype="<f4").reshape(entry["shape"])
    ours = {k: floats(v) for k, v in header.items() if k != "__metadata__"}
    arch = reader.get_field("general.architecture").contents()
    names = gguf.get_tensor_name_map([k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch][0], 1000)
    heads = {"attn_q": reader.get_field(f"{arch}.attention.head_count").contents(), "attn_k": reader.get_field(f"{arch}.attention.head_count_kv").contents()}
    found = {t.name: t for t in reader.tensors}
    for name, value in ours.items():
        stem, suffix = name.rsplit(".", 1)
        theirs = names.get_name(stem) + "." + suffix
        part = theirs.split(".")[-2]
        if arch == "gpt2" and value.ndim == 2 and "blk" in theirs:
            value = value.T
        if arch == "llama" and part in heads:
            value = value.reshape(heads[part], 2, value.shape[0] // heads[part] // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        got = gguf.dequantize(found.pop(theirs).data, gguf.GGMLQuantizationType.F32).reshape(value.shape)
        if got.tobytes() != numpy.ascontiguousarray(value).tobytes():
            sys.exit(f"tensor {theirs} differs")
    print(f"tensors: {len(ours)} equal, besides: {sorted(found)}")

def check_answers(lockstep, model, llama, prompts, tokens):
    import numpy
    equal = 0
    stops = {i for i in range(llama.n_vocab()) if llama._model.vocab and __import__('llama_cpp').llama_vocab_is_eog(llama._model.vocab, i)}
    for prompt in prompts:
        ours = run(lockstep, "sample", model, "--prompt", prompt, "--temperature", "0", "--max-tokens", str(tokens))
        ids = llama.tokenize(prompt.encode(), add_bos=False, special=True)
        llama.reset()
        llama.eval(ids)
        out = []
        while len(out) < tokens:
            row = llama.scores[llama.n_tokens - 1]
            token = int(numpy.argmax(row))
            if token in stops:
                break
            out.append(token)
            llama.eval([token])
        theirs = llama.detokenize(ids + out, special=True)
        same = ours.rstrip(b"\n").endswith(llama.detokenize(out, prev_tokens=ids, special=True).rstrip(b"\n").decode(errors="replace").encode())
        equal += same
        if not same:
            print(f"  differs for {prompt!r}:\n    {ours!r}\n    {theirs!r}")
    print(f"answers: {equal} of {len(prompts)} equal, {tokens} tokens each")
    return len(prompts) - equal

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("model")
    parser.add_argument("--quant", default="f32")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--text", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path, folder = os.path.join(scratch, "model.gguf"), os.path.join(scratch, "hf")
        print(run(args.lockstep, "export", args.model, "--gguf", path, "--quant", args.quant).decode().strip())
        run(args.lockstep, "export", args.model, "-o", folder)
        if args.quant == "f32":
            check_tensors(path, folder, None)
        import llama_cpp
        quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *a: None)
        llama_cpp.llama_log_set(quiet, None)
        llama = llama_cpp.Llama(path, n_ctx=0, logits_all=True, verbose=False, n_threads=2, flash_attn=False, type_k=0, type_v=0)
        wrong = check_ids(args.lockstep, folder, llama, texts(args.text, 100, 200) + ODD)
        wrong += check_answers(args.lockstep, args.model, llama, texts(args.text, args.prompts, 40), args.tokens)
        sys.stdout.flush()
        os._exit(1 if wrong else 0)

main()
