"""Record batches that lie: by Flight's DoPut and DoExchange, as an Arrow upload by HTTP, and as a file on a board.

Each is a list of messages. `error` is what DoPut says: `CORRUPT` is our own look at a batch, `UNREADABLE` Arrow's.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.tables.ipc import MAX_BODY_BYTES, MAX_MESSAGE_ROWS, MAX_METADATA_BYTES
from fastflight.tables.schemas import MAX_COLUMNS
from fastflight.tables.vetting import MAX_DEPTH, MAX_FIELDS

from .broken import Part, int32s, int64s, parts, raw_array
from .case import Case

CORRUPT = "a batch is corrupt"
UNREADABLE = "not a stream of record batches"

NUMBERS = pa.array([1, 2, 3], pa.int64())
SCHEMA, BATCH = parts(NUMBERS)
LONG = "x" * 1_000_000
_, VIEW, TEXT = pa.array([LONG], pa.string_view()).buffers()


def nested(depth: int) -> pa.Array:
    array: pa.Array = pa.array([1], pa.int8())
    for _ in range(depth - 1):
        array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
    return array


def corrupt(name: str, array: pa.Array, says: str = CORRUPT) -> Case:
    return Case(name, parts(array), DataError, says)


def spoiled(name: str, array: pa.Array, before: bytes, after: bytes, says: str = CORRUPT) -> Case:
    """For what Arrow's writer would refuse: `array` is good, and then its body is changed."""
    *rest, batch = parts(array)
    assert batch.body.count(before) == 1
    return Case(name, [*rest, Part(batch.header, batch.body.replace(before, after))], DataError, says)


def claims(name: str, array: pa.Array, says: str = CORRUPT, rows: int = 1 << 40) -> Case:
    """A batch of few rows that says that they are many."""
    schema, *rest = parts(array)
    return Case(name, [schema, *rest[:-1], rest[-1].patched(len(array), rows)], DataError, says)


def unions(type_ids: list[int], offsets: list[int]) -> pa.Array:
    type_ = pa.dense_union([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    children = [pa.array([1, 2]), pa.array(["x"])]
    ids = pa.py_buffer(bytes(type_ids))
    return pa.Array.from_buffers(type_, len(type_ids), [None, ids, pa.py_buffer(int32s(*offsets))], children=children)


def runs(*ends: int, length: int) -> pa.Array:
    type_ = pa.run_end_encoded(pa.int32(), pa.int64())
    children = [pa.array(list(ends), pa.int32()), pa.array([7] * len(ends), pa.int64())]
    return pa.Array.from_buffers(type_, length, [None], children=children)


def lists(offsets: bytes, *, large: bool = False) -> pa.Array:
    type_ = pa.large_list(pa.int64()) if large else pa.list_(pa.int64())
    count = len(offsets) // (8 if large else 4) - 1
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(offsets)], children=[NUMBERS])


def views(offsets: list[int], sizes: list[int]) -> pa.Array:
    buffers = [None, pa.py_buffer(int32s(*offsets)), pa.py_buffer(int32s(*sizes))]
    return pa.Array.from_buffers(pa.list_view(pa.int64()), len(sizes), buffers, children=[NUMBERS])


def view(length: int, buffer: int = 0, offset: int = 0, prefix: bytes = b"xxxx") -> pa.Array:
    return raw_array(pa.string_view(), 1, None, struct.pack("<i4sii", length, prefix, buffer, offset), b"x" * 64)


def dictionary(*indices: int, values: pa.Array | None = None, type_: pa.DataType | None = None) -> pa.Array:
    kind = type_ or pa.int32()
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, kind), pa.array(["a"]) if values is None else values, safe=False
    )


def compressed(claim: int) -> list[Part]:
    schema, batch = parts(pa.array([bytes(1000)]), compression="zstd")
    return [schema, batch.patched(1000, claim, body=True)]


