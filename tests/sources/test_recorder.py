"""From a tap to a log: numbers, holes, cuts, and a disk that is full."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.log import Gap, NumberedRows, Store
from fastflight.sources import recorder as module
from fastflight.sources.session_lines import BEGAN, BEGAN_AT_LINE
from fastflight.transport.chunk_buffer import CHUNK_BYTES, UNTAKEN_TIMES
from fastflight.transport.tap import Tap

from .recording_parts import SOON, Disk, RecordedLine, SlowDisk, recording, told


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(module, "LAST_RETRY_SECONDS", 0.001)


def lost(store: Store) -> int:
    return store.log("demo").statistics().lost if store.names() else 0


def test_what_crosses_the_line_is_kept_under_its_number(tmp_path: Path) -> None:
    line = RecordedLine()
    line.tap.begin_at(7)
    line.tap.feed("rx", b"before")
    with recording(tmp_path, line) as (recorder, store):

        async def main() -> None:
            running = asyncio.ensure_future(recorder.run())
            line.tap.feed("tx", b"1+1\r")
            await asyncio.sleep(0)
            line.tap.feed("rx", b"2\r\n")
            recorder.end()
            await running

        asyncio.run(main())
        line.tap.feed("rx", b">>> ")
        recorder.finish()
        assert told(store.log("demo").read()) == [
            (0, 7, "unused"), (8, "tx", b"1+1\r"), (9, "rx", b"2\r\n"), (10, "rx", b">>> ")
        ]  # fmt: skip
        assert (recorder.rows, lost(store), line.recording) == (3, 0, "")


def test_what_the_tap_dropped_first_is_missing(tmp_path: Path) -> None:
    line = RecordedLine(kept_bytes=1 + CHUNK_BYTES)
    with recording(tmp_path, line) as (recorder, store):
        for _ in range(UNTAKEN_TIMES + 2):
            line.tap.feed("rx", b"x")
        recorder.finish()
        rest = range(2, UNTAKEN_TIMES + 2)
        assert told(store.log("demo").read()) == [(0, 1, "not read in time"), *((n, "rx", b"x") for n in rest)]
        assert (recorder.rows, lost(store)) == (UNTAKEN_TIMES, 2)
        assert [item.bytes for item in store.log("demo").read() if isinstance(item, Gap)] == [2]


def test_a_line_that_was_opened_again_is_a_cut(tmp_path: Path) -> None:
    line = RecordedLine()
    with recording(tmp_path, line) as (recorder, store):
        line.tap.cut("the line was opened")
        line.tap.feed("rx", b"a")
        line.tap.feed("rx", b"b")
        line.tap.cut("the line was lost: it was pulled")
        line.tap.feed("rx", b"c")
        recorder.finish()
        batches = [item.batch for item in store.log("demo").read() if isinstance(item, NumberedRows)]
        cuts = [cut for batch in batches for cut in batch.column("cut").to_pylist()]
        assert cuts == [BEGAN, None, "the line was lost: it was pulled"]


@pytest.mark.parametrize(
    ("before", "between", "cut"),
    [
        ([], lambda tap: None, BEGAN),
        ([b"half"], lambda tap: None, BEGAN),
        ([b"whole\n"], lambda tap: None, BEGAN_AT_LINE),
        ([b"whole\n"], lambda tap: tap.cut("the line was opened"), BEGAN),
        ([b"half"], lambda tap: tap.end_of_request(begins_line=True), BEGAN_AT_LINE),
        ([b"whole\n"], lambda tap: tap.end_of_request(begins_line=False), BEGAN),
    ],
)
def test_whether_a_recording_begins_with_a_line_is_recorded(
    tmp_path: Path, before: list[bytes], between: Callable[[Tap], object], cut: str
) -> None:
    line = RecordedLine()
    for data in before:
        line.tap.feed("rx", data)
    with recording(tmp_path, line) as (recorder, store):
        between(line.tap)
        line.tap.feed("rx", b"1\n")
        line.tap.feed("rx", b"2\n")
        recorder.finish()
        batches = [item.batch for item in store.log("demo").read() if isinstance(item, NumberedRows)]
        assert [value for batch in batches for value in batch.column("cut").to_pylist()] == [cut, None]


@pytest.mark.parametrize(("number", "says"), [(errno.ENOSPC, "no room"), (errno.EIO, "disk")])
def test_a_disk_that_fails_for_a_while_costs_nothing_that_the_tap_still_has(
    tmp_path: Path, number: int, says: str
) -> None:
    line, disk = RecordedLine(), Disk(tmp_path)
    with recording(tmp_path, line, disk) as (recorder, store):

        async def main() -> None:
            running = asyncio.ensure_future(recorder.run())
            disk.broken = number
            line.tap.feed("rx", b"a")
            await line.becomes(lambda state: state.startswith("recording failed: "))
            line.tap.feed("rx", b"b")
            live = line.tap.reader(seq=0)
            assert [item.data for item in live.take(0)] == [b"a", b"b"]  # type: ignore[union-attr]
            disk.broken = 0
            await line.becomes(lambda state: state == "recording")
            recorder.end()
            await running

        asyncio.run(main())
        recorder.finish()
        assert told(store.log("demo").read()) == [(0, "rx", b"a"), (1, "rx", b"b")]
        assert recorder.failures >= 1 and lost(store) == 0


def test_what_the_tap_let_go_of_while_the_disk_was_full_is_missing(tmp_path: Path) -> None:
    line, disk = RecordedLine(kept_bytes=2 * (1 + CHUNK_BYTES)), Disk(tmp_path)
    with recording(tmp_path, line, disk) as (recorder, store):

        async def main() -> None:
            running = asyncio.ensure_future(recorder.run())
            disk.fill()
            line.tap.feed("rx", b"0")
            line.tap.feed("rx", b"1")
            await line.becomes(lambda state: state.startswith("recording failed: "))
            for data in (b"2", b"3", b"4"):
                line.tap.feed("rx", data)
            disk.broken = 0
            await line.becomes(lambda state: state == "recording")
            recorder.end()
            await running

        asyncio.run(main())
        recorder.finish()
        assert told(store.log("demo").read()) == [
            (0, 2, "disk full"), (3, "rx", b"3"), (4, "rx", b"4")
        ]  # fmt: skip
        assert lost(store) == 3
        assert [item.bytes for item in store.log("demo").read() if isinstance(item, Gap)] == [3]


def test_a_disk_that_stays_full_does_not_keep_the_recorder_from_ending(tmp_path: Path) -> None:
    line, disk = RecordedLine(), Disk(tmp_path)
    with recording(tmp_path, line, disk) as (recorder, store):
        disk.fill()
        line.tap.feed("rx", b"a")
        recorder.finish()
        assert told(store.log("demo").read()) == []


def test_what_waits_for_room_when_the_loop_ends_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is slow in the moment in which the server is told to end."""
    monkeypatch.setattr("fastflight.log.writer.MAX_WAITING_BYTES", 1)
    line, disk = RecordedLine(), SlowDisk(tmp_path)
    with recording(tmp_path, line, disk) as (recorder, store):

        async def main() -> None:
            running = asyncio.ensure_future(recorder.run())
            line.tap.feed("rx", b"on its way")
            await asyncio.sleep(0)
            await asyncio.to_thread(disk.asked.wait, SOON)
            line.tap.feed("rx", b"waits for room")
            running.cancel()
            await asyncio.wait([running])

        disk.goes_on.clear()
        asyncio.run(main())
        disk.goes_on.set()
        recorder.finish()
        assert told(store.log("demo").read()) == [(0, "rx", b"on its way"), (1, "rx", b"waits for room")]
        assert (recorder.rows, lost(store)) == (2, 0)


