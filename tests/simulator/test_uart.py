"""The UART, without a line: the test is both ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fastflight.simulator.faults import Faults
from fastflight.simulator.uart import BoardReset, LineClosed, Uart

# For waits that end as soon as something happens; reached only when it does not.
SOON = 60.0


def test_a_small_ring_loses_what_does_not_fit() -> None:
    uart = Uart(lambda data: None, rate=1e6, ring=8)
    uart.arrive(b"0123456789")
    assert uart.received == 10
    assert uart.read(8) == b"01234567"
    assert len(uart.ring) == 0


@pytest.mark.parametrize(
    ("before", "passes"),
    [(b"", True), (b"1234567", True), (b"12345678", False), (b"1234567\r", False), (b"x" * 20, False)],
)
def test_a_ring_that_holds_passes_ctrl_c_only_while_it_has_a_free_place(before: bytes, passes: bool) -> None:
    def look_for_the_peer() -> None:
        raise LineClosed

    uart = Uart(lambda data: None, ring=8, holds=True, peer_check=look_for_the_peer)
    uart.arm()
    if passes:
        uart.arrive(before + b"\x03")
        with pytest.raises(KeyboardInterrupt):
            uart.checkpoint()
    else:
        with pytest.raises(LineClosed):  # it waits for a place
            uart.arrive(before + b"\x03")
        uart.checkpoint()
    assert len(uart.ring) == min(len(before), 8)


@pytest.mark.parametrize("options", [{}, {"rate": 1e6, "ring": 8, "holds": True}], ids=["flow control", "holds"])
def test_a_line_that_waits_for_room_loses_nothing(options: dict[str, Any]) -> None:
    uart = Uart(lambda data: None, **options)
    uart.capacity = 8
    sent = bytes(range(256)) * 10
    sender = threading.Thread(target=uart.arrive, args=(sent,))
    sender.start()
    assert uart.read(len(sent)) == sent
    sender.join()


def test_ctrl_c_interrupts_only_while_armed() -> None:
    uart = Uart(lambda data: None)
    uart.arrive(b"a\x03b")
    assert uart.read(3) == b"a\x03b"
    uart.arm()
    uart.arrive(b"c\x03d")
    with pytest.raises(KeyboardInterrupt):
        uart.read(1)
    assert uart.read(2) == b"cd"


def test_an_interrupt_wakes_a_sleeper() -> None:
    uart = Uart(lambda data: None)
    uart.arm()
    sender = threading.Thread(target=uart.arrive, args=(b"\x03",))
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        uart.sleep_until(float("inf"))
    sender.join()


def test_a_line_goes_on_as_soon_as_an_interrupt_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.simulator.uart.POKE_INTERVAL", 10 * SOON)
    poked = threading.Event()
    uart = Uart(lambda data: None, poke=poked.set)
    uart.arm()
    sender = threading.Thread(target=uart.arrive, args=(b"\x03",), daemon=True)
    sender.start()
    assert poked.wait(SOON)
    with pytest.raises(KeyboardInterrupt):
        uart.checkpoint()
    sender.join(SOON)
    assert not sender.is_alive()


def test_an_interrupt_that_comes_too_late_is_forgotten() -> None:
    uart = Uart(lambda data: None)
    uart.arm()
    uart.arrive(b"\x03")
    uart.disarm()
    uart.checkpoint()


def test_a_reset_is_raised_until_the_board_restarts() -> None:
    uart = Uart(lambda data: None)
    uart.arrive(b"left over")
    uart.reset()
    for _ in range(2):
        with pytest.raises(BoardReset):
            uart.write(b"x")
    uart.restart()
    uart.write(b"x")
    assert len(uart.ring) == 0


def test_reading_a_line_that_was_hung_up_ends() -> None:
    uart = Uart(lambda data: None)
    uart.arrive(b"ab")
    uart.hang_up()
    assert uart.read(2) == b"ab"
    with pytest.raises(LineClosed):
        uart.read(1)


def test_reset_after_sending() -> None:
    sent = bytearray()
    uart = Uart(sent.extend, faults=Faults.parse(["reset-after-tx=3"]))
    with pytest.raises(BoardReset):
        uart.write(b"abcdef")
    uart.restart()
    uart.write(b"gh")
    assert sent == b"abcgh"


def test_reset_after_receiving_loses_the_rest_of_the_burst() -> None:
    uart = Uart(lambda data: None, faults=Faults.parse(["reset-after-rx=3"]))
    uart.arrive(b"abcdef")
    with pytest.raises(BoardReset):
        uart.read(1)
    uart.restart()
    uart.arrive(b"gh")
    assert uart.read(2) == b"gh"


def test_a_stalled_board_takes_nothing_more() -> None:
    uart = Uart(lambda data: None, faults=Faults.parse(["stall-after-rx=3"]))
    uart.arrive(b"abcdef")
    uart.arrive(b"gh")
    assert uart.read(3) == b"abc"
    assert len(uart.ring) == 0
    uart.hang_up()
    with pytest.raises(LineClosed):
        uart.write(b"x")


@pytest.mark.parametrize("spec", ["stall-after-rx=6", "reset-after-rx=6"])
def test_what_is_mended_as_soon_as_it_is_told_is_over(spec: str) -> None:
    """In the middle of a burst that finds no room. A reset is not still to come then."""
    faults, struck = Faults.parse([spec]), threading.Event()
    faults.on_strike = lambda spec: struck.set()
    uart = Uart(lambda data: None, faults=faults)
    uart.capacity = 3
    sender = threading.Thread(target=uart.arrive, args=(b"abcdef",))
    sender.start()
    assert struck.wait(SOON)
    uart.mend()
    with pytest.raises(BoardReset):
        uart.write(b"x")
    uart.restart()
    sender.join(SOON)
    uart.write(b"x")


def test_a_stall_that_is_mended_as_its_byte_leaves_is_over() -> None:
    faults = Faults.parse(["stall-after-tx=1"])
    uart = Uart(lambda data: mending.join(SOON), faults=faults)
    mending = threading.Thread(target=uart.mend)
    faults.on_strike = lambda spec: mending.start()
    with pytest.raises(BoardReset):
        uart.write(b"x")
    uart.restart()
    uart.write(b"x")
