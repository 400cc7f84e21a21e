"""Packed records of any format and raw bytes: the same rows in any split, and what was read is written again."""

from __future__ import annotations

from fastflight.tables import Layout
from tests.campaigns.fuzz.material import Material, cut
from tests.campaigns.fuzz.table_formats import check, written
from tests.campaigns.fuzz.target import Target

TYPES = ("int64", "double", "string", "timestamp[s]", "bool", "binary", "date32", "decimal128(9, 2)", "uint8")


def run(data: bytes) -> None:
    material = Material(data)
    format_ = material.piece().decode("latin-1")
    names = tuple(f"c{index}" for index in range(material.byte() % 8))
    choice, pattern = material.byte(), material.byte()
    schema = {names[choice & 7]: material.pick(TYPES)} if choice & 8 and (choice & 7) < len(names) else None
    content = material.rest()
    pieces = cut(content, pattern)
    raw = check(Layout("raw", offset=choice), content, pieces)
    assert raw is not None and b"".join(raw.column("data").to_pylist()) == content
    layout = Layout("packed", schema=schema, columns=names or None, record=format_)
    table = check(layout, content, pieces)
    if table is None or schema is not None:
        return
    if (file := written(layout, table)) is None:
        return
    assert len(file) <= len(content)
    if not set(format_) & set("xe?"):
        # Padding is zeros, half floats are rounded, any byte but 0 is true.
        assert "f" in format_ or "d" in format_ or content.startswith(file)


TARGET = Target(
    run,
    modules=(
        "fastflight.tables.packed",
        "fastflight.tables.record",
        "fastflight.tables.raw",
    ),
    seeds=(
        b"\x04<IhB\x03\x00\x03" + bytes(range(21)),
        b"\x05>3s2x\x01\x08\x11\x02abc\x00\x00de\x00\x00\x00x",
        b"\x08=qQdf?cb\x07\x00\x00" + bytes(range(64)),
        b"\x04!4He\x05\x0a\x05\x03" + bytes(range(50)),
        b"\x06<65536\x01\x00\x00\x00",
    ),
    past=(b"\x03<h\x85\x01\x00\x00ab",),
    max_bytes=160,
)
