"""Records: what is framed is found, and nothing else is."""

from __future__ import annotations

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from fastflight.log.content import LogState, decode_state, encode_state
from fastflight.log.record import (
    ALIGNMENT,
    Header,
    RecordKind,
    encode_record,
    find_record,
    parse_segment_header,
    record_size,
    scan_records,
    segment_header,
)

NUMBER = st.integers(0, 2**64 - 1)
TIME = st.integers(-(2**63), 2**63 - 1)


@given(
    body=st.binary(max_size=100), numbers=st.tuples(NUMBER, NUMBER, NUMBER), times=st.tuples(TIME, TIME), salt=NUMBER
)
def test_a_record_comes_back_from_where_it_was_put(
    body: bytes, numbers: tuple[int, int, int], times: tuple[int, int], salt: int
) -> None:
    stream, first, rows = numbers
    header = Header(RecordKind.BATCH, crc32(body), stream, first, rows, len(body), *times)
    data = b"".join(encode_record(header, body, salt, 64))
    assert len(data) == record_size(len(body)) and len(data) % ALIGNMENT == 0
    found = find_record(memoryview(data), 0, salt, 64)
    assert found == (64, len(data), header, True)
    assert find_record(memoryview(data), 0, salt, 72) is None
    assert find_record(memoryview(data), 0, salt ^ 1, 64) is None
    assert find_record(memoryview(data[:-1]), 0, salt, 64) is None


@given(bodies=st.lists(st.binary(max_size=40), max_size=8), junk=st.binary(max_size=64))
def test_a_scan_finds_all_records_and_stops_at_what_is_none(bodies: list[bytes], junk: bytes) -> None:
    data = b""
    for number, body in enumerate(bodies):
        data += b"".join(
            encode_record(Header(RecordKind.BATCH, crc32(body), 1, number, 1, len(body), 0, 0), body, 7, 64 + len(data))
        )
    assert [found.header.first for found in scan_records(data + junk, 7, 64)] == list(range(len(bodies)))


@given(junk=st.binary(max_size=500))
def test_junk_holds_no_record(junk: bytes) -> None:
    assert list(scan_records(junk + b"FFr1" + junk, 7, 64)) == []
    assert parse_segment_header(junk) is None


def test_a_segment_header_comes_back() -> None:
    data = segment_header(2**64 - 1, 12, 1_700_000_000_000_000)
    assert parse_segment_header(data) == (2**64 - 1, 12, 1_700_000_000_000_000)
    for at in range(36):  # behind that there is padding
        assert parse_segment_header(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None


@given(
    first=st.integers(0, 2**62), next_=st.integers(0, 2**62), name=st.text(max_size=80), schema=st.binary(max_size=90)
)
def test_a_state_comes_back(first: int, next_: int, name: str, schema: bytes) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:  # half of a surrogate pair is no name
        return
    state = LogState(first, next_, name, schema)
    assert decode_state(encode_state(state)) == state