# One byte more than a body may have. Made once: it takes a while.
ZEROS = raw_array(pa.binary(), 1, None, int32s(0, MAX_BODY_BYTES + 1), bytes(MAX_BODY_BYTES + 1))
_, TOO_LARGE = parts(ZEROS, compression="zstd")
del ZEROS

# Batches whose content is not what it says; Arrow reads each without a word.
CONTENT = [
    spoiled("an offset behind the end", pa.array(["a", "bcd"]), int32s(0, 1, 4), int32s(0, 1, 1_000_000)),
    spoiled("an offset before the beginning", pa.array(["a", "b"]), int32s(0, 1, 2), int32s(-5, 1, 2)),
    corrupt("offsets that go back", raw_array(pa.string(), 2, None, int32s(0, 4, 2), b"abcd")),
    corrupt("large offsets that go back", raw_array(pa.large_string(), 2, None, int64s(0, 4, 2), b"abcd")),
    spoiled("a large offset of 2^62", pa.array([b"abcd"], pa.large_binary()), int64s(0, 4), int64s(0, 1 << 62)),
    corrupt("offsets of bytes that go back", raw_array(pa.binary(), 2, None, int32s(0, 4, 2), b"abcd")),
    corrupt("text that is not UTF-8", raw_array(pa.string(), 1, None, int32s(0, 1), b"\xff")),
    corrupt("a surrogate as text", raw_array(pa.string(), 1, None, int32s(0, 3), b"\xed\xa0\x80")),
    corrupt("large text that is not UTF-8", raw_array(pa.large_string(), 1, None, int64s(0, 1), b"\xff")),
    corrupt("a character that is cut by its row", raw_array(pa.string(), 2, None, int32s(0, 1, 2), "é".encode())),
    spoiled("a list's offset behind the end", pa.array([[1], [2]]), int32s(0, 1, 2), int32s(0, 1, 100)),
    corrupt("a list's offsets that go back", lists(int32s(0, 3, 1))),
    spoiled("a large list's offset behind the end", pa.array([[1]], pa.large_list(pa.int64())), int64s(0, 1), int64s(0, 1 << 40)),
    corrupt("a list view behind the end", views([2], [5])),
    corrupt("a list view before the beginning", views([-1], [1])),
    corrupt("a list view of less than nothing", views([0], [-1])),
    corrupt("list views that share their values", views([0, 0], [3, 3])),
    corrupt("a view behind its buffer", view(60, offset=60)),
    corrupt("a view of a buffer that is not there", view(20, buffer=7)),
    corrupt("a view before its buffer", view(20, offset=-8)),
    corrupt("a view of less than nothing", view(-1)),
    corrupt("a view with another beginning", view(20, prefix=b"abcd")),
    corrupt("a short view with bytes behind it", raw_array(pa.string_view(), 1, None, struct.pack("<i12s", 1, b"x" * 12))),
    corrupt("a view of text that is not UTF-8", raw_array(pa.string_view(), 1, None, struct.pack("<i12s", 1, b"\xff"))),
    corrupt("a union's kind that is not there", unions([9], [0])),
    corrupt("a union's offset behind the end", unions([0], [100])),
    corrupt("a union's offset before the beginning", unions([0], [-1])),
    corrupt("a union's offsets that go back", unions([0, 0], [1, 0])),
    spoiled("runs that do not reach the end", runs(3, length=3), int32s(3), int32s(1)),
    corrupt("runs that go back", runs(2, 1, 3, length=3)),
    spoiled("a run of nothing", runs(1, 3, length=3), int32s(1, 3), int32s(0, 3)),
    spoiled("a run before the beginning", runs(1, 3, length=3), int32s(1, 3), int32s(-1, 3)),
    corrupt("an index behind the dictionary", dictionary(0, 100)),
    corrupt("an index before the dictionary", dictionary(-1)),
    corrupt("an index into nothing", dictionary(0, values=pa.array([], pa.string()))),
    corrupt("a dictionary of text that is not UTF-8", dictionary(0, values=raw_array(pa.string(), 1, None, int32s(0, 1), b"\xff"))),
    corrupt("one long value a hundred times", dictionary(*[0] * 100, values=pa.array([LONG]))),
    corrupt("one long run", pa.RunEndEncodedArray.from_arrays(pa.array([100], pa.int32()), pa.array([LONG]))),
    corrupt("one long view a hundred times", pa.Array.from_buffers(pa.string_view(), 100, [None, pa.py_buffer(VIEW.to_pybytes() * 100), TEXT])),
    corrupt("a decimal of too many digits", raw_array(pa.decimal128(1, 0), 1, None, int64s(10**15, 0))),
    corrupt("a date that is no whole day", raw_array(pa.date64(), 1, None, int64s(1))),
    corrupt("a time of two days", raw_array(pa.time32("s"), 1, None, int32s(172_800))),
    corrupt("a time before midnight", raw_array(pa.time64("ns"), 1, None, int64s(-1))),
    corrupt("a row too many", pa.nulls(MAX_MESSAGE_ROWS + 1), f"more than {MAX_MESSAGE_ROWS}"),
    corrupt("a list of a null too many", pa.ListArray.from_arrays(pa.array([0, MAX_MESSAGE_ROWS + 1], pa.int32()), pa.nulls(MAX_MESSAGE_ROWS + 1))),
    claims("2^40 nulls", pa.nulls(3)),
    claims("2^62 nulls", pa.nulls(3), rows=1 << 62),
    claims("2^40 values of no bytes", pa.array([b""] * 3, pa.binary(0))),
    claims("2^40 lists of no values", pa.array([[]] * 3, pa.list_(pa.null(), 0))),
    claims("2^40 empty structs", pa.array([{}] * 3, pa.struct([]))),
    claims("2^40 numbers in 24 bytes", NUMBERS, "a batch is corrupt"),
    claims("fewer rows than none", NUMBERS, "", rows=-3),
]  # fmt: skip

