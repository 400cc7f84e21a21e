"""The message of a record: every changed bit is found, and the totals are right."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastflight.cluster.record import Record, Totals, decode_record, encode_record

RECORD = Record(7, 12, 3, 100, 104, 110, 5, 1_000, 2_000, Totals(90, 4_000, 6, 900, 50), b"the rows")


def test_it_comes_back_as_it_was() -> None:
    assert decode_record(encode_record(RECORD), 7) == RECORD
    assert decode_record(encode_record(RECORD), 8) is None


def test_any_flipped_bit_and_any_length_is_found() -> None:
    message = encode_record(RECORD)
    for at in range(len(message) * 8):
        changed = bytearray(message)
        changed[at // 8] ^= 1 << at % 8
        assert decode_record(bytes(changed), 7) is None
    for length in range(len(message)):
        assert decode_record(message[:length], 7) is None


def test_its_totals() -> None:
    assert RECORD.next == 115
    assert RECORD.totals == Totals(95, 4_008, 12, 2_000, 50)
    assert RECORD._replace(first_time=-200).totals.back == 1_100


@given(st.lists(st.lists(st.integers(-100, 100), min_size=1), min_size=1), st.integers(-110, 110))
def test_no_row_after_a_message_is_earlier_than_its_latest_time_less_the_step_back(
    batches: list[list[int]], until: int
) -> None:
    """What reading by time relies on to stop."""
    totals = Totals()
    found = []
    for times in batches:
        totals = Record(0, 0, 0, 0, 0, 0, len(times), min(times), max(times), totals, b"").totals
        found.append(totals)
    stop = next((i for i, each in enumerate(found) if each.latest - totals.back >= until), len(batches))
    assert all(time >= until for times in batches[stop + 1 :] for time in times)
