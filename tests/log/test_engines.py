"""The log as its users see it, wherever its rows are."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fastflight.errors import DataError, RequestError, SequenceConflict, UnknownName
from fastflight.log import LogReader, Range, Retention, Store, Ticket, compact
from fastflight.log.values import MAX_SEQ
from fastflight.service.requests import Recording
from fastflight.sources import recording
from fastflight.sources.recording import RecordingSource
from fastflight.sources.session_lines import BEGAN
from fastflight.sources.typed_rows import TypedRows
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import batch_of, checked, filled, log_batch, missing, numbers, rows_of, time_of
from tests.sources.test_session_rows import told
from tests.support.source_items import items


class Engine:
    """Opens the store in a folder again and again.

    With `file_bytes`, the tail is compacted before each look at a log: sorted, or with 0 to Parquet files.
    """

    def __init__(self, folder: Path, file_bytes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._monkeypatch = monkeypatch

    @contextlib.contextmanager
    def store(self, retention: Retention | None = None, clock: Callable[[], float] = time.time) -> Iterator[Store]:
        def compacting(look: Callable[..., object]) -> Callable[..., object]:
            def compact_and_look(*arguments: object) -> object:
                assert self._file_bytes is not None
                compact(store, file_bytes=self._file_bytes, least=1)
                return look(*arguments)

            return compact_and_look

        with (
            Store(self._folder, sync_ms=0, retention=retention, clock=clock, ticks=clock) as store,
            self._monkeypatch.context() as patch,
        ):
            for name in ("read", "statistics", "extents") if self._file_bytes is not None else ():
                patch.setattr(LogReader, name, compacting(getattr(LogReader, name)))
            yield store


@pytest.fixture(params=[None, 1 << 20, 0], ids=["as appended", "sorted", "in files"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(tmp_path, request.param, monkeypatch)


def test_what_was_acknowledged_is_there_after_opening_again(engine: Engine) -> None:
    with engine.store() as store:
        log = store.open("demo")
        tickets = [log.append(batch_of("demo", 0, 3)), log.append(batch_of("demo", 3, 1), expected=3)]
        assert [(ticket.first, ticket.last) for ticket in tickets] == [(0, 2), (3, 3)]
        tickets[1].result()
    with engine.store() as store:
        assert store.names() == ["demo"]
        log = store.log("demo")
        assert log.next_seq == 4
        assert numbers(checked("demo", log.read())) == {0, 1, 2, 3}


def test_a_ticket_is_done_when_its_rows_are_durable(engine: Engine) -> None:
    with engine.store() as store:
        ticket = store.open("demo").append(batch_of("demo", 0, 1))
        ticket.result()
        assert ticket.done


def test_a_recording_is_replayed_as_it_was_recorded(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, gaps and the place of each are those of a plain store, whole and in the parts that are read in parallel."""

    def fill(store: Store) -> None:
        log = store.open("demo")
        for first, last, paused_until in ((0, 9, 0), (10, 14, 0), (20, 39, 0), (100, 119, 100)):
            lines = [Chunk(n, n * 10**9, "rx", b"%d,%d\n" % (n, n % 7)) for n in range(first, last + 1)]
            batch = log_batch(lines, {0: BEGAN, 30: "the line was lost: it was pulled"})
            log.append(batch, first=first, paused_until=paused_until).result()
            if first == 10:
                assert log.statistics().rows == 15  # one engine compacts these, and later the others

    def answers(store: Store) -> list[object]:
        source = RecordingSource(store, TypedRows(store.log).parser)
        found: list[object] = []
        for keys in (
            {},
            {"from_seq": 5, "to_seq": 110},
            {"from_time": datetime.fromtimestamp(12, UTC), "to_time": datetime.fromtimestamp(105, UTC)},
            {"limit_rows": 17},
            {"columns": ("seq", "time")},
            {"format": "csv", "schema": {"a": "int64", "b": "int64"}},
            {"format": "lines", "from_seq": 25},
            {"from_seq": 15, "to_seq": 19},
        ):
            request = Recording.model_validate({"name": "demo", **keys})
            whole = told(items(source.read(request)))
            divided = source.parts(request, source.describe(request)).parts
            rows = [row for part in divided for row in told(items(source.read(part.request))) if "seq" in row]
            assert rows == [row for row in whole if "seq" in row]
            found.append(whole)
        return found

    monkeypatch.setattr(recording, "PART_BYTES", 1)
    with Store(tmp_path / "plain", sync_ms=0) as plain, engine.store() as store:
        fill(plain)
        fill(store)
        assert answers(store) == answers(plain)


