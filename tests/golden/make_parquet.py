#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fuzz/corpus/parquet with pyarrow: the same four rows in several layouts (tests/data/test_parquet.c has the lines).

    tests/golden/make_parquet.py tests/fuzz/corpus/parquet
"""
import decimal
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
SCHEMA = pa.schema([("text", pa.string()), ("id", pa.int64()), ("p", pa.float32()), ("ok", pa.bool_()), ("raw", pa.binary()),
                    ("messages", MESSAGES), ("price", pa.decimal128(9, 2))])
ROWS = [
    {"text": "A \"quote\" and\na line", "id": -1, "p": 0.1, "ok": True, "raw": b"plain", "price": decimal.Decimal("1.50"),
     "messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]},
    {"text": None, "id": 2**53 + 1, "p": 3.0, "ok": None, "raw": b"\xff\x00", "price": None, "messages": []},
    {"text": "A \"quote\" and\na path", "id": None, "p": None, "ok": False, "raw": None, "price": None, "messages": None},
    {"text": "caf\u00e9", "id": 7, "p": 1e-7, "ok": True, "raw": b"", "price": None, "messages": [{"role": "user", "content": None}, None]},
]
STRINGS = ["text", "raw", "messages.list.element.role", "messages.list.element.content"]
LAYOUTS = {
    "plain": dict(compression="none", use_dictionary=False),
    "snappy": dict(compression="snappy"),
    "gzip_2": dict(compression="gzip", data_page_version="2.0"),
    "zstd_groups": dict(compression="zstd", row_group_size=2, use_dictionary=["text"]),
    "deltas": dict(compression="snappy", use_dictionary=False, data_page_version="2.0", column_encoding={
        **{name: "DELTA_BYTE_ARRAY" for name in STRINGS[:2]}, **{name: "DELTA_LENGTH_BYTE_ARRAY" for name in STRINGS[2:]},
        "id": "DELTA_BINARY_PACKED", "ok": "RLE"}),
}
DAMAGE = {  # for the fuzz target: checksums would hide most of the code from it
    "unchecked": dict(LAYOUTS["plain"], use_dictionary=True),
    "unchecked_2": dict(LAYOUTS["deltas"], compression="none"),
}

for name, options in {**LAYOUTS, **DAMAGE}.items():
    path = os.path.join(sys.argv[1], name)
    pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), path, store_schema=False, write_page_checksum=name in LAYOUTS, **options)
    print(path, os.path.getsize(path))
