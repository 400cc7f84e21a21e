"""JSON lines, with a schema or without: the same rows in any split, and what is written can be read."""

from __future__ import annotations

import json

from fastflight.tables import Layout
from tests.campaigns.fuzz.material import FEW_CUTS, Material, cut
from tests.campaigns.fuzz.table_formats import check, written
from tests.campaigns.fuzz.target import Target

LAYOUTS = (
    Layout("jsonl"),
    Layout("jsonl", on_error="fail"),
    Layout("jsonl", columns=("a",)),
    Layout("jsonl", schema={"a": "int64", "b": "string"}),
    Layout("jsonl", schema={"a": "timestamp[us, UTC]", "b": "double", "c": "bool"}),
    Layout("jsonl", schema={"a": "list<int64>", "b": "struct<x: double, y: string>"}),
    Layout("jsonl", schema={"a": "decimal128(5, 2)", "b": "date32"}, on_error="fail"),
)


def run(data: bytes) -> None:
    material = Material(data)
    layout, pattern = material.pick(LAYOUTS), material.byte()
    text = material.stretched()
    table = check(layout, text, cut(text, pattern, FEW_CUTS))
    if table is None or (file := written(Layout("jsonl"), table)) is None:
        return
    assert file.count(b"\n") == table.num_rows
    assert all(isinstance(json.loads(line), dict) for line in file.splitlines())


TARGET = Target(
    run,
    seeds=(
        b'\x00\x03\x00{"a":1,"b":"x"}\n{"a":2.5}\n\n{"b":null,"c":true}\n',
        b'\x03\x11\x00{"a":1,"b":{"x":[1,2]}}\n{"a":"1"}\n[1]\n{"a":9999999999999999999}\n{',
        b'\x04\x00\x00{"a":"2024-01-01T00:00:00Z","b":NaN,"c":false}\n{"a":"x","b":-Infinity}\n',
        b'\x05\x21\x00{"a":[1,null],"b":{"x":1,"y":"\\u00e4"}}\n{"a":[[]],"b":{"x":"1"}}\n',
        (
            b'\x00\x03\x00{"a":"2024-01-01","b":"2024-01-01T00:00Z"}\n'
            b'{"a":"2024-01-01 10:00","b":"2024-01-02T00:00:00.1234567Z"}\n'
        ),
        b'\x06\x07\x00{"a":"123.45","b":"2024-02-29"}\n',
        b'\x00\x00\xff{"a":[[[[',
        b'\x00\x00\x00{"a":[1,2],"b":[{"x":1}]}\n{"a":[],"b":[{"x":"\\ud800"}]}\n{"a":1,"a":2}\n',
    ),
    max_bytes=160,
)
