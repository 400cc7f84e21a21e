"""What a tap keeps, and what its readers get."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import RequestError
from fastflight.gap import Gap
from fastflight.transport.chunk_buffer import CHUNK_BYTES, MAX_CHUNKS, UNTAKEN_BYTES, Chunk, TapReader
from fastflight.transport.tap import HELD_BYTES, Tap

SOON = 60.0


def ticking() -> Tap:
    """A tap whose clock goes on by ten with each chunk, from 0."""
    return Tap(clock=count(0, 10).__next__)


SMALL_READS_KEPT = 4000
# What a tap that keeps so many reads of 20 bytes adds to the memory of its process.
SMALL_READS = """
import os
import threading
import weakref
from pathlib import Path
from fastflight.transport.port import READ_BYTES
from fastflight.transport.tap import Tap

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

tap = Tap(kept_bytes=READ_BYTES * 100)
receiving, sending = os.pipe()
before = resident_bytes()

def read():
    for _ in range({reads}):
        os.write(sending, bytes(20))
        tap.feed("rx", os.read(receiving, READ_BYTES))

reading = threading.Thread(target=read)  # as of a line: it has a heap of its own
reading.start()
reading.join()
print(resident_bytes() - before)
"""


def small(chunks: int) -> Tap:
    """A tap that keeps so many chunks of one byte."""
    return Tap(kept_bytes=chunks * (1 + CHUNK_BYTES), clock=count(0, 10).__next__)


def test_chunks_are_numbered_and_stamped_in_the_order_they_crossed() -> None:
    tap = ticking()
    reader = tap.reader()
    tap.feed("tx", b"1+1\r")
    tap.feed("rx", b"2\r\n")
    assert reader.take(0) == [Chunk(0, 0, "tx", b"1+1\r"), Chunk(1, 10, "rx", b"2\r\n")]
    assert reader.take(0) == []
    assert tap.next_seq == 2


def test_nothing_is_no_chunk() -> None:
    tap = Tap()
    tap.feed("rx", b"")
    assert tap.next_seq == 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_chunk_costs_no_more_memory_than_is_counted() -> None:
    # A process of its own: how glibc places a read's room depends on all that was freed before, unless it is told.
    asked = [sys.executable, "-c", SMALL_READS.format(reads=SMALL_READS_KEPT)]
    told = subprocess.run(
        asked, env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}, capture_output=True, check=True
    )
    assert int(told.stdout) < 2 * SMALL_READS_KEPT * (20 + CHUNK_BYTES)


def test_a_reader_starts_now_or_at_a_number_or_at_a_time() -> None:
    tap = ticking()
    for _ in range(5):
        tap.feed("rx", b"x")
    assert tap.reader().take(0) == []
    assert [chunk.seq for chunk in chunks(tap.reader(seq=3))] == [3, 4]
    assert [chunk.seq for chunk in chunks(tap.reader(since_ns=10))] == [1, 2, 3, 4]
    assert [chunk.seq for chunk in chunks(tap.reader(since_ns=11))] == [2, 3, 4]
    assert chunks(tap.reader(since_ns=1000)) == []


@pytest.mark.parametrize("seq", [-1, 1])
def test_a_number_that_is_not_there_yet_is_refused(seq: int) -> None:
    with pytest.raises(RequestError, match="The next one will have number 0"):
        Tap().reader(seq=seq)


def test_a_reader_that_comes_too_late_for_a_number_sees_the_gap_first() -> None:
    tap = small(2)
    for _ in range(5):
        tap.feed("rx", b"x")
    assert tap.reader(seq=1).take(0) == [Gap(1, 2), Chunk(3, 30, "rx", b"x"), Chunk(4, 40, "rx", b"x")]


def test_the_newest_chunk_stays_however_large_it_is() -> None:
    tap = small(2)
    reader = tap.reader()
    tap.feed("rx", b"x" * 100_000)
    assert [chunk.seq for chunk in chunks(reader)] == [0]


@given(st.lists(st.integers(0, 12), max_size=60), st.integers(1, 8))
def test_readers_get_every_chunk_or_the_gap_it_is_in(fed: list[int], kept: int) -> None:
    tap = small(kept)
    often, never = tap.reader(), tap.reader()
    seen: list[int] = []
    for number in fed:
        for _ in range(number):
            tap.feed("rx", b"x")
        seen += numbers(often)
        assert len(tap._chunks) <= kept
    assert seen == list(range(tap.next_seq)) == numbers(never)


def numbers(reader: TapReader) -> list[int]:
    """What the reader got and missed, as numbers."""
    found: list[int] = []
    while items := reader.take(0):
        for item in items:
            found += range(item.first, item.last + 1) if isinstance(item, Gap) else [item.seq]
    return found


def chunks(reader: TapReader) -> list[Chunk]:
    return [item for item in reader.take(0) if isinstance(item, Chunk)]


def test_a_lot_is_bounded_and_the_rest_follows() -> None:
    tap = Tap(kept_bytes=1 << 20)
    reader = tap.reader()
    for _ in range(MAX_CHUNKS + 1):
        tap.feed("rx", b"x")
    assert len(reader.take(0)) == MAX_CHUNKS
    assert len(reader.take(0)) == 1


def test_readers_in_threads_and_loops_are_woken_and_end_with_the_tap() -> None:
    tap = ticking()
    got: list[list[int]] = []
    readers = [tap.reader() for _ in range(4)]

    def in_thread(reader: TapReader) -> None:
        got.append([item.seq for item in reader if isinstance(item, Chunk)])

    async def in_loop(reader: TapReader) -> None:
        got.append([item.seq async for item in reader if isinstance(item, Chunk)])

    threads = [threading.Thread(target=in_thread, args=(reader,)) for reader in readers[:2]]
    threads += [threading.Thread(target=asyncio.run, args=(in_loop(reader),)) for reader in readers[2:]]
    for thread in threads:
        thread.start()
    for _ in range(200):
        tap.feed("rx", b"x")
    tap.close()
    for thread in threads:
        thread.join(SOON)
    assert got == [list(range(200))] * 4


async def test_a_wait_that_is_cancelled_takes_nothing_and_leaves_nothing() -> None:
    tap = ticking()
    reader = tap.reader()
    waiting = asyncio.create_task(reader.atake(None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not tap._waiting
    tap.feed("rx", b"x")
    assert len(await reader.atake(SOON)) == 1
    assert await reader.atake(0) == []


def test_a_reader_whose_loop_has_ended_does_not_trouble_the_line() -> None:
    tap = Tap()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(tap.reader().atake(None))
    loop.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False  # the loop is closed on purpose with its task waiting
    loop.close()
    tap.feed("rx", b"x")
    assert tap.next_seq == 1


def test_a_nudge_is_heeded_for_as_long_as_somebody_does() -> None:
    tap, nudges = Tap(), []
    with tap.on_nudge(lambda: nudges.append(1)):
        tap.nudge()
        tap.feed("rx", b"no nudge")
        tap.nudge()
    tap.nudge()
    assert len(nudges) == 2


def test_numbers_may_go_on_from_elsewhere() -> None:
    tap = ticking()
    tap.begin_at(1000)
    tap.feed("rx", b"x")
    assert tap.reader(seq=1000).take(0) == [Chunk(1000, 0, "rx", b"x")]
    assert tap.reader(seq=7).take(0)[0] == Gap(7, 999)


def test_a_cut_is_told_with_the_chunk_that_follows_it() -> None:
    tap = ticking()
    tap.cut("opened")
    tap.cut("opened again")
    tap.feed("rx", b"a\n")
    assert tap.reader().begins_line
    tap.cut("lost")
    assert not tap.reader().begins_line
    tap.feed("rx", b"b")
    assert [item.cut for item in tap.reader(seq=0).rest() if isinstance(item, Chunk)] == ["opened again", "lost"]


def test_no_line_is_known_to_begin_behind_a_cut() -> None:
    tap = ticking()
    for cut, direction in (("", "rx"), ("lost", "tx"), ("", "rx"), ("", "rx")):
        if cut:
            tap.cut(cut)
        tap.feed(direction, b"a\n")  # type: ignore[arg-type]
    assert [tap.reader(seq=seq).begins_line for seq in range(5)] == [False, False, False, True, True]


def test_the_rest_is_all_that_is_there() -> None:
    tap = Tap()
    reader = tap.reader()
    for _ in range(MAX_CHUNKS + 10):
        tap.feed("rx", b"x")
    assert len(reader.rest()) == MAX_CHUNKS + 10
    assert reader.rest() == []


async def test_a_reader_is_woken_when_enough_is_there() -> None:
    tap = Tap()
    reader = tap.reader()
    with reader.woken_at(3 * (1 + CHUNK_BYTES)) as arrived:
        for _ in range(2):
            tap.feed("rx", b"x")
            assert not arrived.is_set()
        tap.feed("rx", b"x")
        assert arrived.is_set()
    assert [item.seq for item in reader.rest() if isinstance(item, Chunk)] == [0, 1, 2]


@pytest.mark.parametrize("ending", [Tap.nudge, Tap.close])
async def test_a_reader_is_woken_by_a_nudge_and_by_the_end(ending: Callable[[Tap], None]) -> None:
    tap = Tap()
    reader = tap.reader()
    with reader.woken_at(1000) as arrived:
        assert not arrived.is_set()
        ending(tap)
        assert arrived.is_set()
    assert reader.rest() == [] and reader.ended == (ending is Tap.close)


async def test_a_reader_that_begins_in_the_past_has_enough_at_once() -> None:
    tap = Tap()
    for _ in range(4):
        tap.feed("rx", b"x")
    reader = tap.reader(seq=1)
    with reader.woken_at(3 * (1 + CHUNK_BYTES)) as arrived:
        assert arrived.is_set()
    assert [item.seq for item in reader.rest() if isinstance(item, Chunk)] == [1, 2, 3]


def flooded() -> tuple[Tap, TapReader]:
    """A tap with a recorder that has as much to take as makes a line wait."""
    tap = Tap()
    recorder = tap.reader()
    tap.record_by(recorder)
    tap.feed("rx", bytes(UNTAKEN_BYTES))
    return tap, recorder


def test_a_line_that_can_wait_is_read_on_when_its_recorder_has_taken_what_came() -> None:
    tap, recorder = flooded()
    reading = threading.Thread(target=lambda: asyncio.run(tap.apace()))
    reading.start()

    async def main() -> None:
        paced = asyncio.ensure_future(tap.apace())
        await asyncio.sleep(0)
        assert tap.is_ahead and not paced.done()
        assert len(recorder.rest()) == 1
        await paced

    asyncio.run(main())
    reading.join(SOON)
    assert not reading.is_alive() and not tap.is_ahead


@pytest.mark.parametrize("ending", [lambda tap: tap.record_by(None), Tap.close])
def test_a_line_does_not_wait_for_a_recorder_that_has_ended(ending: Callable[[Tap], None]) -> None:
    tap, _ = flooded()
    reading = threading.Thread(target=lambda: asyncio.run(tap.apace()))
    reading.start()
    ending(tap)
    reading.join(SOON)
    assert not reading.is_alive()


def test_a_line_waits_once_for_a_recorder_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.transport.chunk_buffer.PACE_SECONDS", 0.01)
    tap, recorder = flooded()
    asyncio.run(tap.apace())
    assert not tap.is_ahead
    asyncio.run(tap.apace())
    recorder.rest()
    tap.feed("rx", bytes(UNTAKEN_BYTES))
    assert tap.is_ahead
    asyncio.run(tap.apace())
    assert not tap.is_ahead


def test_what_a_recorder_has_not_taken_is_kept_longer_and_not_without_end() -> None:
    tap = Tap(kept_bytes=10 * (1 + CHUNK_BYTES))
    recorder, slow = tap.reader(), tap.reader()
    tap.record_by(recorder)
    for _ in range(20):
        tap.feed("rx", b"x")
    assert [item.seq for item in recorder.rest() if isinstance(item, Chunk)] == list(range(20))
    tap.feed("rx", b"x")
    assert slow.take(0)[0] == Gap(0, 10)
    for _ in range(100):
        tap.feed("rx", b"x")
    assert recorder.rest()[0] == Gap(20, 80)


def test_a_gap_tells_how_many_bytes_were_dropped_if_its_reader_had_seen_their_beginning() -> None:
    tap = Tap(kept_bytes=3 * (2 + CHUNK_BYTES))
    early, taken = tap.reader(), tap.reader()
    for number in range(5):
        tap.feed("rx", b"xy")
        if number == 1:
            assert len(taken.take(0)) == 2
    late = tap.reader(seq=1)  # after chunk 1 was dropped
    for _ in range(5):
        tap.feed("rx", b"xyz")
    gaps = [reader.take(0)[0] for reader in (early, taken, late)]
    assert gaps == [Gap(0, 7), Gap(2, 7), Gap(1, 7)]
    assert [gap.bytes for gap in gaps if isinstance(gap, Gap)] == [5 * 2 + 3 * 3, 3 * 2 + 3 * 3, None]


def test_all_traffic_is_copied_only_while_somebody_holds_its_tap() -> None:
    tap = ticking()
    whole = tap.whole()
    reader = whole.reader()
    held = weakref.ref(whole)
    del whole
    tap.feed("tx", b"read", request=True)
    assert [item.data for item in reader.take(0) if isinstance(item, Chunk)] == [b"read"]
    number = reader.next_seq
    del reader
    assert held() is None
    tap.feed("rx", b"nobody sees this", request=True)
    later = tap.whole().reader(seq=number)
    tap.feed("rx", b"but this", request=True)
    gap, chunk = later.take(0)
    assert gap == Gap(number, number)
    assert isinstance(chunk, Chunk) and (chunk.seq, chunk.data) == (number + 1, b"but this")


LOOKS: list[Callable[[Tap], object]] = [
    lambda tap: tap.next_seq,
    lambda tap: tap.heard_ns,
    lambda tap: tap.byte_counts,
    lambda tap: tap.unread,
    lambda tap: tap.reader(),
    lambda tap: tap.feed("tx", b"x"),
    lambda tap: tap.cut("lost"),
    lambda tap: tap.mark_lost(),
    lambda tap: tap.whole(),
    lambda tap: tap.end_of_request(begins_line=True),
]


@given(st.lists(st.one_of(st.binary(max_size=3), st.sampled_from(LOOKS)), max_size=30))
def test_bytes_that_are_held_back_are_in_the_tap_when_somebody_looks(
    steps: list[bytes | Callable[[Tap], object]],
) -> None:
    heard: list[bytes] = []
    at_once, later = ticking(), ticking()
    for step in steps:
        if isinstance(step, bytes):
            at_once.feed("rx", step)
            if step:
                later.hold(step, heard.append)
        else:
            for tap in (at_once, later):
                step(tap)
    found = [tap.reader(seq=0).rest() for tap in (at_once, later)]
    assert found[0] == found[1]
    assert at_once.byte_counts == later.byte_counts and at_once.heard_ns == later.heard_ns
    assert heard == [step for step in steps if isinstance(step, bytes) and step]


async def test_whoever_waits_gets_bytes_that_are_held_back_at_once() -> None:
    tap = ticking()
    for reader in (tap.reader(), tap.whole().reader()):
        waiting = asyncio.ensure_future(reader.atake(None))
        await asyncio.sleep(0)
        tap.hold(b"now", lambda _: None)
        assert [each.data for each in await waiting if isinstance(each, Chunk)] == [b"now"]
    with tap.reader().woken_at(2 * CHUNK_BYTES) as arrived:
        tap.hold(b"", lambda _: None)
        assert not arrived.is_set()
        tap.hold(b"", lambda _: None)
        await asyncio.wait_for(arrived.wait(), SOON)


def test_little_is_held_back() -> None:
    tap, heard = ticking(), bytearray()
    for _ in range(2 * HELD_BYTES // CHUNK_BYTES):
        tap.hold(b".", heard.extend)
    assert len(heard) >= HELD_BYTES // CHUNK_BYTES
