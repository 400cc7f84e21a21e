"""Which form a transfer takes: the ladder, and the ways to override it."""

from __future__ import annotations

import pytest

from fastflight.device import Transfer
from fastflight.device.capabilities import Capabilities
from fastflight.device.link import Link
from fastflight.device.method import down, up
from fastflight.errors import RequestError
from fastflight.protocol import RawRepl

BINARY = frozenset({"stdin.buffer", "stdout.buffer", "binascii.crc32", "os.stat", "struct.pack_into"})
BASE64 = frozenset({"binascii.a2b_base64"})


def link(features: frozenset[str], *, paste: bool = True, platform: str = "esp32", free: int = 0) -> Link:
    return Link(RawRepl(paste), Capabilities(features, platform=platform, free_memory=free))


def test_the_ladder() -> None:
    for board, way_up, way_down in (
        (link(BINARY | BASE64), "binary", "binary"),
        (link(BINARY | BASE64, paste=False), "base64", "binary"),
        (link(BINARY | BASE64, platform="webassembly"), "base64", "binary"),
        (link(BINARY, free=9_000), "literal", "binary"),
        (link(BASE64), "base64", "base64"),
        (link(frozenset()), "literal", "literal"),
    ):
        assert (up(board, Transfer(), "/x"), down(board, Transfer(), "/x")) == (way_up, way_down)


def test_what_is_asked_for() -> None:
    board = link(BINARY | BASE64)
    for name in ("binary", "base64", "literal"):
        assert up(board, Transfer(name), "/x") == down(board, Transfer(name), "/x") == name


def test_a_cramped_board_is_asked_no_more_unless_by_name() -> None:
    board = link(BINARY | BASE64)
    board.cramped = True
    assert up(board, Transfer(), "/x") == "base64"
    assert up(board, Transfer("binary"), "/x") == "binary"


@pytest.mark.parametrize("name", ["binary", "base64"])
def test_what_a_board_cannot_do_is_refused(name: str) -> None:
    poor = link(frozenset())
    with pytest.raises(RequestError, match=f"/x: the board does not take files as {name}"):
        up(poor, Transfer(name), "/x")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=f"/x: the board does not send files as {name}"):
        down(poor, Transfer(name), "/x")  # type: ignore[arg-type]
