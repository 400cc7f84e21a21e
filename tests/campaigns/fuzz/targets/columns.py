"""What the page draws of a device's output: numbers that can be said in JSON, within the limits."""

from __future__ import annotations

import json

from fastflight.tables.columns import MAX_COLUMNS, MAX_LINES, MAX_NAME_CHARACTERS, MAX_SHOWN_CHARACTERS, Columns
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target


def run(data: bytes) -> None:
    material = Material(data)
    columns = Columns()
    while material:
        kind = material.byte()
        if kind == 0:
            columns.cut()
        text = material.take(kind & 63)
        if kind & 64:
            text += text[-1:] * 32 * material.byte()
        lines, points = columns.feed([(1_700_000_000_000_000_000, text)])
        assert len(points) <= min(lines, MAX_LINES)
        assert len(columns.names) <= MAX_COLUMNS and len(columns.line) <= MAX_SHOWN_CHARACTERS
        assert all(len(name) <= MAX_NAME_CHARACTERS for name in columns.names)
        for point in points:
            assert len(point) <= 1 + len(columns.names)
        json.dumps([columns.names, points], allow_nan=False)


TARGET = Target(
    run,
    seeds=(
        b"\x1at,temp,hum\n1,20.5,40\n2,x,41\n",
        b'\x22{"t": 1, "v": -2.5e3, "s": "x"}\n\x05{"a":\x041}\n',
        b"\x10some prose, here\n\x08nan,inf\n\x09+1,-.5,1_0\n",
        b"\x42{[\xff\x03]}\n\x04\xff\xfe,1\n",
    ),
)
