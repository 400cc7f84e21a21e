"""Messages with rows of many devices."""

from __future__ import annotations

import struct
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.cluster import shipment
from fastflight.cluster.shipment import Run, decode, encode
from fastflight.gap import Gap
from fastflight.log.bodies import joined
from tests.log.rows import batch_of

RUNS = [
    Run("a", 0, 1),
    Run("b", 7, 3, 5),
    Run("b", 20, 2, 0, Gap(10, 19, "line lost")),
    Run("a", 1_000_000, 4, 1_000_000),
]


def rows_of(runs: list[Run]) -> pa.RecordBatch:
    return joined([batch_of(run.device, run.first, run.length) for run in runs])


MESSAGE = encode("alpha.1", rows_of(RUNS), RUNS)


@pytest.mark.parametrize("times", [1, 100])
def test_what_was_sent_arrives(times: int) -> None:
    runs = [run._replace(length=times * run.length) for run in RUNS]
    decoded = decode(encode("alpha.1", rows_of(runs), runs))
    assert decoded is not None and decoded.server == "alpha.1" and decoded.runs == runs
    assert decoded.rows.equals(rows_of(runs))


def test_messages_of_earlier_versions_are_read() -> None:
    content, length = shipment._content(MESSAGE)
    header = struct.pack("<4sII", b"ffs1", crc32(content), length)
    earlier, decoded = decode(header + content.to_pybytes()), decode(MESSAGE)
    assert earlier is not None and decoded is not None
    assert earlier.rows.equals(decoded.rows) and earlier[0::2] == decoded[0::2]


def test_pauses_are_before_the_first_rows_after_them() -> None:
    assert [RUNS[3].part(start, 2)[:3] for start in (0, 2)] == [("a", 1_000_000, 2), ("a", 1_000_002, 2)]
    assert [RUNS[3].part(start, 2).paused_until for start in (0, 2)] == [1_000_000, 0]


def test_many_boards_cost_little_each() -> None:
    runs = [Run(f"board{number}", 5, 1) for number in range(250)]
    assert len(encode("alpha", joined([batch_of("board", 5, 1)] * 250), runs)) < 30 * len(runs)


@given(st.integers(0, 8 * len(MESSAGE) - 1))
def test_a_flipped_bit_is_found(bit: int) -> None:
    message = bytearray(MESSAGE)
    message[bit // 8] ^= 1 << bit % 8
    assert decode(bytes(message)) is None


def test_a_message_without_rows_is_damaged() -> None:
    assert decode(encode("alpha", batch_of("a", 0, 0), [Run("a", 0, 0)])) is None


@given(st.binary(max_size=60))
def test_what_is_no_message_is_none(content: bytes) -> None:
    assert decode(content) is None
    assert decode(MESSAGE[: len(content)]) is None