def test_a_piece_too_long_for_the_log_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PIECE_BYTES", 3)
    line = RecordedLine()
    with recording(tmp_path, line) as (recorder, store):
        for data in (b"abc", b"abcd", b"ab"):
            line.tap.feed("rx", data)
        recorder.finish()
        assert told(store.log("demo").read()) == [(0, "rx", b"abc"), (1, 1, "not read in time"), (2, "rx", b"ab")]


STEPS = st.lists(
    st.one_of(
        st.integers(1, 6),  # so many chunks
        st.sampled_from(["full", "mended", "turn", "cut"]),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=25)
@given(steps=STEPS, keeps=st.integers(1, 8))
def test_every_number_is_a_row_or_missing_whatever_happens(steps: list[int | str], keeps: int) -> None:
    line = RecordedLine(keeps * (1 + CHUNK_BYTES))
    with TemporaryDirectory() as folder, recording(Path(folder), line) as (recorder, store):
        disk = store.disk
        assert isinstance(disk, Disk)

        async def main() -> None:
            running = asyncio.ensure_future(recorder.run())
            for step in steps:
                if isinstance(step, int):
                    for _ in range(step):
                        line.tap.feed("rx", bytes([line.tap.next_seq % 251]))
                elif step == "turn":
                    for _ in range(5):
                        await asyncio.sleep(0)
                elif step == "cut":
                    line.tap.cut("on request")
                else:
                    disk.broken = errno.ENOSPC if step == "full" else 0
            recorder.end()
            await running

        asyncio.run(main())
        disk.broken = 0
        recorder.finish()
        numbers: list[int] = []
        missing = 0
        for item in store.log("demo").read():
            if isinstance(item, NumberedRows):
                assert item.batch.column("data").to_pylist() == [
                    bytes([n % 251]) for n in range(item.first, item.last + 1)
                ]
            else:
                assert item.why in ("not read in time", "disk full", "line lost")
                missing += item.rows or 0
                assert item.bytes in (None, item.rows)
            numbers += range(item.first, item.last + 1)
        assert numbers == list(range(line.tap.next_seq))
        assert (recorder.rows, lost(store)) == (len(numbers) - missing, missing)
