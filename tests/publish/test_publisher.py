"""A publisher with an output and a recording in memory: what it reads, when it tries again, what it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from fastflight.errors import StorageError, TransportError, UnknownName
from fastflight.log import Gap, NumberedRows, Range
from fastflight.publish.output import Message, Refusal
from fastflight.publish.publisher import PositionFile, Publisher
from fastflight.publish.rows import Position, RowFormat
from fastflight.sources import RowLayout
from fastflight.sources.recorder import RECORDING
from fastflight.sources.recording import Readable
from fastflight.transport.chunk_buffer import CHUNK_BYTES, Chunk
from fastflight.transport.tap import Tap
from tests.log.rows import log_batch

NUMBERS = RowFormat(RowLayout("csv", {"n": "int64"}))
# A tap with room for three short chunks.
KEPT_BYTES = 3 * (CHUNK_BYTES + 8)


class FakeOutput:
    """An output in memory. `errors` are raised by the next calls of `send`."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.sent: list[int] = []
        self.refusal: Refusal | None = None
        # Numbers that it has no form for.
        self.formless: set[int] = set()

    async def open(self) -> None: ...

    def encode(self, rows: pa.RecordBatch) -> Message:
        numbers = rows.column("n").to_pylist()
        if self.formless & set(numbers):
            raise ValueError("no form")
        return Message(rows.num_rows, numbers)

    async def send(self, message: Message) -> Refusal | None:
        if self.errors:
            raise self.errors.pop(0)
        self.sent += message.content
        return self.refusal

    def check(self) -> None: ...

    async def aclose(self) -> None: ...


class FakeRecording:
    """A recording in memory, of all chunks that were added, and what is missing in it."""

    def __init__(self, *missing: Gap) -> None:
        self.chunks: list[Chunk] = []
        self.missing = {each.first: each for each in missing}
        self.error: Exception | None = None

    def read(self, wanted: Range) -> Generator[NumberedRows | Gap, None, None]:
        if self.error is not None:
            raise self.error
        assert wanted.from_seq is not None and wanted.until_seq is not None
        kept = {chunk.seq: chunk for chunk in self.chunks}
        for seq in range(wanted.from_seq, wanted.until_seq + 1):
            if seq in self.missing:
                yield self.missing[seq]
            elif seq in kept:
                yield NumberedRows(seq, log_batch([kept[seq]], {}))


class Bench:
    """A publisher of a device that sends numbers: chunk `seq` ends a line, and has a line with `seq`."""

    def __init__(self, output: FakeOutput, recording: FakeRecording | None = None, path: Path | None = None) -> None:
        self.tap = Tap(KEPT_BYTES)
        self.tap.end_of_request(begins_line=True)
        self.recording = recording
        self.output = output
        self.path = path
        self.pauses: list[float] = []

    def publisher(self, on_pause: Callable[[int], bool] = lambda count: False) -> Publisher:
        """A publisher that does not wait after failures: it calls `on_pause`, and ends when that returns true."""
        recorded = "" if self.recording is None else RECORDING
        device = cast(Any, SimpleNamespace(name="demo", tap=self.tap, recording=recorded))
        publisher = Publisher(device, "fake://", self.output, NUMBERS, self.log, PositionFile(self.path))

        async def pause(seconds: float) -> bool:
            self.pauses.append(seconds)
            return on_pause(len(self.pauses))

        publisher._ended_within = pause  # type: ignore[method-assign]
        return publisher

    def log(self) -> Readable:
        if self.recording is None:
            raise UnknownName("no such recording", where="demo")
        return cast(Readable, self.recording)

    def feed(self, count: int) -> None:
        for _ in range(count):
            seq = self.tap.next_seq
            self.tap.feed("rx", b"\n%d\n" % seq)
            if self.recording is not None and seq not in self.recording.missing:
                self.recording.chunks.append(Chunk(seq, 0, "rx", b"\n%d\n" % seq))


def published(publisher: Publisher) -> None:
    """Run the publisher until everything is published."""
    publisher.end()
    asyncio.run(publisher.run())


def test_what_the_tap_dropped_comes_from_the_recording() -> None:
    bench = Bench(FakeOutput(), FakeRecording())
    publisher = bench.publisher()
    bench.feed(10)
    assert publisher.traffic.waiting == 10
    published(publisher)
    assert bench.output.sent == list(range(10))
    assert (publisher.sent, publisher.traffic.lost, publisher.traffic.waiting) == (10, 0, 0)
    # It missed nothing, so the device has no live traffic that somebody missed.
    assert bench.tap.missed == 0


