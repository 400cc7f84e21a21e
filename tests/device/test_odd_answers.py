"""What a board prints where a number, a name or a digest should be: understood, or said to be wrong."""

from __future__ import annotations

from binascii import crc32
from collections.abc import Iterable
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflight.device import listing
from fastflight.device.board import OpenBoard
from fastflight.device.capabilities import Capabilities
from fastflight.device.listing import FileEntry
from fastflight.device.transfer import digest
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.types import FileDigest
from fastflight.errors import ProtocolError
from fastflight.protocol import Conversation, RawRepl
from fastflight.protocol.conversation import Receive

T = TypeVar("T")

KNOWN = Capabilities(frozenset({"os.stat", "os.ilistdir", "os.statvfs", "binascii.crc32", "deflate.DeflateIO"}))
DIGITS = "9" * 400


def answered(conversation: Conversation[T], answers: Iterable[bytes]) -> T:
    """The result, when a board with raw paste takes all code and says `answers`."""
    said = iter(piece for answer in answers for piece in (b"R\x01\xff\xff", b"\x04" + answer + b"\x04\x04>"))
    try:
        step = next(conversation)
        while True:
            step = conversation.send(next(said) if isinstance(step, Receive) else b"")
    except StopIteration as end:
        result: T = end.value
        return result


def board() -> OpenBoard:
    asked = OpenBoard(paste=True)
    asked._link = BoardLink(asked.repl, KNOWN)
    return asked


@pytest.mark.parametrize(
    "line",
    [
        "('a',32768,1e999,0)",
        f"('a',32768,{DIGITS},0)",
        f"('a',32768,5,{DIGITS})",
        "('a',32768,5,'then')",
        "('a',32768.0,5,0)",
        "('\\ud800',32768,5,0)",
        "(b'a',32768,5,0)",
        "('a',32768,5)",
    ],
)
def test_entries_that_cannot_be(line: str) -> None:
    with pytest.raises(ProtocolError, match="the board listed"):
        answered(listing.listing(RawRepl(True), KNOWN, "/", False), [line.encode()])


# Names as they are printed, most without escapes.
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1).filter(
    lambda n: n not in (".", "..")
)


@given(NAMES, st.integers(0, 2**62), st.none() | st.integers(1, 2**31))
@example("it's", 5, 1).via("quoted otherwise")
@example("a\\", 5, 1).via("escaped")
def test_an_entry_is_read_as_it_is_printed(name: str, size: int, time: int | None) -> None:
    line = repr((name, 0x8000, size, time)).encode()
    found = answered(listing.listing(RawRepl(True), KNOWN, "/", False), [line])
    assert found == [FileEntry(f"/{name}", "file", size, time)]


@pytest.mark.parametrize("time", ["None", "0", "-5", str(2**62), "253402300800"])
def test_times_of_no_calendar_are_none(time: str) -> None:
    found = answered(listing.listing(RawRepl(True), KNOWN, "/", False), [f"('a',32768,-1,{time})".encode()])
    assert found == [FileEntry("/a", "file", 0, None)]


@pytest.mark.parametrize("value", ["1e999,b''", f"{DIGITS},b''", "5,1000000000000", "5,'00'", "5,None"])
def test_digests_that_cannot_be_take_no_memory(value: str) -> None:
    with pytest.raises(ProtocolError, match="the board listed"):
        answered(digest.hashes(board().link, "/"), [f"R('/a',{value})".encode()])


def test_a_digest() -> None:
    check = crc32(b"x").to_bytes(4, "big")
    assert answered(digest.hashes(board().link, "/"), [f"R.('/a',1,{check!r})".encode()]) == [
        FileDigest("/a", 1, "crc32", check.hex())
    ]


@pytest.mark.parametrize("said", [b"(1e999,1)", b"(1,%b)" % DIGITS.encode(), b"(1,)", b"('a','b')"])
def test_storage_that_cannot_be(said: bytes) -> None:
    with pytest.raises(ProtocolError, match="of its storage"):
        answered(board().info(), [said])
