"""What RFC 2217 clients ask of the line: done on a serial one, acknowledged elsewhere, put back when they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from fastflight.bridge.channel import Driven
from fastflight.bridge.control import READY, LineControl
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.protocol.rfc2217 import (
    Flow,
    InboundFlow,
    Purge,
    Setting,
)
from fastflight.transport import LineSettings, ModemLines
from fastflight.transport.url import parse_url
from tests.bridge.memory_line import MemoryControl, MemoryLine

CHANGES: list[Setting] = [
    Setting("baud", 921600),
    Setting("data_bits", 7),
    Setting("parity", "E"),
    Setting("stop_bits", 2.0),
]
QUESTIONS: list[Setting] = [
    Setting("baud", None),
    Setting("dtr", None),
    Setting("rts", None),
    Setting("sending_break", None),
    Setting("flow", None),
]


def apply(line: MemoryLine, *requests: Setting | Purge) -> list[Setting | Purge]:
    async def run() -> list[Setting | Purge]:
        control = LineControl(line)
        return [await control.apply(request) for request in requests]

    return asyncio.run(run())


@pytest.mark.parametrize("control", [None, MemoryControl()])
def test_settings_are_in_force_wherever_they_are_asked_for(control: MemoryControl | None) -> None:
    assert apply(MemoryLine(control=control), *CHANGES, Setting("baud", None)) == [*CHANGES, Setting("baud", 921600)]
    if control is not None:
        assert control.settings == LineSettings(921600, 7, "E", 2.0)
        assert len(control.told) == len(CHANGES)


def test_questions_change_nothing() -> None:
    control = MemoryControl()
    answers = apply(MemoryLine(control=control), *QUESTIONS)
    assert answers == [
        Setting("baud", 115200),
        Setting("dtr", True),
        Setting("rts", True),
        Setting("sending_break", False),
        Setting("flow", Flow.NONE),
    ]
    assert control.told == []


def test_control_lines_break_and_purge_reach_the_port_once() -> None:
    control = MemoryControl()
    requests = [
        Setting("dtr", True),
        Setting("dtr", False),
        Setting("rts", False),
        Setting("rts", False),
        Setting("sending_break", True),
        Setting("sending_break", False),
    ]
    assert apply(MemoryLine(control=control), *requests, Purge(True, False)) == [*requests, Purge(True, False)]
    # Asserted lines are not asserted anew: that is what opening by pyserial asks for, and no board is to notice.
    assert control.told == [
        {"dtr": False},
        {"rts": False},
        {"break": True},
        {"break": False},
        ("purge", True, False),
    ]


def test_control_lines_stay_as_one_client_left_them_and_the_next_one_can_assert_them() -> None:
    control = MemoryControl()
    line = MemoryLine(control=control)
    assert apply(line, Setting("dtr", False), Setting("rts", False)) == [Setting("dtr", False), Setting("rts", False)]
    # Boards with USB of their own are silent until DTR is asserted.
    assert apply(line, Setting("dtr", None), Setting("dtr", True)) == [Setting("dtr", False), Setting("dtr", True)]
    assert control.told == [{"dtr": False}, {"rts": False}, {"dtr": True}]


@pytest.mark.parametrize("scheme", ["serial:///dev/ttyUSB0", "rfc2217://127.0.0.1:1"])
def test_control_lines_that_the_url_leaves_low_can_be_asserted(scheme: str) -> None:
    control = MemoryControl()
    line = MemoryLine(control=control)
    line.driven = Driven.at_first(parse_url(f"{scheme}?dtr=0&rts=0"))
    # As esptool resets a board, which a line that stays low would not do.
    requests = [
        Setting("dtr", None),
        Setting("dtr", False),
        Setting("rts", True),
        Setting("dtr", True),
        Setting("rts", False),
    ]
    assert apply(line, *requests) == [Setting("dtr", False), *requests[1:]]
    assert control.told == [{"rts": True}, {"dtr": True}, {"rts": False}]


def test_control_lines_that_a_remote_server_has_kept_are_taken_to_be_asserted() -> None:
    """It need not answer for them, as ser2net does not in front of a terminal, and pyserial's client would give up."""
    control = MemoryControl()
    line = MemoryLine(control=control)
    line.driven = Driven.at_first(parse_url("rfc2217://127.0.0.1:1"))
    assert apply(line, Setting("dtr", None), Setting("dtr", True), Setting("rts", True)) == [
        Setting("dtr", True),
        Setting("dtr", True),
        Setting("rts", True),
    ]
    assert control.told == []


