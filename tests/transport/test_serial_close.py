"""How a serial port ends, and what becomes of what it was to write."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable

import pytest
import serial

from fastflight.errors import TransportClosed, TransportTimeout
from fastflight.transport import descriptor, loop_port, serial_port

from .serial_bench import FULL, PATIENCE, SHORT, UNHEARD, SerialBench, alone, fill, hang_up


def test_closing_sends_what_was_gathered(bench: SerialBench) -> None:
    alone(bench.port.awrite(b"last words", PATIENCE))
    bench.port.close()
    assert bench.get(10) == b"last words"


def test_closing_on_its_own_loop_sends_what_was_gathered(bench: SerialBench) -> None:
    """Else the byte that brings a board back to its prompt is lost."""

    async def close() -> None:
        bench.port.port.close()

    alone(bench.port.awrite(b"last words", PATIENCE))
    bench.port.portal.call(close())
    assert bench.get(10) == b"last words"


def test_closing_says_what_could_not_be_sent(
    opening: Callable[..., SerialBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial_port, "CLOSE_SECONDS", SHORT)
    bench = opening(drain=65536)

    async def main() -> None:
        fill(bench)
        await bench.port.awrite(UNHEARD, PATIENCE)

    alone(main())
    with pytest.raises(TransportTimeout, match=r"took no byte for 0.05 s. Up to \d+ bytes were not sent"):
        bench.port.close()
    with pytest.raises(TransportClosed):
        bench.port.read(SHORT)


def test_what_was_reported_as_not_sent_is_not_sent_later(opening: Callable[..., SerialBench]) -> None:
    bench = opening(drain=65536)

    async def main() -> None:
        fill(bench)
        await bench.port.awrite(UNHEARD, PATIENCE)
        with pytest.raises(TransportTimeout, match=r"Up to \d+ bytes were not sent"):
            await bench.port.adrain(SHORT)
        reading = asyncio.create_task(asyncio.to_thread(bench.get_until, b"sent"))
        await bench.port.awrite(b"sent", PATIENCE)
        await bench.port.adrain(PATIENCE)
        arrived = re.fullmatch(b"f+(u*)sent", await reading)
        assert arrived is not None and len(arrived[1]) < len(UNHEARD)

    alone(main())


def test_a_cancelled_write_takes_back_its_own_bytes_only(bench: SerialBench) -> None:
    async def main() -> None:
        fill(bench)
        await bench.port.awrite(b"kept", PATIENCE)
        cancelled = asyncio.create_task(bench.port.awrite(b"c" * 100_000, PATIENCE))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        reading = asyncio.create_task(asyncio.to_thread(bench.get_until, b"end"))
        await bench.port.awrite(b"end", PATIENCE)
        await bench.port.adrain(PATIENCE)
        arrived = re.fullmatch(b"f+kept(c*)end", await reading)
        # A chunk that was under way is beyond recall.
        assert arrived is not None and len(arrived[1]) <= 4096

    alone(main())


def test_what_goes_wrong_behind_the_callers_back_is_told_to_the_next(opening: Callable[..., SerialBench]) -> None:
    bench = opening(drain_ms=0)

    async def main() -> None:
        await bench.port.awrite(b"fine", PATIENCE)
        hang_up(bench)
        with pytest.raises(TransportClosed, match="went away"):
            while True:
                await bench.port.awrite(b"lost", PATIENCE)
                await asyncio.sleep(0)
        for call in (bench.port.awrite(b"x", SHORT), bench.port.aread(SHORT), bench.port.adrain(SHORT)):
            with pytest.raises(TransportClosed, match="went away"):
                await call

    alone(main())


def test_a_port_that_went_away_before_a_loop_has_it_says_so(bench: SerialBench) -> None:
    """A write that is gathered may be accepted, and reported by the call that sends it."""
    hang_up(bench)

    async def write() -> None:
        await bench.port.awrite(b"x", SHORT)
        await bench.port.adrain(SHORT)

    async def main() -> None:
        for call in (write(), bench.port.aread(SHORT), bench.port.adrain(SHORT)):
            with pytest.raises(TransportClosed, match="went away"):
                await call

    alone(main())


def test_a_port_that_goes_away_under_a_thread_tells_the_loop_that_comes_next(bench: SerialBench) -> None:
    with pytest.raises(TransportTimeout):
        bench.port.read(SHORT)
    with pytest.raises(TransportTimeout):
        alone(bench.port.aread(SHORT))
    with pytest.raises(TransportTimeout):
        bench.port.read(SHORT)
    hang_up(bench)
    with pytest.raises(TransportClosed, match="went away"):
        alone(bench.port.aread(SHORT))


def test_a_full_port_does_not_keep_a_reader_from_what_arrives(bench: SerialBench) -> None:
    async def main() -> None:
        fill(bench)
        await bench.port.awrite(b"question", PATIENCE)
        bench.give(b"talk")
        assert await bench.port.aread(PATIENCE) == b"talk"
        await bench.port.apurge(PATIENCE, unsent=True)

    alone(main())


def test_purging_frees_a_write_that_waits(bench: SerialBench) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(bench.port.awrite(FULL, PATIENCE))
        assert await asyncio.to_thread(bench.get, 1) == b"f"
        await bench.port.apurge(PATIENCE, unsent=True)
        await waiting

    alone(main())


def test_a_line_without_readers_fills_up_and_no_more(
    opening: Callable[..., SerialBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_port, "READ_BYTES", 512)
    monkeypatch.setattr(descriptor, "READ_BYTES", 512)
    bench = opening()
    flood = threading.Thread(target=bench.give, args=(FULL,))

    async def main() -> None:
        flood.start()
        received = 0
        while received < len(FULL):
            piece = await bench.port.aread(PATIENCE)
            assert len(piece) < 512 + 512
            received += len(piece)
        assert received == len(FULL)

    alone(main())
    flood.join()


def test_a_driver_that_waits_while_it_closes_does_not_keep_the_loop(
    opening: Callable[..., SerialBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = opening()
    closing, go_on = threading.Event(), threading.Event()
    close = serial.Serial.close

    def wait_and_close(port: serial.Serial) -> None:
        if port is not bench.port._port:  # one of another test, which is collected just now
            return close(port)
        closing.set()
        assert go_on.wait(PATIENCE)
        close(port)

    async def main() -> None:
        await bench.port.awrite(b"last words", PATIENCE)
        monkeypatch.setattr(serial.Serial, "close", wait_and_close)
        ending = asyncio.ensure_future(bench.port.aclose())
        await asyncio.to_thread(closing.wait, PATIENCE)
        assert not ending.done()
        go_on.set()
        await ending

    alone(main())


def test_what_a_stopped_line_does_not_take_is_thrown_away_before_the_driver_waits_for_it(
    opening: Callable[..., SerialBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial_port, "CLOSE_SECONDS", SHORT)
    bench = opening()
    calls: list[str] = []
    close, discard = serial.Serial.close, serial.Serial.reset_output_buffer

    def note(call: str, act: Callable[[serial.Serial], None], port: serial.Serial) -> None:
        if port is bench.port._port:  # not one of another test, which is collected just now
            calls.append(call)
        act(port)

    monkeypatch.setattr(serial.Serial, "out_waiting", property(lambda port: 10))
    monkeypatch.setattr(serial.Serial, "reset_output_buffer", lambda port: note("discard", discard, port))
    monkeypatch.setattr(serial.Serial, "close", lambda port: note("close", close, port))
    bench.port.close()
    assert calls[:2] == ["discard", "close"]