def test_an_append_that_expects_another_number_keeps_nothing(engine: Engine) -> None:
    with engine.store() as store:
        log = filled(store, rows=10)
        for expected in (9, 11):
            with pytest.raises(SequenceConflict) as conflict:
                log.append(batch_of("demo", 0, 1), expected=expected)
            assert (conflict.value.expected, conflict.value.actual) == (expected, 10)
        with pytest.raises(SequenceConflict):
            log.append(batch_of("demo", 0, 1), first=9)
        assert numbers(log.read()) == set(range(10))


def test_rows_that_never_came_are_told_from_rows_that_are_damaged(engine: Engine) -> None:
    with engine.store() as store:
        log = filled(store, rows=10)
        log.append(batch_of("demo", 15, 5), first=15).result()
        items = list(checked("demo", log.read()))
        assert missing(items) == [(10, 14, "not read in time")]
        assert missing(log.read(Range(12, 13))) == [(12, 13, "not read in time")]
    with engine.store() as store:
        assert list(map(repr, store.log("demo").read())) == list(map(repr, items))


def test_ranges_by_number(engine: Engine) -> None:
    with engine.store() as store:
        log = filled(store)
        filled(store, "other")
        for first, last in [(0, 99), (5, 5), (9, 10), (15, 63), (99, 99), (95, 500)]:
            items = list(checked("demo", log.read(Range(first, last))))
            assert numbers(items) == set(range(first, min(last, 99) + 1))
            assert not missing(items)
        assert list(log.read(Range(100, 200))) == []


def test_ranges_by_time(engine: Engine) -> None:
    with engine.store() as store:
        log = filled(store)
        for first, end in [(0, 100), (5, 6), (9, 11), (15, 64), (99, 100)]:
            items = list(checked("demo", log.read(Range(from_time=time_of(first), until_time=time_of(end)))))
            assert numbers(items) == set(range(first, end))
        assert numbers(log.read(Range(from_seq=20, from_time=time_of(10), until_time=time_of(30)))) == set(
            range(20, 30)
        )
        assert list(log.read(Range(from_time=time_of(100)))) == []


def test_times_that_step_back_are_found_all_the_same(engine: Engine) -> None:
    with engine.store() as store:
        log = store.open("demo")
        for seconds in ([5, 9, 7], [1, 2, 8]):
            log.append(rows_of([(s * 1_000_000, b"x") for s in seconds])).result()
        found = numbers(log.read(Range(from_time=7_000_000, until_time=9_000_000)))
        assert found == {2, 5}


def test_a_log_is_found_by_its_name(engine: Engine) -> None:
    with engine.store() as store:
        log = filled(store)
        assert store.open("demo") is log
        with pytest.raises(RequestError):
            store.open("")
        with pytest.raises(UnknownName, match="'demo'"):
            store.log("dem")


def test_batches_that_do_not_fit_are_refused(engine: Engine) -> None:
    with engine.store() as store:
        log = store.open("demo")
        with pytest.raises(DataError, match="another schema"):
            log.append(batch_of("demo", 0, 1).select(["time", "data"]))
        with pytest.raises(DataError, match="no time"):
            log.append(rows_of([(None, b"")]))
        with pytest.raises(DataError, match="without rows"):
            log.append(batch_of("demo", 0, 0))
        with pytest.raises(RequestError, match="numbers go up"):
            log.append(batch_of("demo", 0, 1), first=MAX_SEQ)
        assert log.next_seq == 0


