#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our reading of Parquet files with pyarrow's, on files that pyarrow writes here.

    bench/parquet_peer.py [--bench build/release/bench_parquet] [--folder DIR] [--rows 3000] [--big 0]

Needs the package pyarrow; polars, duckdb and fastparquet (with pandas) are compared too where they are. Writes the same made-up
rows (text, conversations, numbers, nulls, empty lists, structures in lists in structures) with every codec, page version and
encoding that is read, in small and large pages and row groups, and compares every value. Then flips bits in pages with
checksums, which must be found, and tries what is not read, which must be named.
--big N times both on N megabytes of text. Ends with 1 when something differs.
"""
import argparse
import itertools
import json
import math
import os
import random
import subprocess
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet as pq

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
CALLS = pa.list_(pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string())),
                            ("args", pa.struct([("x", pa.int64()), ("deep", pa.list_(pa.list_(pa.int32())))]))]))
SCHEMA = pa.schema([
    ("text", pa.string()), ("id", pa.int64()), ("small", pa.int8()), ("wide", pa.uint64()), ("word", pa.uint32()),
    ("score", pa.float64()), ("half", pa.float32()), ("good", pa.bool_()), ("source", pa.dictionary(pa.int32(), pa.string())),
    ("raw", pa.binary()), ("messages", MESSAGES), ("calls", CALLS), ("tags", pa.list_(pa.string())),
    ("meta", pa.struct([("url", pa.string()), ("lang", pa.struct([("name", pa.string()), ("p", pa.float32())]))])),
    ("when", pa.timestamp("us")), ("pairs", pa.map_(pa.string(), pa.int32())), ("never", pa.null()),
    pa.field("must", pa.string(), nullable=False)])


def maybe(draw, value, share=0.15):
    return None if draw.random() < share else value()


def words(draw, most=30):
    some = ["the", "cat", "über", "日本語", "quo\"ted", "back\\slash", "line\nend", "tab\t", "\x01", "😀", "a" * 40, ""]
    return " ".join(draw.choice(some) for _ in range(draw.randint(0, most)))


def row(draw, index):
    many = lambda make, most=4: maybe(draw, lambda: [make() for _ in range(draw.randint(0, most))])
    f32 = lambda: pa.scalar(draw.uniform(-9, 9), pa.float32()).as_py()
    return {
        "text": maybe(draw, lambda: words(draw)), "id": index * 7 - 5000, "small": maybe(draw, lambda: draw.randint(-128, 127)),
        "wide": maybe(draw, lambda: draw.getrandbits(64)), "word": maybe(draw, lambda: draw.getrandbits(32)),
        "score": maybe(draw, lambda: draw.choice([0.1, 1e300, -0.0, draw.random(), math.inf, math.nan])),
        "half": maybe(draw, f32), "good": maybe(draw, lambda: draw.random() < 0.5),
        "source": maybe(draw, lambda: draw.choice(["web", "books", "code"])),
        "raw": maybe(draw, lambda: draw.choice([b"text", b"\xff\xfe", b""])),
        "messages": many(lambda: maybe(draw, lambda: {"role": "user", "content": maybe(draw, lambda: words(draw, 8))}, 0.05)),
        "calls": many(lambda: {"name": maybe(draw, lambda: words(draw, 2)), "tags": many(lambda: maybe(draw, lambda: words(draw, 1))),
                               "args": maybe(draw, lambda: {"x": maybe(draw, lambda: draw.randint(-9, 9)), "deep": many(
                                   lambda: many(lambda: maybe(draw, lambda: draw.randint(0, 99))))})}),
        "tags": many(lambda: maybe(draw, lambda: words(draw, 1))),
        "meta": maybe(draw, lambda: {"url": maybe(draw, lambda: words(draw, 1)),
                                     "lang": maybe(draw, lambda: {"name": maybe(draw, lambda: "en"), "p": maybe(draw, f32)})}),
        "when": maybe(draw, lambda: draw.randint(0, 10**15)), "pairs": many(lambda: (words(draw, 1), maybe(draw, lambda: 5))),
        "never": None, "must": words(draw, 2)}


def as_json(name, value):
    """What the row is in our lines."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if name == "pairs" and value is not None:
        return [{"key": key, "value": number} for key, number in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def equal(name, a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(key, a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal(name, x, y) for x, y in zip(a, b))
    if name in ("half", "p") and a is not None and b is not None:
        return pa.scalar(a, pa.float32()) == pa.scalar(b, pa.float32())
    return type(a) is type(b) and a == b


def layouts():
    for codec, version, dictionary in itertools.product(["none", "snappy", "zstd", "gzip"], ["1.0", "2.0"], [True, False]):
        yield f"{codec} v{version} dictionary={dictionary}", dict(
            compression=codec, data_page_version=version, use_dictionary=dictionary, write_page_checksum=True)
    strings = ["text", "must", "raw", "messages.list.element.content", "tags.list.element"]
    yield "delta lengths", dict(use_dictionary=False, column_encoding={name: "DELTA_LENGTH_BYTE_ARRAY" for name in strings})
    yield "delta strings", dict(use_dictionary=False, column_encoding={name: "DELTA_BYTE_ARRAY" for name in strings})
    yield "delta numbers", dict(use_dictionary=False, compression="zstd", data_page_version="2.0",
                                column_encoding={name: "DELTA_BINARY_PACKED" for name in ["id", "small", "wide", "word", "when"]})
    yield "booleans as runs", dict(use_dictionary=False, column_encoding={"good": "RLE"}, data_page_version="2.0")
    yield "bytes apart", dict(use_dictionary=False, column_encoding={
        name: "BYTE_STREAM_SPLIT" for name in ["id", "score", "half", "meta.lang.p"]})
    yield "small pages", dict(data_page_size=200, write_batch_size=7, dictionary_pagesize_limit=300)
    yield "small pages v2", dict(data_page_size=200, write_batch_size=7, data_page_version="2.0", compression="gzip")
    yield "small row groups", dict(row_group_size=37)
    yield "old lists", dict(use_compliant_nested_type=False)
    yield "page index", dict(write_page_index=True, write_statistics=True)
    yield "no statistics", dict(write_statistics=False)


def ours(bench, path):
    result = subprocess.run([bench, path, "--print"], capture_output=True)
    return result.returncode, result.stdout, result.stderr.decode()


def check(bench, name, path, rows):
    code, out, error = ours(bench, path)
    if code != 0:
        print(f"{name}: {error.strip()}")
        return False
    lines = out.decode().split("\n")[:-1]
    if len(lines) != len(rows):
        print(f"{name}: {len(lines)} lines for {len(rows)} rows")
        return False
    for index, (line, wanted) in enumerate(zip(lines, rows)):
        seen = json.loads(line)
        for key, value in wanted.items():
            if key not in seen or not equal(key, as_json(key, value), seen[key]):
                print(f"{name}: row {index}, {key}: {as_json(key, value)!r} is wanted, {seen.get(key, 'nothing')!r} is seen")
                return False
        if list(seen) != list(wanted):
            print(f"{name}: row {index} has {list(seen)}")
            return False
    print(f"{name}: {len(rows)} rows equal, {os.path.getsize(path)} bytes")
    return True


def flip(bench, folder, path, draw):
    """Bits in pages that have checksums: each must be named with the column, or change nothing."""
    with open(path, "rb") as file:
        whole = file.read()
    end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    good, named = ours(bench, path)[1], 0
    bad = os.path.join(folder, "flipped.parquet")
    for _ in range(300):
        at = draw.randrange(4, end)
        with open(bad, "wb") as file:
            file.write(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1:])
        code, out, error = ours(bench, bad)
        if code in (2, 3) and "column `" in error and "row group" in error:
            named += 1
        elif code != 0 or out != good:
            print(f"a bit at {at} of {path} was not found: exit code {code}, {error.strip()}")
            return False
    print(f"300 flipped bits in pages: {named} named, the others change nothing (in headers)")
    return True


def refuse(bench, folder, table):
    good = True
    for name, options, part in [("lz4", dict(compression="lz4"), "LZ4_RAW"), ("brotli", dict(compression="brotli"), "BROTLI")]:
        path = os.path.join(folder, name + ".parquet")
        pq.write_table(table, path, **options)
        code, _, error = ours(bench, path)
        good = good and code == 2 and part in error
        print(f"{name}: exit code {code}, {error.strip()}")
    return good


def others(bench, folder, draw):
    """The same from the programs of other packages, those that are here."""
    rows = [{"text": maybe(draw, lambda: words(draw)), "n": maybe(draw, lambda: draw.randint(0, 10**15)), "f": draw.random(),
             "b": maybe(draw, lambda: draw.random() < 0.5), "m": [{"role": "user", "content": words(draw, 3)}
                                                                  for _ in range(draw.randint(0, 3))]} for _ in range(20000)]
    path, good = os.path.join(folder, "other.parquet"), True
    try:
        import polars
        for codec, size in itertools.product(["zstd", "snappy", "gzip", "uncompressed"], [None, 2000]):
            polars.DataFrame(rows).write_parquet(path, compression=codec, row_group_size=3000, data_page_size=size)
            good = check(bench, f"polars {codec} {size}", path, rows) and good
        import duckdb
        source = os.path.join(folder, "source.parquet")
        polars.DataFrame(rows).write_parquet(source)
        for codec, version in itertools.product(["zstd", "snappy", "gzip", "uncompressed"], ["V1", "V2"]):
            duckdb.sql(f"copy (select * from '{source}') to '{path}' (format parquet, compression {codec}, parquet_version {version},"
                       " row_group_size 5000)")
            good = check(bench, f"duckdb {codec} {version}", path, rows) and good
        import fastparquet
        import pandas
        flat = [{key: one[key] for key in ("text", "f")} for one in rows]
        for codec in ["SNAPPY", "ZSTD", "GZIP", None]:
            fastparquet.write(path, pandas.DataFrame(flat), compression=codec, row_group_offsets=4000, stats=True)
            good = check(bench, f"fastparquet {codec}", path, flat) and good
    except ImportError as missing:
        print(f"not compared: {missing}")
    return good


def time_both(bench, folder, megabytes):
    draw = random.Random(3)
    page = [words(draw, 400) for _ in range(2000)]
    texts = [draw.choice(page) + str(i) for i in range(megabytes * 1_000_000 // (sum(map(len, page)) // len(page)))]
    path = os.path.join(folder, "big.parquet")
    pq.write_table(pa.table({"text": texts, "id": range(len(texts))}), path, compression="zstd")
    start = time.perf_counter()
    with open(os.devnull, "w") as out:
        for batch in pq.ParquetFile(path).iter_batches(batch_size=1000, use_threads=False):
            for record in batch.to_pylist():
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(f"pyarrow and json: {sum(map(len, texts)) / (time.perf_counter() - start) / 1e6:.0f} MB/s; ours:",
          subprocess.check_output([bench, path], text=True).strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/release/bench_parquet")
    parser.add_argument("--folder")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--big", type=int, default=0)
    args = parser.parse_args()
    folder = args.folder or tempfile.mkdtemp(prefix="parquet-")
    draw = random.Random(11)
    rows = [row(draw, index) for index in range(args.rows)]
    table = pa.Table.from_pylist(rows, SCHEMA)
    good, count = True, 0
    for count, (name, options) in enumerate(layouts(), 1):
        path = os.path.join(folder, f"{count}.parquet")
        pq.write_table(table, path, **options)
        good = check(args.bench, name, path, rows) and good
    empty = os.path.join(folder, "empty.parquet")
    pq.write_table(table.slice(0, 0), empty)
    good = check(args.bench, "no rows", empty, []) and good
    small = os.path.join(folder, "small.parquet")
    pq.write_table(table.slice(0, 40), small, write_page_checksum=True)
    good = others(args.bench, folder, draw) and good
    good = flip(args.bench, folder, small, draw) and refuse(args.bench, folder, table.slice(0, 40)) and good
    if args.big:
        time_both(args.bench, folder, args.big)
    raise SystemExit(0 if good else 1)


main()
