#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/tokenizers/: tiny tokenizers of every kind that is supported, trained here on the text below with the
peer libraries, and the ids these give for strings that are hard to split.

    python3 tests/golden/make_tokenizers.py        needs the packages tokenizers and sentencepiece

cases.json: {"texts": [hex of the bytes], "tokenizers": {file: {"ids": [[...]], "special_ids": [[...]], "decoded": [hex]}}}
"""
import io
import json
import pathlib

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = pathlib.Path(__file__).parent / "tokenizers"

TEXT = """The training of a language model is a long walk: step after step, loss after loss, and the weights move a little.
It's what we've learned, they'll say; I'm sure you'd agree, but don't shout: I'M SURE YOU'D AGREE.
In 2024 there were 1234567 tokens and 3.14159 of them were pie, 12 + 34 = 46, 100% of 0x1F.
def main(argc, argv):\n    for i in range(10):\n        print(i, i * i)\n\treturn {'a': [1, 2], "b": (3,)}\n\n\n
for (int i = 0; i < count; i++) { sum += values[i]; } // the sum of all values\r\n#include <stdio.h>\r\n
Ein Häuschen am Straßenrand, über dem Fluß; le café était fermé à Noël, où l'été naît. El niño comió piñas.
Привет, мир! Как твои дела? Всё хорошо. Γειά σου Κόσμε. שלום עולם. مرحبا بالعالم ١٢٣. नमस्ते दुनिया १२३. สวัสดีชาวโลก
你好，世界。学习语言模型是一段很长的路。こんにちは世界。カタカナとひらがな。안녕하세요 세계. Việt Nam: Tiếng Việt.
emoji 😀 😀 👍🏽 ❤️ and a family 👨‍👩‍👧‍👦, a flag 🏳️‍🌈 🇩🇪. Arrows → ← and quotes “these” ‘those’ — dashes – all.
"""

TEXTS = [
    "", " ", "  ", "\n", "a", "Hello world", " Hello  world ", "hello\nworld\r\n\r\nagain\n\n\n  end", "\t\ttabs\tand \t mixed",
    "I'm you're they've we'll he'd it's don't", "I'M YOU'RE THEY'VE WE'LL HE'D IT'S DON'T", "'s 'S '\u017f 'x ''ll '",
    "1 12 123 1234 12345 1234567890", "3.14159e-10 0x1F 1,000,000", "½ ² Ⅷ ١٢٣ १२३ 一二三",
    "naïve café Straße", "cafe\u0301 e\u0323\u0302 e\u0302\u0323 \u212b \u2126", "\u1100\u1161\u11a8 \uac01 \uac00\u11a8",
    "か\u3099 が \u0958 \u0915\u093c \u0344", "Привет мир Всё", "你好，世界。", "こんにちは世界", "안녕하세요", "שלום עולם", "مرحبا بالعالم",
    "नमस्ते दुनिया", "สวัสดีชาวโลก", "Tiếng Việt", "😀", "👨‍👩‍👧‍👦 family", "🏳️‍🌈🇩🇪👍🏽❤️", "𝕳𝖊𝖑𝖑𝖔 𐍈",
    "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g\u200bh\ufeffi", "\u00a0\u00a0x", " \u3000 x", "x \n y", "x\n \ny", "   \n   ",
    "x   ", "\x00\x01\x1c\x1f\x7f", "def f(x):\n    return x  # done\n", "if (a&&b||!c) { ++i; }", "https://example.com/a?b=c&d=%20#e",
    "foo_bar fooBar FooBAR FOOBar HTTPServer2", "...!!!???---===", "/* a */ // b\n///\n", "((((((((((", "a" * 100, "ab" * 80, " " * 70,
    "=" * 33 + "\n" + "-" * 65, "\n" * 40, "1" * 50, "é" * 40, "▁a ▁ ▁▁b", "<|endoftext|>", "a<|endoftext|>b <|endoftext|> c",
    "<|endoftext", "<s>a</s> <unk>", "<0x0A><0x41>", "x [W] y [W]z w[W]", "a  <L>  b  <R>  c", "<sep> a<sep>b", "hell hello <cls>",
    "ǅ ʰ ª ﬁ ẛ̣", "“quoted” – dash — ‘q’", "\u0301 starts", "\ufffd", "\U0010ffff\U000e0001 \u0378",
    b"\xff", b"a\x80b", b"\xc3", b"\xe2\x96", b"\xf0\x9f\x98", b"\xed\xa0\x80x", b"\xc0\xaf", b"\xf5\x80", b"ok \xe2\x28\xa1 \xf0\x9f\x98\x80\xf0",
]
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BOS = dict(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])


def byte_level(splitter, normalizer=None, ignore_merges=False, extra=(), template=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=480, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_tokens(list(extra))
    if template:
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                        processors.TemplateProcessing(**BOS)])
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece_model(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n") * 3), model_writer=model, model_type="bpe", minloglevel=2,
        num_threads=1, **options)
    return model.getvalue()


def convert(model):
    """Vocabulary and merges of a SentencePiece model, as the converters of transformers make them."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocab = {processor.id_to_piece(i): i for i in range(processor.vocab_size())}
    merges = []
    for piece, index in vocab.items():
        parts = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
        parts = [(a, b) for a, b in parts if a in vocab and b in vocab]
        merges += [(a, b, processor.get_score(index)) for a, b in sorted(parts, key=lambda p: (vocab[p[0]], vocab[p[1]]))]
    return vocab, [(a, b) for a, b, _ in sorted(merges, key=lambda m: m[2], reverse=True)]


