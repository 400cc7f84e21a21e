"""What a line and a board can take: the method of a transfer and deflate, chosen or requested."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastflight.device import Inventory, Transfer
from fastflight.device.capabilities import Capabilities
from fastflight.device.transfer.link import BoardLink
from fastflight.errors import RequestError
from fastflight.protocol import RawRepl

BINARY = frozenset({"stdin.buffer", "stdout.buffer", "binascii.crc32", "os.stat", "struct.pack_into"})
BASE64 = frozenset({"binascii.a2b_base64"})


def link(features: frozenset[str], *, paste: bool = True, platform: str = "esp32", free: int = 0) -> BoardLink:
    return BoardLink(RawRepl(paste), Capabilities(features, platform=platform, free_memory=free))


def test_the_ladder() -> None:
    for board, way_up, way_down in (
        (link(BINARY | BASE64), "binary", "binary"),
        (link(BINARY | BASE64, paste=False), "base64", "binary"),
        (link(BINARY | BASE64, platform="webassembly"), "base64", "binary"),
        (link(BINARY, free=9_000), "literal", "binary"),
        (link(BASE64), "base64", "base64"),
        (link(frozenset()), "literal", "literal"),
    ):
        assert (board.upload_method(Transfer(), "/x"), board.download_method(Transfer(), "/x")) == (way_up, way_down)


def test_what_is_asked_for() -> None:
    board = link(BINARY | BASE64)
    for name in ("binary", "base64", "literal"):
        assert board.upload_method(Transfer(name), "/x") == board.download_method(Transfer(name), "/x") == name


def test_a_cramped_board_is_asked_no_more_unless_by_name() -> None:
    board = link(BINARY | BASE64)
    board.lacks_upload_memory = True
    assert board.upload_method(Transfer(), "/x") == "base64"
    assert board.upload_method(Transfer("binary"), "/x") == "binary"


@pytest.mark.parametrize("name", ["binary", "base64"])
def test_what_a_board_cannot_do_is_refused(name: str) -> None:
    poor = link(frozenset())
    with pytest.raises(RequestError, match=f"/x: the board does not take files as {name}"):
        poor.upload_method(Transfer(name), "/x")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=f"/x: the board does not send files as {name}"):
        poor.download_method(Transfer(name), "/x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("requested", "bytes_per_second", "deflates"),
    [
        (None, 11_520.0, True),
        (None, 92_160.0, True),
        (None, 100_000.0, False),
        (None, 300_000.0, False),
        (None, None, True),
        (True, None, True),
        (True, 300_000.0, True),
        (False, 11_520.0, False),
    ],
)
def test_blocks_are_deflated_on_request_or_on_lines_not_known_to_be_fast(
    requested: bool | None, bytes_per_second: float | None, deflates: bool
) -> None:
    board = link(frozenset({"deflate.DeflateIO"}))
    board.pace = bytes_per_second
    assert board.deflates(requested) is deflates


def test_firmware_that_cannot_inflate_is_not_asked_to() -> None:
    assert not link(frozenset()).deflates(True)


@pytest.mark.parametrize(("line", "deflated"), [("baud=921600", True), ("baud=1000000", False), ("baud=0", True)])
def test_text_takes_fewer_bytes_on_a_slow_line(board: Callable[[str], Inventory], line: str, deflated: bool) -> None:
    content = b"".join(b"%d,%d\n" % (i, i * i) for i in range(2000))
    device = board(line).device("demo")
    with device.lease("test") as session:
        assert session.write("/x.csv", [content]).bytes == len(content)
        assert (device.tap.byte_counts["tx"] < len(content)) is deflated
        assert b"".join(session.read("/x.csv")) == content
