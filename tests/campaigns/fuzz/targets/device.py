"""Everything that is asked of a board, with any board: each conversation ends with a result or a documented error."""

from __future__ import annotations

from collections.abc import Callable

from fastflight.device.board import OpenBoard
from fastflight.device.capabilities import Capabilities, parse
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.types import PartialWrite, Resumption, Transfer
from fastflight.errors import BusyError, DeviceError, ProtocolError, RequestError, TransportError
from fastflight.protocol.conversation import Conversation
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.random_peer import SAYS, board, converse
from tests.campaigns.fuzz.target import Target

FULL = parse(SAYS["features"])
BOARDS = (
    FULL,
    Capabilities(FULL.features - {"hashlib.sha256", "stdin.poll"}, "esp8266", free_memory=25_000),
    Capabilities(frozenset({"os.stat", "os.ilistdir", "binascii.a2b_base64"}), free_memory=40_000),
    Capabilities(frozenset(), "microbit", free_memory=5_000),
)
TRANSFERS = (Transfer(), Transfer("base64"), Transfer("literal"), Transfer("binary", True))
RESUMPTION = Resumption(PartialWrite(5, "crc32", "00000000"), "0" * 64)


def tree(asked: OpenBoard) -> Conversation[object]:
    """A write of two files."""
    with asked.tree("/data", Transfer()) as files:
        yield from files.add("a")
        yield from files.add("b/c")
        return (yield from files.finish())


ASKED: tuple[Callable[[OpenBoard, Material], Conversation[object]], ...] = (
    lambda board, material: board.info(),
    lambda board, material: board.stat("/a"),
    lambda board, material: board.list("/", recursive=False),
    lambda board, material: board.list("/lib", recursive=True),
    lambda board, material: board.read("/a", offset=0, limit=None, transfer=material.pick(TRANSFERS)),
    lambda board, material: board.read("/a", offset=5, limit=50, transfer=material.pick(TRANSFERS)),
    lambda board, material: board.write("/a", resume=None, keep=False, transfer=material.pick(TRANSFERS)),
    lambda board, material: board.write("/a", resume=RESUMPTION, keep=True, transfer=material.pick(TRANSFERS)),
    lambda board, material: tree(board),
    lambda board, material: board.part("/a"),
    lambda board, material: board.hashes("/"),
    lambda board, material: board.hash("/a", limit=100),
    lambda board, material: board.rename("/a", "/b"),
    lambda board, material: board.remove("/a"),
    lambda board, material: board.follow("print(1)", 5.0),
)


def run(data: bytes) -> None:
    material = Material(data)
    asked = OpenBoard(material.pick((True, False, None)))
    asked._link = BoardLink(asked.repl, material.pick(BOARDS))
    if material.byte() & 1:
        asked.link.pace = 11_520.0
    if material.byte() & 1:
        asked._link = None
    while material:
        try:
            if asked._link is None:
                converse(asked.wake(interrupt=bool(material.byte() & 1)), material, board)
                converse(asked.learn(), material, board)
            make = material.pick(ASKED)
            converse(asked.streamed(make(asked, material)), material, board)
        except (TransportError, ProtocolError, DeviceError, BusyError, RequestError) as error:
            assert len(str(error)) < 10_000


READS = b"\x00\x00\x00\x00\x04\x00\x05\xc0\x02\x00\x04\x01\x00\x03abc\x01\x00\x00"
TARGET = Target(
    run,
    seeds=(
        READS,
        b"\x00\x00\x00\x00\x00\x00\x00\x06\x01\x00",
        b"\x00\x00\x00\x00\x02\x00\x05\x00\x00\x00\x03\x00\x00",
        b"\x00\x00\x00\x00\x06\x00\x03\x05hello\x01" + b"\x00\x05\x60R\xcf\x60A" + bytes(20),
        b"\x01\x02\x01\x00\x06\x01\x03abc\x01\x00\x00\x00\x00\x00" + bytes(30),
        b"\x01\x03\x00\x00\x02\x00\x00\x03\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x00\x0a\x00\x05\x00\x06\x00\x00\x00",
        b"\x00\x00\x01\x00\x08\x00\x05" + bytes(60),
    ),
    max_bytes=200,
    seconds=10,
)
