#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads directories that `lockstep export -o` wrote with transformers. Run by hand; needs torch and transformers:

    handover_peer.py LOCKSTEP DIR... --text FILE

For each directory: the loss of FILE's first tokens by transformers and by `lockstep eval`, ids of the text, the rendered chat
template beside `lockstep template`, and the ids that end an answer. Exits with 1 if anything differs."""
import argparse, json, os, subprocess, sys, tempfile

import torch, transformers

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " What is 2 + 2?\n"}, {"role": "assistant", "content": "4"}, {"role": "user", "content": "And <b>3 + 3</b>?"}]

def run(*command):
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")
    return done.stdout

def check(lockstep, folder, text, scratch):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    path = os.path.join(scratch, "text")
    open(path, "w").write(text)
    ids = [int(i) for i in run(lockstep, "tokenize", "encode", "--tokenizer", folder, path).split()]
    good = ids == tokenizer.encode(text, add_special_tokens=False)
    print(f"{folder}: ids {'equal' if good else 'DIFFER'}")
    ids = ids[:min(model.config.max_position_embeddings, 256)]
    with torch.no_grad():
        theirs = model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
    open(path, "w").write(" ".join(map(str, ids)))
    ours = json.loads(run(lockstep, "eval", folder, "--tokens", path, "--json"))["loss"]
    print(f"  loss {ours:.7f} here, {theirs:.7f} there")
    good = good and abs(ours - theirs) < 1e-4
    if tokenizer.chat_template:
        for add in (False, True):
            request = {"messages": MESSAGES, "add_generation_prompt": add, "bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
            open(path, "w").write(json.dumps({k: v for k, v in request.items() if v is not None}))
            rendered = run(lockstep, "template", folder, "--input", path).decode()
            same = rendered == tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=add)
            print(f"  template, add_generation_prompt {add}: {'equal' if same else 'DIFFERS'}")
            good = good and same
    print(f"  answers end at {model.generation_config.eos_token_id}")
    return good

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--text", required=True)
    args = parser.parse_args()
    text = open(args.text, encoding="utf-8").read()[:2000]
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(0 if all([check(args.lockstep, folder, text, scratch) for folder in args.folders]) else 1)

main()
