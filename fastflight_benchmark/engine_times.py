"""Measures what the async engine relies on: event loops, and ways to join small batches.

    python engine_times.py

Each line gives the processor time of all threads in the median round. The two loops, or the two ways to join, take
turns. Decisions 0021 (joining) and 0022 (shards) use these figures. It does not run on Windows, which has no uvloop.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Annotated

import pyarrow as pa
import typer
import uvloop

from fastflight.sources import mock

KINDS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
# Repetitions in one round, which take some milliseconds together.
TURNS = 2_000
TIMERS = 50
JOINED_KIB = (16, 64, 256, 1024)


async def turn() -> float:
    """Measure a task that lets the other tasks run."""
    began = time.process_time()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return (time.process_time() - began) / TURNS


async def wait_for_descriptor() -> float:
    """Measure waiting for one byte: the descriptor is watched for it each time. A port that is read does this."""
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    with near, far:
        began = time.process_time()
        for _ in range(TURNS):
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(far, ready.set_result, None)
            near.send(b"x")
            await ready
            loop.remove_reader(far)
            far.recv(1)
        return (time.process_time() - began) / TURNS


async def keep_watching() -> float:
    """Measure a descriptor that stays watched, like the port of an idle device."""
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    with near, far:
        left, done = TURNS, loop.create_future()

        def ready() -> None:
            nonlocal left
            far.recv(1)
            left -= 1
            if left:
                near.send(b"x")
            else:
                done.set_result(None)

        loop.add_reader(far, ready)
        began = time.process_time()
        near.send(b"x")
        await done
        loop.remove_reader(far)
        return (time.process_time() - began) / TURNS


async def wake_from_thread() -> float:
    """Measure a thread that wakes a coroutine, as a channel does."""
    loop, woken, go = asyncio.get_running_loop(), asyncio.Event(), threading.Semaphore(0)

    def wake() -> None:
        for _ in range(TURNS):
            go.acquire()
            loop.call_soon_threadsafe(woken.set)

    thread = threading.Thread(target=wake)
    thread.start()
    began = time.process_time()
    for _ in range(TURNS):
        go.release()
        await woken.wait()
        woken.clear()
    spent = time.process_time() - began
    thread.join()
    return spent / TURNS


async def deadline() -> float:
    """Measure setting a deadline that does not expire."""
    began = time.process_time()
    for _ in range(TURNS):
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
    return (time.process_time() - began) / TURNS


async def late() -> float:
    """Measure how much longer than 1 ms a sleep of 1 ms takes, by the clock."""
    delays = []
    for _ in range(TIMERS):
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        delays.append(time.perf_counter() - began - 0.001)
    return statistics.median(delays)


LOOP_PARTS: tuple[Callable[[], Awaitable[float]], ...] = (
    turn,
    wait_for_descriptor,
    keep_watching,
    wake_from_thread,
    deadline,
    late,
)


def compare_loops(rounds: int) -> Iterator[str]:
    """Yield a line for each of `LOOP_PARTS`: microseconds on each loop, and the median ratio of the pairs."""
    yield f"{'event loop':24}{'asyncio':>10}{'uvloop':>10}{'ratio':>8}   us"
    for part in LOOP_PARTS:
        taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for number in range(rounds):
            for kind in list(KINDS) if number % 2 else reversed(list(KINDS)):
                loop = KINDS[kind]()
                taken[kind].append(loop.run_until_complete(_run(part)) * 1e6)
                loop.close()
        ratio = statistics.median(uv / plain for plain, uv in zip(taken["asyncio"], taken["uvloop"], strict=True))
        plain, uv = (statistics.median(taken[kind]) for kind in ("asyncio", "uvloop"))
        yield f"{part.__name__:24}{plain:10.2f}{uv:10.2f}{ratio:8.2f}"


async def _run(part: Callable[[], Awaitable[float]]) -> float:
    return await part()


def compare_joining(rounds: int) -> Iterator[str]:
    """Yield a line for each size of the joined batch: microseconds for each small batch, in two ways."""
    yield f"{'joined to':24}{'concat_batches':>16}{'Table.combine':>16}   us a batch"
    for variant, rows in (("default", 40), ("simple", 1_000), ("default", 500)):
        small = mock.batch(variant, rows)
        for kib in JOINED_KIB:
            batches = [small] * max(2, kib * 1024 // int(small.nbytes))

            def combined(batches: list[pa.RecordBatch] = batches) -> object:
                return pa.Table.from_batches(batches).combine_chunks().to_batches()

            def concatenated(batches: list[pa.RecordBatch] = batches) -> object:
                return pa.concat_batches(batches)

            took = [_median(way, rounds) / len(batches) for way in (concatenated, combined)]
            yield f"{f'{small.nbytes / 1000:.0f} kB to {kib} KiB':24}{took[0]:16.2f}{took[1]:16.2f}"


def _median(way: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(20):
            way()
        taken.append((time.process_time() - began) / 20 * 1e6)
    return statistics.median(taken)


def main(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each is measured, in turns.")] = 7,
) -> None:
    """Compare event loops, and ways to join batches."""
    for lines in (compare_loops(rounds), compare_joining(rounds)):
        for line in lines:
            typer.echo(line)
        typer.echo()


if __name__ == "__main__":
    typer.run(main)
