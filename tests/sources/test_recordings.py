"""What keeps a server's recordings tidy, and the numbers that a server begins at."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fastflight.concurrency import Shard
from fastflight.device import Device, Inventory
from fastflight.errors import StorageError
from fastflight.gap import Gap, Why
from fastflight.log import LogStatistics, Range, Store
from fastflight.sources.numbering import NUMBERS_PER_SECOND, first_number
from fastflight.sources.recordings import Recordings
from fastflight.sources.tidying import REST_PER_WORK, WORK_SECONDS, Tidying
from fastflight.transport.chunk_buffer import CHUNK_BYTES, Chunk
from fastflight.transport.tap import Tap
from tests.log.rows import log_batch
from tests.support.waiting import until

from .recording_parts import SOON, Disk, RecordedLine, SlowDisk


def test_the_end_does_not_wait_for_compacting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resting = threading.Event()

    class Resting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            resting.set()
            return super().wait(timeout)

    monkeypatch.setattr("fastflight.sources.tidying.WORK_SECONDS", 0.0)
    monkeypatch.setattr("fastflight.sources.tidying.REST_PER_WORK", 1e9)
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("demo")
        for seq in range(100):
            log.append(log_batch([Chunk(seq, seq * 1000, "rx", b"tiny")], {})).result()
        tidying = Tidying(store)
        tidying._closing.set()  # ends the thread of its own, which would wait a minute
        monkeypatch.setattr(tidying, "_closing", Resting())
        working = threading.Thread(target=tidying.tidy)
        working.start()
        resting.wait()
        tidying.close()
        working.join()
        assert not list(tmp_path.glob("*.parquet"))
        assert log.statistics().rows == 100


@pytest.mark.parametrize("work", [0.001, 0.1])
def test_compacting_rests_by_its_own_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: float) -> None:
    """By the clock it took a fifth of what others left it: with a busy server it never caught up."""
    rests: list[float] = []
    worked = 0.0

    class Resting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            rests.append(timeout)
            return False

    with Store(tmp_path) as store:
        tidying = Tidying(store)
        tidying.close()
    monkeypatch.setattr(tidying, "_closing", Resting())
    monkeypatch.setattr(tidying, "_rested_at", 0.0)
    monkeypatch.setattr("time.thread_time", lambda: worked)
    for _ in range(1000):  # however long it waits for its turn
        tidying._rest()
    assert rests == []
    for _ in range(100):
        worked += work
        tidying._rest()
    # Of all its work but the last bit, and not after each bit.
    assert worked - (WORK_SECONDS + work) <= sum(rests) / REST_PER_WORK <= worked + 1e-9
    assert len(rests) <= worked / WORK_SECONDS


def test_what_fails_otherwise_than_the_disk_does_not_end_tidying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> int:
        raise KeyError("a defect")

    with Store(tmp_path) as store:
        monkeypatch.setattr(store, "sweep", failing)
        tidying = Tidying(store)
        tidying.tidy()
        tidying.close()


def there(next_seq: int, last_time: int | None) -> LogStatistics:
    return LogStatistics(next_seq, 0, 0, next_seq, 0 if last_time is not None else None, last_time)


@given(
    kept_rows=st.integers(1, 10**9),
    last=st.floats(0, 2e9),
    lives=st.lists(st.tuples(st.floats(0, 1e6), st.floats(2, 1e6), st.floats(0, 1e5)), max_size=5),
)
def test_no_number_is_given_twice_though_none_of_it_was_kept(
    kept_rows: int, last: float, lives: list[tuple[float, float, float]]
) -> None:
    """Servers that give numbers, keep none of them, and end: the pause, the seconds they live, the numbers in each."""
    now, given_before = last, kept_rows
    for pause, life, rate in lives:
        now += pause
        first = first_number(there(kept_rows, round(last * 1e6)), now)
        assert first % NUMBERS_PER_SECOND == 0 and first >= given_before
        now += life
        given_before = first + int(life * rate)


def test_a_clock_that_was_set_back_and_a_recording_that_was_let_go_of() -> None:
    assert first_number(there(5, 10**15), 0.0) == NUMBERS_PER_SECOND
    assert first_number(there(5, None), 10**9) == 10**9 * NUMBERS_PER_SECOND
    assert first_number(there(10**9 * NUMBERS_PER_SECOND + 5, None), 10**9) == (10**9 + 1) * NUMBERS_PER_SECOND
    assert first_number(there(0, None), 10**9) == 0


class RecordedInventory:
    """What recordings need of an inventory."""

    def __init__(self, *lines: RecordedLine) -> None:
        self._lines = lines

    def devices(self) -> list[RecordedLine]:
        return list(self._lines)

    def device(self, name: str) -> RecordedLine:
        return next(line for line in self._lines if line.name == name)


class UnlistedLogs:
    """Recordings of a cluster that does not know the device, and where nobody may list all of them."""

    def find(self, name: str) -> None:
        return None

    def take(self, buffer: Store) -> None:
        """Takes nothing over."""

    def end_sweeps(self) -> None:
        """Deletes nothing."""

    def close(self) -> None:
        """Has nothing to close."""


def test_a_cluster_is_not_asked_for_all_recordings_when_a_device_is_taken(tmp_path: Path) -> None:
    line = RecordedLine()
    with Shard() as line.shard:
        inventory, shared = cast(Inventory, RecordedInventory(line)), cast(Any, UnlistedLogs())
        kept_here = Recordings(tmp_path, inventory, sync_ms=0, shared=shared)
        kept_here.number(cast(Device, line))
        kept_here.record("demo")
        assert line.recording == "recording"
    kept_here.close()


def feed(line: RecordedLine, data: bytes) -> None:
    """Returns when the recorder has had its turns to take it."""

    async def fed() -> None:
        line.tap.feed("rx", data)
        for _ in range(20):
            await asyncio.sleep(0)

    assert line.shard is not None
    line.shard.submit(fed()).result(SOON)


@contextmanager
def on_a_slow_disk(folder: Path) -> Iterator[tuple[Recordings, RecordedLine, SlowDisk]]:
    """A recording of `demo`, and something on its way to the disk, which takes it when it `goes_on`."""
    line, disk = RecordedLine(), SlowDisk(folder)
    with Shard() as line.shard:
        kept_here = Recordings(folder, cast(Inventory, RecordedInventory(line)), sync_ms=0, disk=disk)
        kept_here.start("demo")
        disk.goes_on.clear()
        feed(line, b"on its way")
        assert disk.asked.wait(SOON)
        yield kept_here, line, disk


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Recordings, RecordedLine]]:
    """A recording of `demo` that its disk did not let end; by now it does."""
    monkeypatch.setattr("fastflight.log.writer.MAX_WAITING_BYTES", 1)
    monkeypatch.setattr("fastflight.sources.recordings.END_SECONDS", 0.0)
    with on_a_slow_disk(tmp_path) as (kept_here, line, disk):
        feed(line, b"waits for room")
        for ask in (kept_here.stop, kept_here.start):
            with pytest.raises(StorageError, match="does not take what was recorded last"):
                ask("demo")
        assert kept_here.status("demo").state == "recording"
        disk.goes_on.set()
        monkeypatch.setattr("fastflight.sources.recordings.END_SECONDS", SOON)
        yield kept_here, line
    kept_here.close()


def test_a_recording_that_the_disk_does_not_let_end_can_be_ended_later(stuck: tuple[Recordings, RecordedLine]) -> None:
    kept_here, line = stuck
    assert kept_here.stop("demo").rows == 2
    assert line.recording == ""


def test_a_recording_that_the_disk_does_not_let_end_can_be_begun_anew(stuck: tuple[Recordings, RecordedLine]) -> None:
    """It goes on no more, whatever it says of itself."""
    kept_here, line = stuck
    assert kept_here.start("demo").rows == 2
    feed(line, b"after it")
    assert kept_here.stop("demo").rows == 3


def test_a_disk_that_does_not_answer_keeps_nobody_who_stops_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is room for what was read last, and the recorder itself has ended."""
    monkeypatch.setattr("fastflight.sources.recordings.END_SECONDS", 0.0)
    with on_a_slow_disk(tmp_path) as (kept_here, line, disk):
        for again in (kept_here.stop, kept_here.stop, kept_here.start):
            with pytest.raises(StorageError, match="does not take what was recorded last"):
                again("demo")
            line.shard.submit(asyncio.sleep(0)).result(SOON)  # the recorder has ended since
        assert kept_here.status("demo").state == "recording"
        disk.goes_on.set()
        monkeypatch.setattr("fastflight.sources.recordings.END_SECONDS", SOON)
        told = kept_here.stop("demo")
        assert (told.state, told.rows) == ("kept", 1)
        assert line.recording == ""
    kept_here.close()


