from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastflight.errors import DataError, FastFlightError, RequestError
from fastflight.tables import Layout, open_reader
from fastflight.tables.ipc import DICTIONARY_BATCH, MAX_BODY_BYTES, MessageSplitter

TABLE = pa.table(
    {
        "i": [1, None, 3, 4],
        "s": ["a", "é", None, ""],
        "l": [[1], None, [], [2, 3]],
        "d": pa.array(["x", "y", "x", None]).dictionary_encode(),
        "o": [{"a": 1.5}, None, {"a": None}, {"a": 2.0}],
    }
)


def stream(table: pa.Table, kind: Any = pa.ipc.new_stream, rows: int = 2, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with kind(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in table.to_batches(max_chunksize=rows):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("kind", [pa.ipc.new_stream, pa.ipc.new_file])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_streams_and_files(read: Any, kind: Any, compression: str | None) -> None:
    seen = read(stream(TABLE, kind, compression=compression), "arrow", [8, 9, 500])
    assert seen.rows == TABLE.to_pylist()
    assert seen.schema.field("d").type == pa.string()
    assert seen.count == 0


def test_growing_and_replaced_dictionaries(read: Any) -> None:
    parts = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["a", "b", "c", "c"], ["z"])]
    table = pa.table({"d": pa.chunked_array(parts)})
    for deltas in (False, True):
        seen = read(stream(table, rows=10, emit_dictionary_deltas=deltas), "arrow")
        assert [row["d"] for row in seen.rows] == ["a", "b", "a", "b", "c", "c", "z"]


def test_columns_are_kept_in_the_order_asked_for(read: Any) -> None:
    assert read(stream(TABLE), "arrow", columns=("s", "i")).rows == TABLE.select(["s", "i"]).to_pylist()
    seen = read(stream(TABLE), "arrow", columns=("ss",))
    assert seen.error[1].startswith("columns: no column is named 'ss'. Did you mean 's'")
    with pytest.raises(RequestError, match="an arrow file brings its own schema"):
        open_reader(Layout("arrow", schema={"i": "int64"}))


def test_a_truncated_stream_gives_the_rows_so_far(read: Any) -> None:
    data = stream(TABLE)
    seen = read(data[:-20], "arrow")
    assert seen.rows == TABLE.slice(0, 2).to_pylist()
    assert seen.reasons == ["the file ends in the middle of a message"]
    assert 0 < seen.rejected[0].offset < len(data) - 20
    assert read(data[:-8], "arrow").rows == TABLE.to_pylist()
    assert read(data[:-20], "arrow", on_error="fail").error[0] == "data"
    assert (read(b"", "arrow").rows, read(data[:5], "arrow").count) == ([], 1)


def test_a_batch_that_is_not_valid_is_rejected(read: Any) -> None:
    batches = [pa.record_batch([pa.array(words)], ["s"]) for words in (["a"], ["ab", "cd"], ["c"])]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data = bytes(sink.getvalue())
    offsets = b"\0\0\0\0\2\0\0\0\4\0\0\0"
    assert data.count(offsets) == 1
    seen = read(data.replace(offsets, b"\0\0\0\0\2\0\0\0\377\377\377\177"), "arrow")
    assert [row["s"] for row in seen.rows] == ["a", "c"]
    assert seen.reasons[0].startswith("the batch is not valid: ")


def test_limits_are_checked_before_memory_is_taken(read: Any) -> None:
    data = stream(pa.table({"n": pa.nulls(2)}))
    rows = (2).to_bytes(8, "little")
    assert read(data.replace(rows, (1 << 60).to_bytes(8, "little")), "arrow").error[0] == "data"
    zeros = stream(pa.table({"z": [0] * (MAX_BODY_BYTES // 8 + 8)}), rows=1 << 30, compression="zstd")
    assert len(zeros) < 1 << 20
    assert "unpacks to" in read(zeros, "arrow").error[1]
    assert "metadata has 2147483647 bytes" in read(b"\xff\xff\xff\xff\xff\xff\xff\x7f", "arrow").error[1]


def test_dictionaries_have_one_limit_together(read: Any) -> None:
    value = pa.array(["x" * (MAX_BODY_BYTES // 8)])
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), value)
    data = stream(pa.table({f"c{number}": column for number in range(9)}), compression="zstd")
    assert len(data) < 1 << 16
    before = pa.total_allocated_bytes()
    reader = open_reader(Layout("arrow"))
    with pytest.raises(DataError, match="its dictionaries take more than 67108864 bytes together"):
        reader.feed(data)
    assert pa.total_allocated_bytes() - before < MAX_BODY_BYTES // 8


def test_dictionaries_that_no_batch_uses_are_not_gathered() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["x" * (MAX_BODY_BYTES // 8)]))
    data = stream(pa.table({"c": column}))
    (start, first), (end, _) = [(each.offset, each.kind) for each in MessageSplitter().feed(data)][1:]
    assert first == DICTIONARY_BATCH
    for replaced in (1, 7):
        reader = open_reader(Layout("arrow"))
        (batch,) = reader.feed(data[:start] + data[start:end] * replaced + data[end:])
        assert batch.num_rows == 1
    with pytest.raises(DataError, match="dictionaries take more"):
        open_reader(Layout("arrow")).feed(data[:start] + data[start:end] * 8)


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"id,name\n1,a\n", "no Arrow message starts here"), (stream(TABLE)[-700:], "no Arrow message starts here")],
)
def test_other_files(read: Any, data: bytes, error: str) -> None:
    assert error in read(data, "arrow").error[1]


def flip(data: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 8, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    return bytes(damaged)


@settings(max_examples=100, deadline=None)
@given(st.integers(), st.sampled_from([None, "lz4", "zstd"]), st.lists(st.integers(0, 2500), max_size=3))
@example(128, "zstd", [432])  # two wrong messages: the first is the one to tell of
def test_damaged_streams_raise_only_documented_errors(read: Any, seed: int, compression: Any, cuts: list[int]) -> None:
    data = flip(stream(TABLE, compression=compression), random.Random(seed))
    layout = Layout("arrow")
    ends = sorted({min(at, len(data)) for at in cuts})
    outcomes = []
    for pieces in ([data], [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]):
        reader, rows, error = open_reader(layout), [], ""
        try:
            for piece in pieces:
                rows += [row for batch in reader.feed(piece) for row in batch.to_pylist()]
            reader.finish()
        except FastFlightError as raised:
            rows, error = [], str(raised)
        outcomes.append(repr((rows, error, reader.summary if not error else None)))
    assert outcomes[0] == outcomes[1]


def test_writing_is_the_inverse(read: Any, write: Any) -> None:
    assert read(write(TABLE, "arrow", 2), "arrow").rows == TABLE.to_pylist()
    assert pa.ipc.open_stream(write(TABLE, "arrow", 2)).read_all().equals(TABLE)
