"""Waits of tests: they end with what they wait for, and fail where it does not come."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.waiting import ByteReader, aread_until, auntil, read_until, until


def test_a_wait_returns_what_the_condition_gave() -> None:
    results = iter([0, 0, 3])
    assert until(lambda: next(results)) == 3
    results = iter([0, 0, 3])
    assert asyncio.run(auntil(lambda: next(results))) == 3


def test_a_wait_in_vain_fails_with_the_last_result() -> None:
    with pytest.raises(AssertionError, match=r"last result: \[\]"):
        until(list, seconds=0)
    with pytest.raises(AssertionError, match=r"last result: \[\]"):
        asyncio.run(auntil(list, seconds=0))


def test_a_mark_is_found_across_pieces_and_what_follows_is_returned_too() -> None:
    pieces = [b"a\r", b"\nb", b"c"]
    assert read_until(iter(pieces).__next__, b"\r\n") == b"a\r\nb"
    left = iter(pieces)

    async def read() -> bytes:
        return next(left)

    assert asyncio.run(aread_until(read, b"\r\n")) == b"a\r\nb"


def test_a_stream_that_ends_before_the_mark_fails_with_what_it_gave() -> None:
    pieces = iter([b"half", b""])
    with pytest.raises(EOFError, match="half"):
        read_until(pieces.__next__, b"whole")


def test_a_reader_keeps_what_follows_the_mark() -> None:
    stream = ByteReader(iter([b"one\ntwo\nth", b"ree", b""]).__next__)
    assert (stream.read_until(b"\n"), stream.read_exactly(3), stream.rest) == (b"one\n", b"two", b"\nth")
    assert stream.read_exactly(6) == b"\nthree"
    with pytest.raises(EOFError):
        stream.read_until(b"\n")