# Messages that Arrow itself refuses, or that a schema alone condemns.
MESSAGES = [
    Case("a message of zeros", [SCHEMA, Part(bytes(64))], DataError, UNREADABLE),
    Case("a message of ones", [SCHEMA, Part(b"\xff" * 64)], DataError, UNREADABLE),
    Case("a message of one byte", [SCHEMA, Part(b"\x10")], DataError, UNREADABLE),
    Case("a message that breaks off", [SCHEMA, Part(BATCH.header[:-40], BATCH.body)], DataError, UNREADABLE),
    Case("a body that is not there", [SCHEMA, Part(BATCH.header)], DataError, UNREADABLE),
    Case("a body that breaks off", [SCHEMA, Part(BATCH.header, BATCH.body[:8])], DataError, UNREADABLE),
    Case("a second schema", [SCHEMA, SCHEMA], DataError, UNREADABLE),
    Case("rows before their dictionary", [parts(dictionary(0))[0], parts(dictionary(0))[2]], DataError, UNREADABLE),
    Case("a buffer that claims 2^32 bytes", compressed(1 << 32), DataError, UNREADABLE),
    Case("a buffer that claims 2^62 bytes", compressed(1 << 62), DataError, UNREADABLE),
    Case("a buffer that claims less than nothing", compressed(-7), DataError, UNREADABLE),
    Case("a buffer that claims a byte too many", compressed(1001), DataError, UNREADABLE),
    Case("64 MiB of zeros and one more, packed", [parts(pa.array([b""]))[0], TOO_LARGE], DataError, f"more than {MAX_BODY_BYTES}"),
    Case("a column too many", parts(*[pa.array([1], pa.int8())] * (MAX_COLUMNS + 1)), DataError, "columns are too many"),
    Case("a field too many", parts(pa.array([{f"f{i}": 1 for i in range(MAX_FIELDS)}], pa.struct([(f"f{i}", pa.int8()) for i in range(MAX_FIELDS)]))), DataError, f"more than {MAX_FIELDS} fields"),
    Case("lists in each other, once too often", parts(nested(MAX_DEPTH + 1)), DataError, f"nest deeper than {MAX_DEPTH}"),
    Case("metadata of four megabytes", parts(NUMBERS, metadata={"k": "x" * MAX_METADATA_BYTES}), DataError, "a schema of"),
    Case("a dictionary in a list", parts(pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), dictionary(0))), DataError, "a dictionary or runs inside"),
    Case("a dictionary of lists", parts(dictionary(0, values=pa.array([[1]]))), DataError, "a dictionary or runs inside"),
    Case("a name that is not UTF-8", [Part(parts(NUMBERS, names=["abcdefgh"])[0].header.replace(b"abcdefgh", b"abc\xffefgh")), BATCH], DataError, "the name of a column is not UTF-8"),
]  # fmt: skip