def test_a_slice_of_a_batch_is_kept_as_such(engine: Engine) -> None:
    with engine.store() as store:
        log = store.open("demo")
        log.append(batch_of("demo", 0, 300).slice(0, 2)).result()
        log.append(batch_of("demo", 0, 300).slice(2, 200)).result()
        assert numbers(checked("demo", log.read())) == set(range(202))
        assert numbers(log.read(Range(from_time=time_of(150)))) == set(range(150, 202))


def test_threads_get_numbers_of_their_own(engine: Engine) -> None:
    with engine.store() as store:
        log = store.open("demo")
        given: list[Ticket] = []

        def append() -> None:
            for _ in range(50):
                ticket = log.append(batch_of("x", 0, 2))
                ticket.result()
                given.append(ticket)

        threads = [threading.Thread(target=append) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(a.first for a in given) == list(range(0, 400, 2))
        assert numbers(log.read()) == set(range(400))


def test_a_hole_counts_in_a_range_of_time_only_next_to_rows_in_it(engine: Engine) -> None:
    with engine.store() as store:
        log = store.open("a")
        log.append(batch_of("a", 0, 5)).result()
        log.append(batch_of("a", 7, 3), first=7).result()
        log.append(batch_of("a", 12, 3), first=12).result()
        assert missing(log.read(Range(from_time=time_of(7)))) == [
            (5, 6, "not read in time"),
            (10, 11, "not read in time"),
        ]
        assert missing(log.read(Range(from_time=time_of(8)))) == [(10, 11, "not read in time")]
        assert missing(log.read(Range(until_time=time_of(9)))) == [(5, 6, "not read in time")]


def test_lost_rows_are_counted_and_pauses_are_not(engine: Engine) -> None:
    with engine.store() as store:
        log = store.open("a")
        log.append(batch_of("a", 5, 5), first=5, paused_until=5).result()
        log.append(batch_of("a", 12, 3), first=12).result()
        log.append(batch_of("a", 100, 3), first=100, paused_until=98).result()
        log.append(batch_of("a", 103, 1)).result()
        holes = [(0, 4, "unused"), (10, 11, "not read in time"), (15, 97, "unused"), (98, 99, "not read in time")]
        assert missing(log.read()) == holes
        statistics = log.statistics()
        assert (statistics.lost, statistics.rows) == (4, 12)
        assert (statistics.first_seq, statistics.next_seq) == (0, 104)
        assert (statistics.first_time, statistics.last_time) == (time_of(5), time_of(103))


def test_extents_cover_a_range(engine: Engine) -> None:
    with engine.store() as store:
        log = filled(store)
        log.append(batch_of("demo", 120, 10), first=120).result()
        for wanted, rows in [(Range(), 110), (Range(15, 63), 49), (Range(95, 122), 8), (Range(100, 110), 0)]:
            found = log.extents(wanted)
            assert sum(extent.rows for extent in found) == rows
            assert all(extent.bytes for extent in found)
        assert log.extents(Range(from_time=time_of(130))) == []
        found = log.extents(Range(from_time=time_of(125)))
        assert [extent.last for extent in found] == [129] and found[0].rows >= 5


def test_retention_by_size_and_age_forgets_no_number(engine: Engine) -> None:
    now = time.time()
    retention = Retention(max_seconds=1000, max_bytes=12_000)
    with engine.store(retention, lambda: now) as store:
        quiet = filled(store, "quiet", 10)
        log = filled(store, rows=200, lot=5)
        assert store.sweep() > 0
        kept = numbers(log.read())
        assert kept == set(range(log.statistics().first_seq, 200)) and 0 < len(kept) < 200
        assert missing(log.read(Range(from_seq=0))) == [(0, min(kept) - 1, "cleared")]
        assert list(quiet.read()) == [] and quiet.statistics().next_seq == 10
        now += 601  # the clocks have kept pace for ten minutes
        store.sweep()
        now += 1001
        log.append(batch_of("demo", 200, 5)).result()
        now += 1001
        store.sweep()
        assert max(numbers(checked("demo", log.read()))) == 204
    with engine.store() as store:
        assert store.names() == ["demo", "quiet"]
        store.log("quiet").append(batch_of("quiet", 10, 1), expected=10).result()
        assert numbers(checked("quiet", store.log("quiet").read())) == {10}
