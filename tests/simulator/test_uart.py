"""Ring, pacer and UART, without a line: the test is both ends."""

from __future__ import annotations

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.simulator.faults import Faults
from fastflight.simulator.uart import BoardReset, LineClosed, Pacer, Ring, Uart


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_ring_keeps_what_fits() -> None:
    ring = Ring(5)
    assert ring.put(b"abc") == 3
    assert ring.put(b"defg") == 2
    assert ring.put(b"h") == 0
    buffer = bytearray(8)
    assert ring.take_into(memoryview(buffer)) == 5
    assert buffer[:5] == b"abcde"
    assert len(ring) == 0


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=20), st.integers(1, 30))
def test_a_ring_gives_bytes_in_order_whatever_the_pieces(pieces: list[bytes], size: int) -> None:
    ring = Ring(1000)
    for piece in pieces:
        assert ring.put(piece) == len(piece)
    taken = b""
    while len(ring):
        buffer = bytearray(size)
        taken += buffer[: ring.take_into(memoryview(buffer))]
    assert taken == b"".join(pieces)


def test_a_ring_stops_behind_a_control_character() -> None:
    ring = Ring(100)
    ring.put(b"print(1)\x04more")
    stop = re.compile(rb"\x04")
    assert ring.take_until(stop, 5) == b"print"
    assert ring.take_until(stop, 100) == b"(1)\x04"
    assert ring.take_until(stop, 100) == b"more"


@pytest.mark.parametrize("rate", [30.0, 960.0, 11520.0, 92160.0])
@pytest.mark.parametrize("late", [0.0, 0.0004, 0.003])
def test_the_pace_is_exact_on_average_however_late_the_wake_ups(rate: float, late: float) -> None:
    clock = Clock()
    pacer = Pacer(rate, clock=clock)
    pacer.begin()
    start, left = clock.now, 5000
    while left:
        clock.now = max(clock.now, pacer.next_at(left)) + late
        count = min(left, pacer.due())
        assert count > 0
        pacer.moved(count)
        left -= count
    # Never early, and at most as late as the last wake-up was.
    assert 0 <= clock.now - start - 5000 / rate <= late + 0.01 * 5000 / rate


def test_an_idle_line_saves_nothing_up() -> None:
    clock = Clock()
    pacer = Pacer(1000, clock=clock)
    pacer.begin()
    clock.now += 60
    pacer.begin()
    assert pacer.due() == 0
    clock.now += 0.0101
    assert pacer.due() == 10


def test_a_line_that_is_busy_goes_on_with_its_schedule() -> None:
    clock = Clock()
    pacer = Pacer(1000, fifo=50, clock=clock)
    pacer.begin()
    pacer.moved(pacer.due())
    pacer.begin()
    assert pacer.due() == 0, "the first burst is still in the FIFO"


def test_a_small_ring_overflows_and_counts() -> None:
    uart = Uart(lambda data: None, rate=1e6, ring=8)
    uart.arrive(b"0123456789")
    assert uart.overflowed == 2
    assert uart.received == 10
    assert uart.read(8) == b"01234567"


def test_a_flow_controlled_line_loses_nothing() -> None:
    uart = Uart(lambda data: None)
    uart.ring.capacity = 8
    sent = bytes(range(256)) * 10
    sender = threading.Thread(target=uart.arrive, args=(sent,))
    sender.start()
    assert uart.read(len(sent)) == sent
    sender.join()
    assert uart.overflowed == 0


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
