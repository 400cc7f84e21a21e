"""Arrow IPC from anywhere: rows that are valid in full, or a refusal, the same in any split. Never a crash in C++.

Bytes of a stream change in place, since a damaged length ends it at once: choices say where, and to what.
"""

from __future__ import annotations

import pyarrow as pa

from fastflight.errors import FastFlightError, RequestError
from fastflight.tables import Layout, open_reader
from fastflight.tables.summary import ReadSummary
from tests.campaigns.fuzz.material import Material, cut
from tests.campaigns.fuzz.target import Target

DECIMALS = pa.array([1, None, 2]).cast(pa.decimal128(21, 2))
UNION = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])])
TABLES = (
    pa.table({"i": pa.array([1, None, 3], pa.int8()), "s": ["a", "é", None]}),
    pa.table(
        {"l": [[1], None, [2, 3]], "o": [{"a": 1.5}, None, {}], "t": pa.array([1, 2, 3], pa.timestamp("us", "UTC"))}
    ),
    pa.table({"d": pa.array(["x", "y", "x"]).dictionary_encode(), "b": [b"", b"abc", None], "f": [True, None, False]}),
    pa.table({"m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())), "n": pa.nulls(3)}),
    pa.table({"u": UNION}),
    pa.table({"v": pa.array(["a long string that is not inlined", "b", None], pa.string_view()), "w": DECIMALS}),
    pa.table(
        {"r": pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]), "z": pa.array([b"ab", b"c", b""], pa.binary())}
    ),
    pa.table({"ll": pa.array([["a"], [], None], pa.large_list(pa.large_string())), "k": [b"a", b"b", b"c"]}),
    pa.table(
        {
            "fl": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
            "g": pa.array([b"ab", b"cd", None], pa.binary(2)),
        }
    ),
)
LAYOUTS = (Layout("arrow"), Layout("arrow", on_error="fail"), Layout("arrow", columns=("i",)))


def stream(table: pa.Table, kind: int) -> bytes:
    sink = pa.BufferOutputStream()
    compression = (None, "lz4", "zstd", None)[kind & 3]
    make = pa.ipc.new_file if kind & 4 else pa.ipc.new_stream
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


STREAMS = tuple(stream(table, kind) for table in TABLES for kind in range(8))


def read(layout: Layout, pieces: list[bytes]) -> tuple[pa.Table | None, ReadSummary, str]:
    """The rows, what was rejected, and the error that ended it. Each batch is one that nobody need be afraid of."""
    reader = open_reader(layout)
    batches: list[pa.RecordBatch] = []
    try:
        for piece in pieces:
            batches += reader.feed(piece)
        batches += reader.finish()
    except FastFlightError as error:
        return None, ReadSummary(), f"{error.code} {error}"
    assert reader.schema is not None
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(reader.schema)
    return pa.Table.from_batches(batches, reader.schema), reader.summary, ""


def check(layout: Layout, whole: bytes, pieces: list[bytes]) -> pa.Table | None:
    """The rows of `whole`, which `pieces` join to; None where the layout or the file is refused."""
    try:
        expected = read(layout, [whole])
    except RequestError as error:
        assert str(error)
        return None
    table, *rest = read(layout, pieces)
    assert rest == list(expected[1:]), (rest, expected[1:])
    assert table is expected[0] or (expected[0] is not None and same(table, expected[0]))
    return table


def same(one: pa.Table | None, other: pa.Table) -> bool:
    """The same schema and the same rows, NaN like NaN, whatever the batches."""
    if one is None or not one.schema.equals(other.schema):
        return False
    return bool(one.equals(other)) or shown(one) == shown(other)


def shown(table: pa.Table) -> list[str]:
    """The values as Arrow writes them: Python has no dates beyond the year 9999."""
    columns = [pa.concat_arrays(column.chunks) for column in table.columns if column.num_chunks]
    return [column.to_string(window=len(column)) for column in columns]


def run(data: bytes) -> None:
    material = Material(data)
    layout, pattern, choice = material.pick(LAYOUTS), material.byte(), material.byte()
    if choice < len(STREAMS):
        changed = bytearray(STREAMS[choice])
        while material:
            at = (material.byte() << 8 | material.byte()) % len(changed)
            fresh = material.take(1 + material.byte() % 8)
            changed[at : at + len(fresh)] = fresh
        content = bytes(changed)
    else:
        content = material.rest()
    table = check(layout, content, cut(content, pattern))
    if table is not None:
        # Every value is looked at.
        shown(table)


TARGET = Target(
    run,
    seeds=(
        *(bytes([0, kind, kind]) for kind in range(0, len(STREAMS), 3)),
        b"\x00\x11\x08\x01\x40\x00\x07",
        b"\x01\x00\x10\x02\x00\x03\xff\xff\xff\x7f",
        b"\x02\x05\x00",
        b"\x00\x00\xff" + STREAMS[0][:200],
        b"\x00\x00\xff\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(16),
    ),
    past=(b"^\x00-\x1e%\xfd\xfd", b"\x00<<\x00<\x01\x00\x00\x00\xff\x0e\x00\x00\x00\x00\x00\x00\x00\xff"),
    max_bytes=256,
)
