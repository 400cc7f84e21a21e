"""The embedded engine as its users see it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastflight.errors import BusyError, Stopped, StorageError
from fastflight.log import (
    Gap,
    NumberedRows,
    Range,
    Retention,
    Store,
    compact,
)
from tests.log.rows import batch_of, checked, clear, filled, missing, numbers, rows_of, stored_bytes


def test_deleted_rows_are_not_served_and_stay_deleted(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        log = filled(store)
        clear(store, "demo", 50)
        assert numbers(log.read()) == set(range(50, 100))
    with Store(tmp_path, sync_ms=0) as store:
        log = store.log("demo")
        assert numbers(checked("demo", log.read())) == set(range(50, 100))
        assert missing(log.read(Range(45, 60))) == [(45, 49, "cleared")]
        assert (log.statistics().rows, log.statistics().first_seq) == (50, 50)


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
        log = store.open("demo")
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
        store.open("demo").append(batch_of("demo", 0, 5)).result()
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
        tickets = [store.open(f"board{i}").append(batch_of(f"board{i}", 0, 1)) for i in range(50)]
        assert not tickets[0].done
        with pytest.raises(TimeoutError):
            tickets[0].result(0)
        assert all(list(store.log(f"board{i}").read()) == [] for i in range(50))
    for ticket in tickets:
        ticket.result()
    assert [(ticket.first, ticket.last) for ticket in tickets] == [(0, 0)] * 50
    assert store.commits == 1


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
    for module in ("database", "reading"):
        monkeypatch.setattr(f"fastflight.log.{module}.PAGE", 2)
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("demo")
        for start in range(0, 400, 10):
            log.append(batch_of("demo", start, 10)).result()
            if in_files:
                compact(store, file_bytes=0, least=1)
        reading = log.read(Range(from_seq=0))
        first = next(reading)
        assert isinstance(first, NumberedRows)
        clear(store, "demo", 200)
        rest = list(checked("demo", reading))
        gap = next(item for item in rest if isinstance(item, Gap))
        assert gap.last == 199 and gap.why == "cleared"
        assert numbers(rest) >= set(range(200, 400))


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
        log = store.open("demo")
        before = 0
        while before < max(2 * max_bytes, 4000):
            log.append(batch_of("demo", log.next_seq, 5)).result()
            last = stored_bytes(store) - before
            before += last
        assert store.sweep() > 0
        assert stored_bytes(store) <= max(max_bytes, 2 * last)
        kept = numbers(checked("demo", log.read()))
        assert kept == set(range(log.first, log.next_seq)) and len(kept) * 4 >= log.next_seq * (max_bytes > 1000)


def test_large_files_are_read_one_after_another(tmp_path: Path) -> None:
    """Not joined in memory, as the rows of boards that print little are."""
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("demo")
        for number in range(3):
            log.append(rows_of([(number, os.urandom(2_000_000))])).result()
            compact(store, file_bytes=0, least=1)
        assert [item.first for item in log.read()] == [0, 1, 2]
