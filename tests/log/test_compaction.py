"""Compaction: the same rows before and after, in files that any tool reads, and nothing lost wherever it fails."""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastflight.errors import Stopped, StorageError
from fastflight.log import Gap, NumberedRows, Range, Retention, Store, compact
from tests.log.disks import FailingDisk
from tests.log.rows import batch_of, checked, clear, missing, numbers, rows_of


def filled(store: Store, boards: int = 3, commits: int = 40) -> None:
    for i in range(commits):
        tickets = [
            store.open(f"board{n}").append(batch_of(f"board{n}", i * 2, 2)) for n in range(boards)
        ]  # fmt: skip
        for ticket in tickets:
            ticket.result()


def check(store: Store, rows: int, boards: int = 3) -> None:
    for n in range(boards):
        items = list(checked(f"board{n}", store.log(f"board{n}").read()))
        assert numbers(items) == set(range(rows)) and not missing(items)


def test_the_tail_is_sorted_and_stays_in_the_tail(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=5) as store:
        filled(store, commits=5)
        assert not compact(store) and len(bodies(store)) >= 5  # too few to be worth it
        filled_from(store, 10, 55)
        assert not compact(store)
        assert sorted(log for log, _ in bodies(store)) == [1, 2, 3]
        check(store, 120)
        assert store.log("board1").statistics().rows == 120


def filled_from(store: Store, first: int, commits: int) -> None:
    for i in range(commits):
        for ticket in [store.open(f"board{n}").append(batch_of(f"board{n}", first + i * 2, 2)) for n in range(3)]:
            ticket.result()


def bodies(store: Store) -> list[tuple[int | None, str | None]]:
    with store.content.database.reading() as connection:
        return connection.execute("select log, file from bodies order by ordinal, id").fetchall()