def test_what_a_disk_lets_end_at_last_is_kept_by_closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.sources.recordings.END_SECONDS", 0.0)
    with on_a_slow_disk(tmp_path) as (kept_here, line, disk):
        with pytest.raises(StorageError):
            kept_here.stop("demo")
        disk.goes_on.set()
    kept_here.close()
    with Store(tmp_path, disk=disk) as store:
        assert store.log("demo").statistics().rows == 1


def test_a_server_ends_though_its_disk_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.sources.recordings.CLOSE_SECONDS", 0.0)
    with on_a_slow_disk(tmp_path) as (kept_here, _, disk):
        pass  # the loop of the device ends meanwhile
    with capture_logs() as logs:
        kept_here.close()
    assert [entry["event"] for entry in logs] == ["the disk does not answer: what was recorded last is not stored"]
    disk.goes_on.set()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "recordings-close"])
    with Store(tmp_path, disk=disk) as store:
        assert store.log("demo").statistics().rows == 1


def test_several_devices_are_forgotten_at_the_same_time(tmp_path: Path) -> None:
    """In a cluster, each may wait some seconds until its rows are handed over."""
    both = threading.Barrier(2)

    class Shared(UnlistedLogs):
        def drain(self, name: str) -> bool:
            both.wait(SOON)
            return False

    lines = RecordedLine(), RecordedLine()
    lines[1].name = "other"
    with Shard() as shard, ThreadPoolExecutor(2) as pool:
        kept_here = Recordings(tmp_path, cast(Inventory, RecordedInventory(*lines)), sync_ms=0)
        for line in lines:
            line.shard = shard
            kept_here.start(line.name)
        kept_here._shared = cast(Any, Shared())
        list(pool.map(kept_here.forget, ["demo", "other"]))
        kept_here._shared = None
    assert not any(line.recording for line in lines)
    kept_here.close()


