"""Writes to a serial port that are gathered, and when they go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from fastflight.protocol.conversation import Conversation, Pause, Send
from fastflight.transport import arun

from .serial_bench import PATIENCE, SerialBench, alone, running_loop


def test_small_writes_wait_together(bench: SerialBench) -> None:
    """What can still be taken back was not sent."""

    async def main() -> None:
        for _ in range(10):
            await bench.port.awrite(b"gathered", PATIENCE)
        await bench.port.apurge(PATIENCE, unsent=True)
        await bench.port.awrite(b"sent", PATIENCE)
        await bench.port.adrain(PATIENCE)

    alone(main())
    assert bench.get(4) == b"sent"


def test_enough_of_them_go_at_once(opening: Callable[..., SerialBench]) -> None:
    bench = opening(drain=8)

    async def main() -> None:
        await bench.port.awrite(b"1234567", PATIENCE)
        await bench.port.awrite(b"8", PATIENCE)
        assert bench.get(8) == b"12345678"

    alone(main())


def test_a_line_that_takes_all_at_once_keeps_nobody_waiting(
    bench: SerialBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes go in several turns of the loop, and the line never says that it can take more."""
    system = SimpleNamespace(**vars(os) | {"write": lambda descriptor, data: len(data)})
    monkeypatch.setattr("fastflight.transport.descriptor.os", system)

    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            await bench.port.awrite(bytes(1_000_000), timeout=10 * PATIENCE)

    alone(main())


def test_they_go_when_time_is_up(opening: Callable[..., SerialBench]) -> None:
    bench = opening(drain_ms=1)

    async def main() -> None:
        await bench.port.awrite(b"late", PATIENCE)
        await bench.port.awrite(b"r", PATIENCE)
        assert await asyncio.to_thread(bench.get, 5) == b"later"

    alone(main())


def test_reading_sends_them_first(bench: SerialBench) -> None:
    """A board that waits for its frame answers only when it has it."""

    async def main() -> None:
        board = asyncio.create_task(asyncio.to_thread(lambda: bench.give(bench.get(5).upper())))
        await bench.port.awrite(b"fra", PATIENCE)
        await bench.port.awrite(b"me", PATIENCE)
        assert await bench.port.aread(PATIENCE) == b"FRAME"
        await board

    alone(main())


def test_nothing_is_gathered_while_somebody_waits_for_bytes(bench: SerialBench) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(bench.port.aread(PATIENCE))
        await asyncio.sleep(0)
        await bench.port.awrite(b"now", PATIENCE)
        assert await asyncio.to_thread(bench.get, 3) == b"now"
        bench.give(b"thanks")
        assert await waiting == b"thanks"

    alone(main())


def test_a_pause_of_a_conversation_is_silence_on_the_line(bench: SerialBench) -> None:
    def interrupt() -> Conversation[None]:
        yield Send(b"\x03")
        yield Pause(0)

    async def main() -> None:
        await arun(interrupt(), bench.port)
        assert bench.get(1) == b"\x03"

    alone(main())


def test_a_thread_sends_what_a_loop_gathered_before_its_own(bench: SerialBench) -> None:
    asyncio.run(bench.port.awrite(b"loop, ", PATIENCE))
    bench.port.write(b"thread", PATIENCE)
    assert bench.get(12) == b"loop, thread"


def test_a_thread_and_a_timer_do_not_send_the_same_twice(opening: Callable[..., SerialBench]) -> None:
    """The loop runs on, and its time is up at about the moment at which the thread writes."""
    bench = opening(drain_ms=1)
    with running_loop() as call:
        for number in range(200):
            call(bench.port.awrite(b"%03d " % number, PATIENCE))
            bench.port.write(b"and ", PATIENCE)
    assert bench.get(200 * 8) == b"".join(b"%03d and " % number for number in range(200))