# What Flight's reader refuses, and the reader of files passes over.
BY_FLIGHT = [
    Case("a dictionary that nothing needs", [SCHEMA, parts(dictionary(0))[1]], DataError, UNREADABLE),
]

# What is typed to a device: one column of bytes, here lines for its prompt. Nothing of a bad batch reaches it.
TYPED_SCHEMA, TYPED = parts(pa.array([b"1\r", b"\r"]), names=["data"])
NEEDS = "bytes to send need the column data: binary"


def typed(name: str, array: pa.Array, says: str = CORRUPT, column: str = "data") -> Case:
    return Case(name, parts(array, names=[column]), DataError, says)


EXCHANGED = [
    typed("bytes whose offsets go back", raw_array(pa.binary(), 2, None, int32s(0, 4, 2), b"abcd")),
    Case("bytes with an offset behind the end", [TYPED_SCHEMA, Part(TYPED.header, TYPED.body.replace(int32s(0, 2, 3), int32s(0, 2, 1_000_000)))], DataError, CORRUPT),
    Case("bytes with an offset before the beginning", [TYPED_SCHEMA, Part(TYPED.header, TYPED.body.replace(int32s(0, 2, 3), int32s(-5, 2, 3)))], DataError, CORRUPT),
    Case("2^40 rows to send in two", [TYPED_SCHEMA, TYPED.patched(2, 1 << 40)], DataError, CORRUPT),
    Case("64 MiB of zeros to send, packed", [TYPED_SCHEMA, TOO_LARGE], DataError, f"more than {MAX_BODY_BYTES}"),
    Case("good bytes, then bad ones", [TYPED_SCHEMA, TYPED, Part(TYPED.header, TYPED.body.replace(int32s(0, 2, 3), int32s(0, 9, 3)))], DataError, CORRUPT),
    Case("zeros in place of bytes to send", [TYPED_SCHEMA, Part(bytes(64))], DataError, UNREADABLE),
    Case("ones in place of bytes to send", [TYPED_SCHEMA, Part(b"\xff" * 64)], DataError, UNREADABLE),
    Case("bytes to send that break off", [TYPED_SCHEMA, Part(TYPED.header, TYPED.body[:8])], DataError, UNREADABLE),
    Case("a second schema within an exchange", [TYPED_SCHEMA, TYPED, TYPED_SCHEMA], DataError, UNREADABLE),
    typed("text to send", pa.array(["ab"]), NEEDS),
    typed("numbers to send", NUMBERS, NEEDS),
    typed("bytes under another name", pa.array([b"ab"]), NEEDS, "bytes"),
    typed("bytes in a dictionary", dictionary(0, values=pa.array([b"ab"])), NEEDS),
    Case("too many columns beside the bytes", parts(*[pa.array([1], pa.int8())] * (MAX_COLUMNS + 1)), DataError, "columns are too many"),
]  # fmt: skip

CASES = {"batches": CONTENT, "messages": MESSAGES + BY_FLIGHT, "exchanges": EXCHANGED}