@pytest.mark.parametrize("handed_over", [True, False])
def test_a_device_is_recorded_while_its_rows_wait_to_be_handed_over(tmp_path: Path, handed_over: bool) -> None:
    class Shared(UnlistedLogs):
        drained = 0

        def drain(self, name: str) -> bool:
            if not self.drained:
                feed(line, b"printed meanwhile")
            self.drained += 1
            return handed_over

    line, shared = RecordedLine(), Shared()
    with Shard() as shard:
        line.shard = shard
        kept_here = Recordings(tmp_path, cast(Inventory, RecordedInventory(line)), sync_ms=0, shared=cast(Any, shared))
        kept_here.record("demo")
        feed(line, b"printed before")
        kept_here.forget("demo")
        assert kept_here.store.log("demo").next_seq == 2
        assert shared.drained == 1 + handed_over  # what cannot be handed over is not waited for twice
    kept_here.close()


def test_a_device_that_another_server_may_own_waits_for_no_hand_over(tmp_path: Path) -> None:
    class Shared(UnlistedLogs):
        def drain(self, name: str) -> bool:
            raise AssertionError("its line would stay open meanwhile")

    line = RecordedLine()
    with Shard() as line.shard:
        inventory, shared = cast(Inventory, RecordedInventory(line)), cast(Any, Shared())
        kept_here = Recordings(tmp_path, inventory, sync_ms=0, shared=shared)
        kept_here.record("demo")
        feed(line, b"printed before")
        kept_here.forget("demo", drains=False)
        assert kept_here.store.log("demo").next_seq == 1
    kept_here.close()


def missing(recordings: Recordings) -> list[tuple[str, bool, int, int]]:
    """Why, whether until now, and the numbers of each gap, as the answer and the listing have them."""
    gaps = [item for item in recordings.log("demo").read() if isinstance(item, Gap) and item.why != Why.UNUSED]
    (status,) = recordings.statuses()
    assert status.gaps == len(gaps)
    assert status.newest_gap == (gaps[-1].details() if gaps else None)
    return [(gap.why, gap.to_time is None, gap.first, gap.last) for gap in gaps]


def test_what_is_missing_until_now_is_listed_before_a_row_follows(tmp_path: Path) -> None:
    def opened(line: RecordedLine) -> Recordings:
        line.tap = Tap()
        return Recordings(tmp_path, cast(Inventory, RecordedInventory(line)), sync_ms=0)

    line = RecordedLine()
    with Shard() as line.shard:
        recordings = opened(line)
        recordings.record("demo")
        for data in (b"a", b"b"):
            feed(line, data)
        until(lambda: recordings.status("demo").rows == 2)
        assert missing(recordings) == []
    recordings.close()
    line, line.is_open = RecordedLine(), False
    with Shard() as line.shard:
        recordings = opened(line)
        recordings.record("demo")
        first = line.tap.next_seq
        assert missing(recordings) == [("server down", True, first, first - 1)]
        line.tap.cut("the line was opened")
        assert missing(recordings) == [("server down", False, first, first - 1)]
        feed(line, b"c")
        until(lambda: recordings.status("demo").rows == 3)
        down = ("server down", False, first, first - 1)
        assert missing(recordings) == [down]
        line.tap.mark_lost()
        assert missing(recordings) == [down, ("line lost", True, first + 1, first)]
        assert [gap.why for gap in read_gaps(recordings, Range(until_seq=first))] == ["unused", "server down"]
        line.tap.cut("the line was lost")
        assert missing(recordings) == [down, ("line lost", False, first + 1, first)]
    recordings.close()


def read_gaps(recordings: Recordings, wanted: Range) -> list[Gap]:
    return [item for item in recordings.log("demo").read(wanted) if isinstance(item, Gap)]


def test_rows_that_the_disk_does_not_take_and_that_are_dropped_are_listed(tmp_path: Path) -> None:
    line, disk = RecordedLine(kept_bytes=2 * (1 + CHUNK_BYTES)), Disk(tmp_path)
    with Shard() as line.shard:
        recordings = Recordings(tmp_path, cast(Inventory, RecordedInventory(line)), sync_ms=0, disk=disk)
        recordings.record("demo")
        feed(line, b"0")
        until(lambda: recordings.status("demo").rows == 1)
        disk.fill()
        line.tap.feed("rx", b"1")
        until(lambda: line.recording.startswith("recording failed: "))
        for data in (b"2", b"3", b"4"):
            line.tap.feed("rx", data)
        assert missing(recordings) == [("disk full", False, 1, 2)]
        assert recordings.status("demo").lost == 2
        recordings.stop("demo")
    disk.broken = 0
    recordings.close()
