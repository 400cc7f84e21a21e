"""Live output as rows: any chunks and gaps, cut anywhere, give rows that are valid and counts that add up."""

from __future__ import annotations

from fastflight.gap import Gap
from fastflight.service.requests import DeviceSession
from fastflight.service.source import Noted
from fastflight.sources.session_rows import SessionRows
from fastflight.transport.chunk_buffer import Chunk, Direction
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target

REQUESTS = (
    DeviceSession(device="d"),
    DeviceSession(device="d", format="lines", batch_rows=3),
    DeviceSession(device="d", format="csv", schema_={"t": "int64", "v": "double", "s": "string"}),
    DeviceSession(device="d", format="jsonl", schema_={"t": "int64", "s": "string"}, limit_rows=4),
    DeviceSession(device="d", format="csv", schema_={"t": "int64", "v": "double"}),
    DeviceSession(device="d", format="jsonl", schema_={"t": "uint64"}),
    DeviceSession(device="d", format="lines", columns=("text",), limit_rows=2),
)


def run(data: bytes) -> None:
    material = Material(data)
    request = material.pick(REQUESTS)
    now, seq, sent, lost = 0.0, 0, {"rx": 0, "tx": 0}, 0
    rows = SessionRows(request, lambda: now)
    rows.begin(bool(material.byte() & 1))
    found = []
    while material and not rows.full:
        kind = material.byte()
        if kind < 16:
            gap = Gap(seq, seq + kind)
            seq, lost = gap.last + 1, lost + kind + 1
            found += rows.feed([gap])
        elif kind < 24:
            found += rows.feed([Gap(seq, seq - 1, "line lost", "pulled")])
        else:
            now += kind & 1
            direction: Direction = "tx" if kind & 6 == 6 else "rx"
            content = material.take(kind >> 3) or b"\n"
            sent[direction] += len(content)
            chunk = Chunk(seq, (1 << 60) + int(now * 1e9), direction, content, "cut" if kind == 255 else "")
            seq += 1
            found += rows.feed([chunk])
    found += rows.finish()
    total = 0
    for each in found:
        batch = each.batch if isinstance(each, Noted) else each
        batch.validate(full=True)
        assert batch.schema.equals(rows.schema)
        batch.to_pylist()
        total += batch.num_rows
    summary = rows.summary()
    assert summary["rx_bytes"] == sent["rx"] and summary["tx_bytes"] == sent["tx"] and summary["lost"] == lost
    assert request.limit_rows is None or total <= request.limit_rows


TARGET = Target(
    run,
    modules=("fastflight.sources.session_rows", "fastflight.tables.lines",),
    seeds=(
        b"\x00\x01\x30hello\n\x1etx",
        b"\x01\x00\x58line one\r\nline two\x40 goes on\n\x03\x20rest",
        b"\x02\x01\x80t,v,s\n1,2.5,x\n2,\x40,\"y\"\n3\n\x02\x60x,y,z\n5,6,\"7\n8",
        b'\x03\x01\x90{"t":1,"s":"a"}\n\x90{"t":2,"s":{}}\n\x60{"t":"x"}\n{\n',
        b"\x04\x01\x28100,1\n\x29200,2\n\x29150,3\n\x10\x298\n1,2\n",
        b'\x05\x01\x50{"t":5}\n{"t":18446744073709551615}\n',
        b"\x06\x00\xff" + bytes(range(31)),
    ),
    max_bytes=160,
)  # fmt: skip
