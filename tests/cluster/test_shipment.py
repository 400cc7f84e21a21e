"""Messages with rows of many devices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastflight.cluster.shipment import Run, decode, encode
from tests.log.rows import PLAIN, SCHEMA, batch_of

RUNS = [
    Run("a", 0, batch_of("a", 0, 1)),
    Run("b", 7, batch_of("b", 7, 3), 5),
    Run("b", 20, batch_of("b", 20, 2)),
    Run("a", 1_000_000, batch_of("a", 1_000_000, 4), 1_000_000),
]


def test_what_was_sent_arrives() -> None:
    decoded = decode(encode("alpha.1", RUNS))
    assert decoded is not None
    server, runs = decoded
    assert server == "alpha.1" and [each._replace(rows=None) for each in runs] == [
        each._replace(rows=None) for each in RUNS
    ]
    for sent, run in zip(RUNS, runs, strict=True):
        assert run.rows.schema.equals(SCHEMA, check_metadata=True)
        assert run.rows.to_pylist() == sent.rows.to_pylist() and run.next == sent.next
    plain = decode(encode("a", [Run("demo", 3, batch_of("demo", 3, 2, PLAIN))]))
    assert plain is not None and plain[1][0].rows.equals(batch_of("demo", 3, 2, PLAIN))


def test_many_boards_cost_little_each() -> None:
    runs = [Run(f"board{number}", 5, batch_of("board", 5, 1)) for number in range(250)]
    assert len(encode("alpha", runs)) < 30 * len(runs)


@given(st.integers(0, 8 * len(encode("a", RUNS)) - 1))
def test_a_flipped_bit_is_found(bit: int) -> None:
    message = bytearray(encode("a", RUNS))
    message[bit // 8] ^= 1 << bit % 8
    assert decode(bytes(message)) is None


@given(st.binary(max_size=60))
def test_what_is_no_message_is_none(content: bytes) -> None:
    assert decode(content) is None
    assert decode(encode("a", RUNS)[: len(content)]) is None
