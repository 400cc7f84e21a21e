"""The embedded engine as its users see it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastflight.errors import BusyError, Stopped, StorageError
from fastflight.log import (
    Appended,
    Gap,
    Log,
    NumberedRows,
    Range,
    Retention,
    Store,
    StoreReader,
    compact,
)
from tests.log.rows import PLAIN, SCHEMA, batch_of, checked, missing, numbers


def filled(store: Store, name: str = "demo", rows: int = 100, lot: int = 10) -> Log:
    log = store.open(name, SCHEMA)
    for first in range(0, rows, lot):
        log.append(batch_of(name, first, lot)).result()
    return log


def test_rows_that_were_lost_are_counted_and_pauses_are_not(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("a", SCHEMA)
        log.append(batch_of("a", 5, 5), first=5, paused_until=5).result()
        log.append(batch_of("a", 12, 3), first=12).result()
        log.append(batch_of("a", 100, 3), first=100, paused_until=98).result()
        log.append(batch_of("a", 103, 1)).result()
        holes = [(0, 4, "unused"), (10, 11, "not read in time"), (15, 97, "unused"), (98, 99, "not read in time")]
        assert missing(log.read()) == holes and log.statistics().lost == 4
    with Store(tmp_path, sync_ms=0) as store:
        log = store.log("a")
        assert log.statistics().lost == StoreReader(tmp_path).log("a").statistics().lost == 4
        assert compact(store, file_bytes=0, least=1)
        assert missing(log.read()) == holes and log.statistics().lost == 4
        log.trim(11).result()
        assert log.statistics().lost == 3
    with Store(tmp_path, sync_ms=0) as store:
        assert store.log("a").statistics().lost == StoreReader(tmp_path).log("a").statistics().lost == 3


def test_the_logs_with_new_durable_rows(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        assert store.find("a") is None and store.beyond({}) == {}
        filled(store, "a", rows=20)
        filled(store, "b", rows=10)
        store.open("empty", SCHEMA)
        assert store.find("a") is store.log("a")
        assert store.beyond({}) == {"a": 20, "b": 10}
        assert store.beyond({"a": 19, "b": 10}) == {"a": 20} and store.beyond({"a": 20, "b": 10}) == {}


def test_a_trim_stays_whatever_is_appended_right_behind_it(tmp_path: Path) -> None:
    """Both are of one group."""
    with Store(tmp_path, sync_ms=0) as store:
        filled(store)
    with Store(tmp_path, sync_ms=60_000) as store:
        log = store.log("demo")
        trimmed, appended = log.trim(55), log.append(batch_of("demo", 100, 5))
    assert trimmed.result() and appended.result() == Appended(100, 104)
    with Store(tmp_path) as store:
        assert numbers(checked("demo", store.log("demo").read())) == set(range(55, 105))


def test_a_trim_stays_whatever_is_trimmed_right_behind_it(tmp_path: Path) -> None:
    """The second one does not know of the first yet, and asks for less."""
    with Store(tmp_path, sync_ms=60_000) as store:
        log = filled(store, rows=0)
        log.append(batch_of("demo", 0, 100))
        tickets = log.trim(55), log.trim(10)
    assert all(ticket.result() for ticket in tickets)
    with Store(tmp_path) as store:
        assert numbers(checked("demo", store.log("demo").read())) == set(range(55, 100))


def test_sweeping_gives_room_back_and_forgets_no_number(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        quiet, log = filled(store, "quiet", 10), filled(store)
        before = store.statistics()
        assert compact(store, file_bytes=0, least=1) and list(tmp_path.glob("*.parquet"))
        quiet.trim(10).result()
        log.trim(100).result()
        assert store.sweep() > 0
        assert store.statistics().bytes == 0 < before.bytes
        assert not list(tmp_path.glob("*.parquet"))
    with Store(tmp_path) as store:
        assert store.names() == ["demo", "quiet"]
        assert (store.log("demo").next_seq, store.log("quiet").next_seq) == (100, 10)
        assert list(store.log("demo").read()) == []
        store.log("quiet").append(batch_of("quiet", 10, 1), expected=10).result()


@pytest.mark.parametrize("in_files", [False, True])
def test_retention_by_size_and_age(tmp_path: Path, in_files: bool) -> None:
    now = 1000.0
    retention = Retention(max_seconds=1000, max_bytes=12_000)
    with Store(tmp_path, sync_ms=0, retention=retention, clock=lambda: now, ticks=lambda: now) as store:
        log = store.open("demo", SCHEMA)
        for first in range(0, 200, 5):
            log.append(batch_of("demo", first, 5)).result()
            if in_files:
                compact(store, file_bytes=0, least=1)
        assert store.sweep() > 0
        assert store.statistics().bytes <= 12_000
        kept = numbers(log.read())
        assert kept == set(range(log.statistics().first_seq, 200)) and len(kept) > 5
        assert missing(log.read(Range(from_seq=0))) == [(0, min(kept) - 1, "cleared")]
        now += 1010
        log.append(batch_of("demo", 200, 5)).result()
        now += 1010
        store.sweep()
        assert numbers(checked("demo", log.read())) == set(range(200, 205))
    with Store(tmp_path) as store:
        assert store.log("demo").statistics().first_seq == 200


@pytest.mark.parametrize("jump", [3_600, 86_400, 30 * 365 * 86_400, -3_600, -86_400, -30 * 365 * 86_400])
def test_a_clock_that_jumps_lets_go_of_nothing(tmp_path: Path, jump: float) -> None:
    """Forward, all would be too old at once; back, what came then would be from the future, and never too old."""
    now, ticks = 2e9, 0.0

    def pass_by(seconds: float) -> None:
        nonlocal now, ticks
        now, ticks = now + seconds, ticks + seconds

    with Store(
        tmp_path,
        sync_ms=0,
        retention=Retention(max_seconds=1800),
        clock=lambda: now,
        ticks=lambda: ticks,
    ) as store:
        log = store.open("demo", SCHEMA)
        log.append(batch_of("demo", 0, 5)).result()
        pass_by(1000)
        log.append(batch_of("demo", 5, 5)).result()
        now += jump
        log.append(batch_of("demo", 10, 5)).result()
        assert store.sweep() == 0
        pass_by(500)
        log.append(batch_of("demo", 15, 5)).result()
        assert store.sweep() == 0
        now -= jump
        log.append(batch_of("demo", 20, 5)).result()
        assert store.sweep() == 0
        pass_by(700)
        log.append(batch_of("demo", 25, 5)).result()
        assert store.sweep() == 0
        assert numbers(checked("demo", log.read())) == set(range(30))
        # Later, with a clock that is right again, each goes when its time has come: what came meanwhile, too.
        pass_by(10_000)
        log.append(batch_of("demo", 30, 5)).result()
        store.sweep()
        pass_by(10_000)
        store.sweep()
        assert numbers(log.read()) == set(range(30, 35))


@pytest.mark.parametrize("year", [-30, -1, 1, 30])
def test_rows_before_a_time_with_a_wrong_clock_are_no_older_for_it(tmp_path: Path, year: int) -> None:
    """As of a computer that has no time of its own, until it has got the time from the network."""
    now, ticks = 2e9, 0.0
    options = {"sync_ms": 0, "retention": Retention(max_seconds=86_400)}
    with Store(tmp_path, clock=lambda: now, ticks=lambda: ticks, **options) as store:
        store.open("demo", SCHEMA).append(batch_of("demo", 0, 5)).result()
    now += year * 365 * 86_400
    with Store(tmp_path, clock=lambda: now, ticks=lambda: ticks, **options) as store:
        log = store.log("demo")
        log.append(batch_of("demo", 5, 5)).result()
        assert store.sweep() == 0
        now += 60 - year * 365 * 86_400
        log.append(batch_of("demo", 10, 5)).result()
        for _ in range(3):
            now, ticks = now + 700, ticks + 700
            assert store.sweep() == 0
        assert numbers(checked("demo", log.read())) == set(range(15))
        now, ticks = now + 1000, ticks + 1000
        log.append(batch_of("demo", 15, 5)).result()
        now, ticks = now + 90_000, ticks + 90_000
        assert store.sweep() > 0
        assert numbers(checked("demo", log.read())) == set(range(15, 20))


def test_a_store_that_was_opened_with_a_wrong_clock_lets_go_of_nothing_at_first(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        filled(store)
    ticks = 0.0
    with Store(tmp_path, retention=Retention(max_seconds=60), clock=lambda: 4e9 + ticks, ticks=lambda: ticks) as store:
        for ticks in (0.0, 60.0, 599.0):  # noqa: B007  # a clock
            assert store.sweep() == 0
        ticks = 600.0
        assert store.sweep() > 0


def test_a_second_writer_is_told_at_once_who_writes(tmp_path: Path) -> None:
    with Store(tmp_path, holder="fastflight serve"), pytest.raises(BusyError) as busy:
        Store(tmp_path)
    assert "fastflight serve (pid " in busy.value.holder
    Store(tmp_path).close()


def test_appends_of_one_moment_share_a_sync(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=10_000) as store:
        tickets = [store.open(f"board{i}", SCHEMA).append(batch_of(f"board{i}", 0, 1)) for i in range(50)]
        assert not tickets[0].done
        with pytest.raises(TimeoutError):
            tickets[0].result(0)
        assert all(list(store.log(f"board{i}").read()) == [] for i in range(50))
    assert [ticket.result() for ticket in tickets] == [Appended(0, 0)] * 50
    assert store.statistics().commits == 1


def test_closed_is_closed(tmp_path: Path) -> None:
    store = Store(tmp_path, retention=Retention(max_bytes=4000))
    filled(store, "silent", 10)
    log = filled(store)
    store.close()
    store.close()
    with pytest.raises(Stopped):
        log.append(batch_of("demo", 100, 1))
    with pytest.raises(Stopped):
        store.sweep()
    with pytest.raises(Stopped):
        compact(store)


@pytest.mark.parametrize("in_files", [False, True])
def test_reading_goes_on_over_what_is_removed_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_files: bool
) -> None:
    monkeypatch.setattr("fastflight.log.database.PAGE", 2)
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("demo", SCHEMA)
        for start in range(0, 400, 10):
            log.append(batch_of("demo", start, 10)).result()
            if in_files:
                compact(store, file_bytes=0, least=1)
        reading = log.read(Range(from_seq=0))
        first = next(reading)
        assert isinstance(first, NumberedRows)
        log.trim(200).result()
        assert store.sweep() > 1
        rest = list(checked("demo", reading))
        gap = next(item for item in rest if isinstance(item, Gap))
        assert gap.last == 199 and gap.why == "cleared"
        assert numbers(rest) >= set(range(200, 400))


def test_rows_of_columns_are_stored_as_those_of_batches(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=60_000) as store:
        for name in ("columns", "batch", "more columns"):
            log = store.open(name, PLAIN)
            batch = batch_of("same", 0, 5, PLAIN)
            values = [batch.column(0).cast("int64").to_pylist(), batch.column(1).to_pylist()]
            log.append(batch if name == "batch" else values)
    with Store(tmp_path) as store:
        for name in store.names():
            assert list(checked("same", store.log(name).read(), PLAIN))[0].last == 4


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_database_that_is_a_link_is_not_opened(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    (tmp_path / "elsewhere").touch()
    (folder / "recordings.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        Store(folder)
    assert not (tmp_path / "elsewhere").stat().st_size


@pytest.mark.parametrize("max_bytes", [1, 1000, 100_000])
def test_a_small_limit_is_kept(tmp_path: Path, max_bytes: int) -> None:
    with Store(tmp_path, sync_ms=0, retention=Retention(max_bytes=max_bytes)) as store:
        log = store.open("demo", SCHEMA)
        before = 0
        while before < max(2 * max_bytes, 4000):
            log.append(batch_of("demo", log.next_seq, 5)).result()
            last = store.statistics().bytes - before
            before += last
        assert store.sweep() > 0
        assert store.statistics().bytes <= max(max_bytes, 2 * last)
        kept = numbers(checked("demo", log.read()))
        assert kept == set(range(log.first, log.next_seq)) and len(kept) * 4 >= log.next_seq * (max_bytes > 1000)