def test_small_bodies_of_a_log_are_joined(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        for first in range(0, 140, 2):
            store.open("board0").append(batch_of("board0", first, 2)).result()
            compact(store, least=1)
        assert len(bodies(store)) < 40
        check(store, 140, boards=1)


def test_any_tool_reads_the_files(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        filled(store)
        log = store.log("board0")
        log.append(batch_of("board0", 85, 5), first=85).result()
        made = compact(store, file_bytes=0, least=1)
        assert len(made) == 3 == len(list(tmp_path.glob("*.parquet")))
        tables = [pq.read_table(tmp_path / name) for name in made]
        for table in tables:
            (name,) = set(table["fastflight.log"].to_pylist())
            seq = table["fastflight.seq"].to_pylist()
            assert table.schema.field("fastflight.seq").type == pa.uint64()
            assert table["data"].to_pylist() == [f"{name}:{n}".encode() for n in seq]
            assert seq == [*range(80), *range(85, 90)] if name == "board0" else list(range(80))
        assert missing(checked("board0", log.read())) == [(80, 84, "not read in time")]
        assert numbers(log.read(Range(70, 86))) == {*range(70, 80), 85, 86}


def test_what_is_worth_a_file_becomes_one(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        filled(store)
        large = store.open("large")
        rows = rows_of([(n * 1000, bytes([n % 251]) * 1000) for n in range(2000)])
        large.append(rows).result()
        (name,) = compact(store, least=1)
        assert pq.read_metadata(tmp_path / name).num_rows == 2000
        assert next(large.read()).batch.equals(rows)  # type: ignore[union-attr]
        stored = large.stored()
        assert (stored.files, stored.first, stored.end, stored.spans) == ([tmp_path / name], 0, 2000, [(0, 1999)])
        assert store.log("board0").stored().files == []
        stored.close()


def test_a_range_of_a_file_with_several_row_groups(tmp_path: Path) -> None:
    times = [*range(100_000), *range(70_000, 120_000)]  # the clock of the computer was set back
    rows = rows_of([(time, b"%d" % time) for time in times])
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("a")
        log.append(rows).result()
        (name,) = compact(store, file_bytes=0, least=1)
        assert pq.read_metadata(tmp_path / name).num_row_groups > 2
        for first, last in [(0, 149_999), (65_535, 65_536), (70_000, 140_000), (149_999, 149_999)]:
            (read,) = log.read(Range(first, last))
            assert isinstance(read, NumberedRows) and read.first == first
            assert read.batch.equals(rows.slice(first, last - first + 1))
        for start, stop in [(99_990, 100_010), (0, 10), (119_990, 120_000), (65_000, 75_000), (120_000, 130_000)]:
            wanted = Range(from_time=start, until_time=stop)
            assert numbers(log.read(wanted)) == {seq for seq, time in enumerate(times) if start <= time < stop}


def test_files_with_rows_and_the_rows_that_are_not_in_files(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("a")
        for first in range(0, 40, 10):
            log.append(batch_of("a", first, 10)).result()
            compact(store, file_bytes=0, least=1)
        log.append(batch_of("a", 50, 10), first=50).result()
        files = [tmp_path / f"{number:012d}.parquet" for number in file_numbers(store)]
        with log.stored() as found:
            # What is missing after the last file is reported by reading what comes after that.
            assert (found.files, found.end, found.gaps, found.lost) == (files, 40, 0, 0)
        clear(store, "a", 20)
        with log.stored() as found:
            assert (found.files, found.first, found.spans) == (files[2:], 20, [(20, 29), (30, 39)])
        damaged = bytearray(files[2].read_bytes())
        damaged[100] ^= 1
        files[2].write_bytes(damaged)
    with Store(tmp_path, sync_ms=0) as store, store.log("a").stored() as found:
        assert (found.files, found.gaps, found.lost) == (files[3:], 1, 10)


def test_rows_that_are_deleted_before_their_files_are_held_are_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("a")
        for first in (0, 10):
            log.append(batch_of("a", first, 10)).result()
            compact(store, file_bytes=0, least=1)
        hold = store.hold

        def late(names: list[str]) -> AbstractContextManager[None]:
            clear(store, "a", 10)
            return hold(names)

        monkeypatch.setattr(store, "hold", late)
        with log.stored() as found:
            assert (found.first, found.end, found.gaps, found.lost) == (10, 20, 0, 0)


@pytest.mark.parametrize("file_bytes", [10**9, 0])
def test_a_gap_without_numbers_outlives_a_compaction(tmp_path: Path, file_bytes: int) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        for name in ("a", "b"):
            log = store.open(name)
            log.append(batch_of(name, 0, 10)).result()
            log.append(batch_of(name, 10, 5), gap=Gap(0, -1, "line lost")).result()
            log.append(batch_of(name, 15, 5)).result()
            log.append(batch_of(name, 20, 5), gap=Gap(0, -1, "server down")).result()
        before = list(log.read())
        assert missing(before) == [(10, 9, "line lost"), (20, 19, "server down")]
        for _ in range(2):
            compact(store, file_bytes=file_bytes, least=1)
            assert missing(checked("b", log.read())) == missing(before)
            assert log.statistics().gaps == 2
        assert all(
            item.batch.equals(batch_of("b", item.first, item.batch.num_rows))
            for item in log.read(Range(from_time=10_000, until_time=20_000))
            if isinstance(item, NumberedRows)
        )


def test_a_gap_between_the_files_and_the_tail_is_reported_once(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("a")
        log.append(batch_of("a", 0, 10)).result()
        compact(store, file_bytes=0, least=1)
        log.append(batch_of("a", 10, 10), gap=Gap(0, -1, "server down")).result()
        with log.stored() as found:
            gaps = [item for item in log.read(Range(from_seq=found.end)) if isinstance(item, Gap)]
            assert len(gaps) + found.gaps == log.statistics().gaps == 1


def file_numbers(store: Store) -> list[int]:
    return [int(name[:12]) for _, name in bodies(store) if name]


def test_a_file_that_is_read_is_not_deleted(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0, retention=Retention(max_bytes=4000)) as store:
        log = store.open("a")
        log.append(batch_of("a", 0, 200)).result()
        compact(store, file_bytes=0, least=1)
        log.append(batch_of("a", 200, 10)).result()
        with log.stored() as found:
            assert store.sweep() == 0 and found.files[0].exists()
        assert store.sweep() == 1 and not found.files[0].exists()


def test_retention_after_a_compaction_takes_the_oldest_rows_of_each_log(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0, retention=Retention(max_bytes=1_000_000)) as store:
        logs = [store.open(name) for name in ("a", "b", "c")]

        def append(times: int) -> None:
            for _ in range(times):
                for log in logs:
                    log.append(rows_of([(n, bytes(500)) for n in range(10)])).result()

        append(55)
        compact(store, file_bytes=10**9, least=1)
        assert store.sweep() == 0
        append(15)
        assert store.sweep() > 0
        assert min(log.statistics().rows for log in logs) > 450


def with_files(folder: Path, first: int) -> None:
    with Store(folder, sync_ms=0) as store:
        store.open("a").append(batch_of("a", first, 10)).result()
        compact(store, file_bytes=0, least=1)


@pytest.mark.parametrize("database", ["missing", "empty", "older"])
def test_files_that_the_database_does_not_know_are_kept(tmp_path: Path, database: str) -> None:
    """Somebody moved it, a disk lost it, or a backup was put back."""
    folder, path = tmp_path / "recordings", tmp_path / "recordings" / "recordings.db"
    with_files(folder, 0)
    older = path.read_bytes()
    with_files(folder, 10)
    newer = path.read_bytes()
    content = {file: file.read_bytes() for file in folder.glob("*.parquet")}
    path.write_bytes({"missing": b"", "empty": b"", "older": older}[database])
    if database == "missing":
        path.unlink()
    for _ in range(2):
        with pytest.raises(StorageError, match="does not have the rows"):
            Store(folder)
    assert {file: file.read_bytes() for file in folder.glob("*.parquet")} == content
    for name in ("recordings.db-wal", "recordings.db-shm"):
        (folder / name).unlink(missing_ok=True)
    path.write_bytes(newer)
    with Store(folder) as store:
        assert numbers(checked("a", store.log("a").read())) == set(range(20))


def test_files_of_an_interrupted_compaction_are_removed(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("a")
        for first in (0, 10):
            log.append(batch_of("a", first, 10)).result()
        (made,) = compact(store, file_bytes=0, least=1)
        log.append(batch_of("a", 20, 10)).result()
    # The same rows once more, and a file of which some rows were deleted since.
    content = (tmp_path / made).read_bytes()
    copies = [tmp_path / f"{number:012d}.parquet" for number in (77, 78)]
    for copy in copies:
        copy.write_bytes(content)
    with Store(tmp_path, sync_ms=0) as store:
        assert not any(copy.exists() for copy in copies)
        clear(store, "a", 20)
    copies[0].write_bytes(content)
    with Store(tmp_path, sync_ms=0) as store:
        assert not copies[0].exists()
        assert numbers(store.log("a").read()) == set(range(20, 30))


def test_another_thread_may_end_it(tmp_path: Path) -> None:
    def enough() -> None:
        raise Stopped("enough")

    with Store(tmp_path, sync_ms=0) as store:
        filled(store)
        with pytest.raises(Stopped):
            compact(store, enough, file_bytes=0, least=1)
        check(store, 80)
        assert not list(tmp_path.glob("*.parquet"))
    with pytest.raises(Stopped):
        compact(store)


def test_a_compaction_that_fails_keeps_the_rows(tmp_path: Path) -> None:
    """At any of its steps, by turns because the disk is full and because it is broken."""
    calls, failing = 0, -1

    def fails(call: str, name: str) -> int:
        nonlocal calls
        if failing < 0 or call not in ("write", "sync"):
            return 0
        calls += 1
        return (errno.ENOSPC, errno.EIO)[failing % 2] if calls - 1 == failing else 0

    start, failed = 0, True
    while failed:
        folder = tmp_path / str(start)
        folder.mkdir()
        with Store(folder, sync_ms=0, disk=FailingDisk(folder, fails)) as store:
            filled(store, commits=5)
            calls, failing = 0, start
            try:
                compact(store, file_bytes=0, least=1)
            except StorageError as error:
                assert "on request" not in str(error)
            failed, failing = calls > start, -1
            check(store, 10)
        with Store(folder, sync_ms=0) as store:
            check(store, 10)
            assert not list(folder.glob("*.new"))
            assert {path.name for path in folder.glob("*.parquet")} == {name for _, name in bodies(store) if name}
        start += 1
    assert start > 10