def characters(model, metaspace):
    vocab, merges = convert(model)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def main():
    HERE.mkdir(exist_ok=True)
    plain = sentencepiece_model(vocab_size=640, character_coverage=0.99, byte_fallback=True, hard_vocab_limit=False,
                                normalization_rule_name="identity", remove_extra_whitespaces=False,
                                user_defined_symbols=["<sep>", "hell"], control_symbols=["<cls>"])
    nfkc = sentencepiece_model(vocab_size=360, character_coverage=0.98, hard_vocab_limit=False)
    marked = [AddedToken("[W]", single_word=True), AddedToken("<L>", lstrip=True), AddedToken("<R>", rstrip=True)]
    hugging_face = {
        "gpt2.json": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "llama3.json": byte_level(split(CL100K), ignore_merges=True, template=True),
        "qwen2.json": byte_level(split(CL100K.replace(r"\p{N}{1,3}", r"\p{N}")), normalizer=normalizers.NFC(), extra=marked),
        "o200k.json": byte_level(split(O200K), normalizer=normalizers.NFD()),
        "smollm.json": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=True)])),
        "llama2.json": characters(plain, False),
        "mistral.json": characters(plain, True),
    }
    texts = [t if isinstance(t, bytes) else t.encode() for t in TEXTS]
    cases = {"texts": [t.hex() for t in texts], "tokenizers": {}}
    for name, tokenizer in hugging_face.items():
        root = json.loads(tokenizer.to_str())
        (HERE / name).write_text(json.dumps(root, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        strings = [t.decode("utf-8", "replace") for t in texts]
        ids = [tokenizer.encode(s, add_special_tokens=False).ids for s in strings]
        special = [tokenizer.encode(s).ids for s in strings]
        decoded = [tokenizer.decode(i, skip_special_tokens=True).encode().hex() for i in ids]
        cases["tokenizers"][name] = {"ids": ids, "special_ids": special, "decoded": decoded}
    for name, model in (("plain.model", plain), ("nfkc.model", nfkc)):
        (HERE / name).write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = [processor.encode(t) for t in texts]
        special = [[processor.bos_id()] + i for i in ids]
        decoded = [processor.decode(i).encode().hex() for i in ids]
        cases["tokenizers"][name] = {"ids": ids, "special_ids": special, "decoded": decoded}
    (HERE / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


main()