def test_what_the_recording_lacks_is_counted() -> None:
    bench = Bench(FakeOutput(), FakeRecording(Gap(2, 2, "damaged"), Gap(4, 4, "not read in time")))
    publisher = bench.publisher()
    bench.feed(10)
    published(publisher)
    assert bench.output.sent == [0, 1, 3, 5, 6, 7, 8, 9] and publisher.traffic.lost == 2


def test_without_a_recording_the_oldest_traffic_is_lost_and_counted() -> None:
    bench = Bench(FakeOutput())
    publisher = bench.publisher()
    bench.feed(10)
    published(publisher)
    assert bench.output.sent == [7, 8, 9] and publisher.traffic.lost == 7


def test_a_recording_that_cannot_be_read_now_is_read_later() -> None:
    recording = FakeRecording()
    recording.error = StorageError("reading failed", where="disk", hint="Look at it")
    bench = Bench(FakeOutput(), recording)

    def repair(count: int) -> bool:
        recording.error = None
        publisher._ending = True
        return False

    publisher = bench.publisher(repair)
    bench.feed(10)
    asyncio.run(publisher.run())
    assert bench.output.sent == list(range(10)) and publisher.traffic.lost == 0 and len(bench.pauses) == 1


def test_publishing_goes_on_where_it_ended(tmp_path: Path) -> None:
    # Retention has deleted chunk 4. Numbers 8 to 99 were never used.
    recording = FakeRecording(Gap(4, 4, "cleared"), Gap(8, 99, "unused"))
    first = Bench(FakeOutput(), recording, tmp_path / "position.json")
    publisher = first.publisher()
    first.feed(3)
    published(publisher)
    first.feed(5)
    assert first.output.sent == [0, 1, 2]

    second = Bench(FakeOutput(), recording, tmp_path / "position.json")
    second.tap.begin_at(100)
    publisher = second.publisher()
    second.feed(2)
    published(publisher)
    assert second.output.sent == [3, 5, 6, 7, 100, 101] and publisher.traffic.lost == 1


def test_a_position_of_a_deleted_recording_is_not_used(tmp_path: Path) -> None:
    PositionFile(tmp_path / "position.json").save(Position(5, 1))
    bench = Bench(FakeOutput(), FakeRecording(), tmp_path / "position.json")
    publisher = bench.publisher()
    bench.feed(7)
    published(publisher)
    assert bench.output.sent == list(range(7))


def test_pauses_grow_while_rows_are_not_acknowledged() -> None:
    away = [TransportError("it does not answer", where="fake://") for _ in range(9)]
    bench = Bench(FakeOutput(*away))

    def look(count: int) -> bool:
        assert publisher.state.startswith("failed: ") and publisher.sent == 0
        publisher._ending = count == len(away)
        return False

    publisher = bench.publisher(look)
    bench.feed(2)
    with capture_logs() as logs:
        asyncio.run(publisher.run())
    assert bench.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert bench.output.sent == [0, 1] and publisher.state == "publishing"
    # It did not claim to publish in between.
    assert [entry["event"] for entry in logs] == ["publishing", "publishing failed", "publishing"]


@pytest.mark.parametrize("refused", [1, 2])
def test_refused_rows_are_counted_once_and_not_sent_again(refused: int) -> None:
    bench = Bench(FakeOutput())
    bench.output.refusal = Refusal(refused, "never")
    publisher = bench.publisher()
    bench.feed(2)
    bench.tap.feed("rx", b"no number\n\n")
    published(publisher)
    assert (publisher.sent, publisher.refused, publisher.misfits) == (2 - refused, refused, 1)
    assert bench.output.sent == [0, 1]


@pytest.mark.parametrize("formless", [{0}, {1}, {0, 2}, {0, 1, 2}])
def test_a_row_that_the_output_has_no_form_for_does_not_stop_the_next(formless: set[int]) -> None:
    bench = Bench(FakeOutput())
    bench.output.formless = formless
    publisher = bench.publisher(lambda count: True)
    bench.feed(3)
    published(publisher)
    assert bench.output.sent == sorted({0, 1, 2} - formless)
    assert (publisher.sent, publisher.refused, publisher.state) == (3 - len(formless), len(formless), "publishing")
    assert bench.pauses == []
