"""CSV files, with a schema or without: the same rows in any split, and what is written can be read."""

from __future__ import annotations

from fastflight.tables import Layout
from tests.campaigns.fuzz.material import FEW_CUTS, Material, cut
from tests.campaigns.fuzz.table_formats import check, read, written
from tests.campaigns.fuzz.target import Target

LAYOUTS = (
    Layout("csv"),
    Layout("csv", on_error="fail"),
    Layout("csv", columns=("b", "a")),
    Layout("csv", schema={"a": "int64", "b": "string"}),
    Layout("csv", schema={"a": "timestamp[us, UTC]", "b": "double", "c": "bool"}),
    Layout("csv", schema={"a": "date32", "b": "decimal128(5, 2)", "c": "time32[ms]"}, on_error="fail"),
    Layout("csv", schema={"b": "uint8"}, columns=("b",)),
    Layout("csv", schema={"a": "binary", "b": "float32"}),
)


def run(data: bytes) -> None:
    material = Material(data)
    layout, pattern = material.pick(LAYOUTS), material.byte()
    text = material.stretched()
    table = check(layout, text, cut(text, pattern, FEW_CUTS))
    if table is None or (file := written(Layout("csv"), table)) is None:
        return
    schema = {field.name: str(field.type) for field in table.schema}
    back, _, wrong = read(Layout("csv", schema=schema), [file])
    assert back is not None and back.num_rows == table.num_rows, wrong


TARGET = Target(
    run,
    seeds=(
        b"\x00\x03\x00a,b,c\n1,2.5,x\n2,,true\n3,4.\n",
        b"\x03\x11\x00a,b\n1,one\nx,two\n3\n4,\"fo\"\"ur\n\",\n",
        b"\x04\x00\x00a;b;c\r\n2024-01-01T00:00:00Z;1e5;true\r\n2024-02-30 00:00;nan;0\r\n",
        b"\x05\x21\x00c,a,b\n12:30:00.5,2024-02-29,123.45\n",
        (b"\x00\x01\x00a,b,c\n2024-01-01,2024-01-01T00:00Z,2024-01-01 00:00:00.1234567\n"
        b"2024-01-01 10:00,2024-01-02,01-01\n"),
        b"\x00\x07\x00\xef\xbb\xbfname\tvalue\n\xc3\xa4\t007\n\xff\t1\n",
        b"\x06\x00\xf0b\n1\n256\n-1\n0x10\n",
        b'\x00\x02\x00"a","b"\n"x\r\ny",2\n"open,3\n4,5\n',
        b"\x07\x00\x00b,a\n1,\x00\x01\n",
    ),
    max_bytes=160,
)  # fmt: skip
