from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
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


UNION = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])])
WIDE = (
    TABLE,
    pa.table({"t": pa.array([1, 2, 3], pa.timestamp("us", "UTC")), "b": [b"", b"abc", None], "f": [True, None, False]}),
    pa.table({"m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())), "n": pa.nulls(3)}),
    pa.table({"u": UNION, "w": pa.array([1, None, 2]).cast(pa.decimal128(21, 2))}),
    pa.table({"v": pa.array(["a long string that is not inlined", "b", None], pa.string_view())}),
    pa.table({"r": pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]), "z": [b"ab", b"c", b""]}),
    pa.table({"l": pa.array([["a"], [], None], pa.large_list(pa.large_string()))}),
    pa.table(
        {
            "l": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
            "g": pa.array([b"ab", b"cd", None], pa.binary(2)),
        }
    ),
)
STREAMS = [
    stream(table, kind, compression=compression)
    for table in WIDE
    for kind in (pa.ipc.new_stream, pa.ipc.new_file)
    for compression in (None, "lz4", "zstd")
]
LAYOUTS = (Layout("arrow"), Layout("arrow", on_error="fail"), Layout("arrow", columns=("i",)))


def changed(data: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    """Bytes change in place: a damaged length would end the stream at once."""
    damaged = bytearray(data)
    for at, fresh in changes:
        damaged[at % len(data) : at % len(data) + len(fresh)] = fresh
    return bytes(damaged)


CHANGES = st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=8)), max_size=4)


@given(
    st.sampled_from(LAYOUTS),
    st.builds(changed, st.sampled_from(STREAMS), CHANGES) | st.binary(max_size=256),
    st.lists(st.integers(0, 2500), max_size=3),
)
# Two wrong messages: the first is the one to tell of.
@example(LAYOUTS[0], changed(stream(TABLE, compression="zstd"), [(1490, b"\x80"), (117, b"\x7f")]), [432])
@example(LAYOUTS[0], changed(stream(WIDE[4], pa.ipc.new_file), [(60, b"\0\0"), (255, bytes(7))]), [13, 17])
def test_damaged_streams_are_valid_rows_or_documented_errors(layout: Layout, data: bytes, cuts: list[int]) -> None:
    ends = sorted({min(at, len(data)) for at in cuts})
    pieces = [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]
    assert outcome(layout, [data]) == outcome(layout, pieces)


def outcome(layout: Layout, pieces: list[bytes]) -> str:
    """The rows, which are valid in full, and what was rejected; or the error that ended it."""
    try:
        reader = open_reader(layout)
        batches = [batch for piece in pieces for batch in reader.feed(piece)] + reader.finish()
    except FastFlightError as error:
        assert error.code != FastFlightError.code and str(error)
        return f"{error.code} {error}"
    assert reader.schema is not None
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(reader.schema)
    table = pa.Table.from_batches(batches, reader.schema)
    # As Arrow writes them: Python has no dates beyond the year 9999.
    columns = [pa.concat_arrays(column.chunks) for column in table.columns if column.num_chunks]
    shown = [column.to_string(window=len(column)) for column in columns]
    return repr((str(table.schema), table.num_rows, shown, reader.summary))


def test_writing_is_the_inverse(read: Any, write: Any) -> None:
    assert read(write(TABLE, "arrow", 2), "arrow").rows == TABLE.to_pylist()
    assert pa.ipc.open_stream(write(TABLE, "arrow", 2)).read_all().equals(TABLE)
