"""What the two kinds of port speak with one client, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from fastflight.bridge import dialect as dialects
from fastflight.bridge.dialect import Raw, Rfc2217
from fastflight.errors import TransportError
from fastflight.protocol.rfc2217 import (
    CLIENT,
    SERVER,
    LineMask,
    LineState,
    Message,
    NotifyLine,
    NotifyModem,
    Resume,
    Setting,
    Suspend,
    decode,
    encode,
)
from fastflight.protocol.telnet import Option, Subnegotiation, Telnet
from fastflight.transport import ModemLines
from tests.bridge.memory_line import MemoryControl, MemoryLine

EVERY_BYTE = bytes(range(256)) * 2


class DialectPeer:
    """A client's telnet side, and what it was told."""

    def __init__(self) -> None:
        options = frozenset({Option.BINARY, Option.ECHO, Option.SUPPRESS_GO_AHEAD, Option.COM_PORT})
        self.telnet = Telnet(options, options)
        self.told: list[Message | None] = []
        self.news = asyncio.Event()

    def hear(self, data: bytes) -> None:
        for event in self.telnet.feed(data):
            if isinstance(event, Subnegotiation):
                self.told.append(decode(event.payload, SERVER))
                self.news.set()

    def say(self, *messages: Message) -> bytes:
        for message in messages:
            self.telnet.subnegotiate(Option.COM_PORT, encode(message, CLIENT))
        return self.telnet.take()


async def agreed(line: MemoryLine) -> tuple[Rfc2217, DialectPeer]:
    """A client that agreed on RFC 2217, on the line."""
    dialect, peer = Rfc2217(), DialectPeer()
    peer.hear(dialect.greeting())
    await dialect.carry(peer.telnet.take(), line, peer.hear)
    peer.told.clear()
    return dialect, peer


async def test_raw_bytes_stay_as_they_are() -> None:
    line, dialect = MemoryLine(), Raw()
    assert dialect.greeting() == b""
    assert dialect.encode(EVERY_BYTE) == EVERY_BYTE
    await dialect.carry(EVERY_BYTE, line, lambda data: None)
    assert line.written == EVERY_BYTE


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
async def test_data_and_requests_keep_their_order(size: int) -> None:
    control = MemoryControl()
    line = MemoryLine(control=control)
    written: list[int] = []
    control.aconfigure = _noting(control, line, written)  # type: ignore[method-assign]
    dialect, peer = await agreed(line)
    wire = peer.telnet.encode(EVERY_BYTE) + peer.say(Setting("baud", 9600)) + peer.telnet.encode(EVERY_BYTE)
    for start in range(0, len(wire), size):
        await dialect.carry(wire[start : start + size], line, peer.hear)
    assert peer.told == [Setting("baud", 9600)]
    assert line.written == EVERY_BYTE * 2
    assert written == [len(EVERY_BYTE)]


def _noting(control: MemoryControl, line: MemoryLine, written: list[int]) -> Callable[..., Awaitable[None]]:
    configure = control.aconfigure

    async def note(*arguments: object) -> None:
        written.append(len(line.written))
        await configure(*arguments)  # type: ignore[arg-type]

    return note


async def test_a_client_that_asks_for_states_is_told() -> None:
    line = MemoryLine()
    dialect, peer = await agreed(line)
    await dialect.carry(peer.say(NotifyModem(None), NotifyLine(None)), line, peer.hear)
    modem, state = peer.told
    assert isinstance(modem, NotifyModem)
    assert state == NotifyLine(LineState.HOLDING_EMPTY | LineState.SHIFT_EMPTY)


async def test_masks_are_acknowledged() -> None:
    line = MemoryLine()
    dialect, peer = await agreed(line)
    await dialect.carry(peer.say(LineMask(LineState(0xFF))), line, peer.hear)
    assert peer.told == [LineMask(LineState(0xFF))]


async def test_a_client_may_suspend_what_comes_to_it() -> None:
    line = MemoryLine()
    dialect, peer = await agreed(line)
    for message, suspended in ((Suspend(), True), (Resume(), False)):
        await dialect.carry(peer.say(message), line, peer.hear)
        assert dialect.suspended is suspended


async def test_telnets_own_break_reaches_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.bridge.control.BREAK_SECONDS", 0.0)
    control = MemoryControl()
    line = MemoryLine(control=control)
    dialect, peer = await agreed(line)
    await dialect.carry(b"\xff\xf3", line, peer.hear)
    assert control.told == [{"break": True}, {"break": False}]


async def test_a_port_without_modem_lines_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialects, "MODEM_SECONDS", 0.0)
    asked = []

    class Without(MemoryControl):
        async def amodem(self, timeout: float) -> ModemLines:
            asked.append(timeout)
            raise TransportError("the port has no modem lines")

    line = MemoryLine(control=Without())
    dialect, peer = await agreed(line)
    watching = asyncio.create_task(dialect.watch(line, peer.hear))
    for _ in range(100):
        await asyncio.sleep(0)
    watching.cancel()
    assert len(asked) == 1


async def test_a_client_is_told_when_a_modem_line_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialects, "MODEM_SECONDS", 0.0)
    control = MemoryControl()
    line = MemoryLine(control=control)
    dialect, peer = await agreed(line)
    watching = asyncio.create_task(dialect.watch(line, peer.hear))
    control.lines = replace(control.lines, cd=True)
    peer.news.clear()
    await peer.news.wait()
    watching.cancel()
    assert len(peer.told) == 1
