"""Bad bytes of the wire protocols: `wires` has them. Whole, and a byte at a time where that is quick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastflight.protocol.rfc2217 import decode
from fastflight.protocol.telnet import Option, Telnet, TelnetData

from . import wires
from .case import Case, check, each

SMALL = 8192


def either_way(case: Case, run: Callable[[list[bytes]], Any]) -> None:
    check(case, lambda data: run([data]))
    if len(case.given) <= SMALL:
        check(case, lambda data: run([data[at : at + 1] for at in range(len(data))]))


@each(wires.TELNET)
def test_telnet(case: Case) -> None:
    def run(pieces: list[bytes]) -> tuple[bytes, bytes]:
        telnet = Telnet(frozenset({Option.BINARY}), frozenset({Option.BINARY}))
        events = [event for piece in pieces for event in telnet.feed(piece)]
        return b"".join(event.data for event in events if isinstance(event, TelnetData)), telnet.take()

    either_way(case, run)


@each(wires.RFC2217)
def test_rfc2217(case: Case) -> None:
    check(case, lambda given: decode(*given))