def test_flow_control_is_never_said_to_be_in_force() -> None:
    answers = apply(MemoryLine(), Setting("flow", Flow.HARDWARE), Setting("inbound_flow", InboundFlow.XON_XOFF))
    assert answers == [Setting("flow", Flow.NONE), Setting("inbound_flow", InboundFlow.NONE)]


class Refusing(MemoryControl):
    """A port that can nothing."""

    def __init__(self, error: TransportError) -> None:
        super().__init__()
        self.error = error

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        raise self.error

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        raise self.error

    async def amodem(self, timeout: float) -> ModemLines:
        raise self.error


def test_a_speed_that_a_port_cannot_do_is_not_in_force_and_lines_that_it_lacks_are_played() -> None:
    line = MemoryLine(control=Refusing(TransportError("cannot")))
    assert apply(line, Setting("baud", 7), Setting("dtr", False), Setting("dtr", None)) == [
        Setting("baud", 115200),
        Setting("dtr", False),
        Setting("dtr", False),
    ]
    assert asyncio.run(LineControl(line).modem()) == READY
    asyncio.run(LineControl(line).send_break())


def test_a_port_that_is_gone_is_no_answer() -> None:
    line = MemoryLine(control=Refusing(TransportClosed("unplugged")))
    with pytest.raises(TransportClosed):
        apply(line, Setting("baud", 7))
    with pytest.raises(TransportClosed):
        asyncio.run(LineControl(line).modem())


def test_modem_lines_are_the_ports_own_or_those_of_a_device_that_is_ready() -> None:
    assert asyncio.run(LineControl(MemoryLine(control=MemoryControl())).modem()) == ModemLines(cts=True)
    assert asyncio.run(LineControl(MemoryLine()).modem()) == READY


def test_a_remote_port_that_does_not_tell_its_modem_lines_holds_nobody_up() -> None:
    class Untold(MemoryControl):
        async def amodem(self, timeout: float) -> ModemLines:
            self.told.append(timeout)
            raise TransportTimeout("the server does not tell the modem lines")

    control = Untold()
    assert asyncio.run(LineControl(MemoryLine(control=control)).modem()) == READY
    assert max(control.told) <= 1  # pyserial's client gives up after three, in which it asks more than this


def test_settings_are_put_back_and_a_break_ends_when_the_client_leaves() -> None:
    control = MemoryControl()

    async def flash(line: MemoryLine) -> None:
        await control.aconfigure(replace(control.settings, baud=921600), 1)

    held(MemoryLine(control=control), flash)
    assert control.settings == LineSettings()
    assert control.told[-2:] == [{"break": False}, LineSettings()]


def test_settings_are_put_back_where_a_break_cannot_be_ended() -> None:
    class WithoutBreak(MemoryControl):
        async def aassign(
            self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
        ) -> None:
            raise TransportTimeout("the server did not answer SetBreak")

    control = WithoutBreak()

    async def flash(line: MemoryLine) -> None:
        await control.aconfigure(replace(control.settings, baud=921600), 1)

    held(MemoryLine(control=control), flash)
    assert control.settings == LineSettings()


def held(line: MemoryLine, use: Callable[[MemoryLine], Awaitable[None]]) -> None:
    """Use the line for as long as a client holds it."""

    async def run() -> None:
        async with line.hold("a tool", None):
            await use(line)

    asyncio.run(run())
