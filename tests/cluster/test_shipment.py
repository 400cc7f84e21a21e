"""Messages with rows of many devices."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.cluster.shipment import Run, Shipment, decode, encode
from fastflight.log.bodies import arrays_of
from tests.log.rows import PLAIN, SCHEMA, batch_of

RUNS = [
    Run("a", 0, 1, batch_of("a", 0, 1)),
    Run("b", 7, 3, batch_of("b", 7, 3), 5),
    Run("b", 20, 2, batch_of("b", 20, 2)),
    Run("a", 1_000_000, 4, batch_of("a", 1_000_000, 4), 1_000_000),
]
SHIPMENT = Shipment("alpha.1", SCHEMA, RUNS)


def rows_of(shipment: Shipment) -> list[list[dict[str, object]]]:
    """Return the rows of each run of a shipment, which may be Python values."""
    schema = shipment.schema
    return [pa.Table.from_arrays(arrays_of(schema, [run.rows]), schema=schema).to_pylist() for run in shipment.runs]


@pytest.mark.parametrize("times", [1, 100])
@pytest.mark.parametrize("schema", [SCHEMA, PLAIN])
def test_what_was_sent_arrives(schema: pa.Schema, times: int) -> None:
    runs = [
        Run(
            each.device, each.first, times * each.length, batch_of(each.device, each.first, times * each.length, schema)
        )
        for each in RUNS
    ]
    sent = Shipment("alpha.1", schema, runs)
    decoded = decode(encode(sent))
    assert decoded is not None and decoded.server == "alpha.1"
    assert decoded.schema.equals(schema, check_metadata=True) and rows_of(decoded) == rows_of(sent)
    assert [each._replace(rows=[]) for each in decoded.runs] == [each._replace(rows=[]) for each in runs]


def test_pauses_arrive_with_the_first_rows_after_them() -> None:
    decoded = decode(encode(SHIPMENT))
    assert decoded is not None and [each.paused_until for each in decoded.runs] == [0, 5, 0, 1_000_000]
    assert [decoded.runs[3].part(start, 2)[:3] for start in (0, 2)] == [("a", 1_000_000, 2), ("a", 1_000_002, 2)]
    assert [decoded.runs[3].part(start, 2).paused_until for start in (0, 2)] == [1_000_000, 0]


def test_many_boards_cost_little_each() -> None:
    runs = [Run(f"board{number}", 5, 1, batch_of("board", 5, 1)) for number in range(250)]
    assert len(encode(Shipment("alpha", SCHEMA, runs))) < 30 * len(runs)


@given(st.integers(0, 8 * len(encode(SHIPMENT)) - 1))
def test_a_flipped_bit_is_found(bit: int) -> None:
    message = bytearray(encode(SHIPMENT))
    message[bit // 8] ^= 1 << bit % 8
    assert decode(bytes(message)) is None


@given(st.binary(max_size=60))
def test_what_is_no_message_is_none(content: bytes) -> None:
    assert decode(content) is None
    assert decode(encode(SHIPMENT)[: len(content)]) is None
