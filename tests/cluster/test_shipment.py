"""Messages with rows of many devices."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.cluster.shipment import Run, by_device, decode, encode
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


def content(message: bytes) -> tuple[str, pa.RecordBatch, list[Run]]:
    """What arrives of a message."""
    shipment = decode(message)
    assert shipment is not None
    return shipment.server, *by_device([shipment])


MESSAGE = encode("alpha.1", rows_of(RUNS), RUNS)


@pytest.mark.parametrize("times", [1, 100])
def test_what_was_sent_arrives(times: int) -> None:
    runs = [run._replace(length=times * run.length) for run in RUNS]
    ordered = sorted(runs, key=lambda run: run.device)
    assert content(encode("alpha.1", rows_of(runs), runs)) == ("alpha.1", rows_of(ordered), ordered)


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
