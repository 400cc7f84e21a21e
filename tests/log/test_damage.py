"""Bytes that changed, or went, anywhere in what is stored: never served, always reported, and the rest is there."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from fastflight.errors import FastFlightError, StorageError
from fastflight.log import Gap, Range, Retention, Store, StoreReader, compact
from tests.log.rows import batch_of, checked, missing, numbers

LOT, LOTS = 3, 6
ALL = set(range(LOT * LOTS))
# The first byte of a page in SQLite that has the numbers of other pages: of an index, and of a table.
INTERIOR = (2, 5)


def stored(folder: Path, file_bytes: int | None = None) -> Path:
    """Two logs in a folder whose writer was closed, so that all is in the database, or in files."""
    with Store(folder, sync_ms=0) as store:
        for i in range(LOTS):
            for name in ("a", "b"):
                store.open(name).append(batch_of(name, i * LOT, LOT)).result()
        if file_bytes is not None:
            compact(store, file_bytes=file_bytes, least=1)
    return folder


def change(folder: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(folder / "recordings.db") as connection:
        connection.execute(statement, values)
    connection.close()


def told(folder: Path, name: str = "a") -> tuple[set[int], set[int]]:
    """The rows that are served, each of them right, and the numbers that are reported as damaged."""
    items = list(checked(name, StoreReader(folder).log(name).read()))
    assert all(reason == "damaged" for *_, reason in missing(items))
    return numbers(items), {n for first, last, _ in missing(items) for n in range(first, last + 1)}


@pytest.mark.parametrize("at", [0, 40, 200, -1])
def test_a_damaged_body_costs_its_rows(tmp_path: Path, at: int) -> None:
    stored(tmp_path)
    with sqlite3.connect(tmp_path / "recordings.db") as connection:
        number, data = connection.execute("select id, data from bodies order by id limit 1 offset 4").fetchone()
    connection.close()
    changed = bytearray(data)
    changed[at] ^= 4
    change(tmp_path, "update bodies set data = ? where id = ?", bytes(changed), number)
    served, lost = told(tmp_path)
    assert (served, lost) == (ALL - {6, 7, 8}, {6, 7, 8})
    assert told(tmp_path, "b") == (ALL, set())
    with Store(tmp_path) as store:
        (gap,) = [item for item in store.log("a").read() if not hasattr(item, "batch")]
        assert gap.detail == f"recordings.db, body {number}"
        assert set(store.content.damaged.values()) == {gap.detail}


@pytest.mark.parametrize("column", ["first", "rows", "first_time", "last_time", "body", "at", "bytes", "seal"])
def test_a_damaged_entry_costs_its_rows(tmp_path: Path, column: str) -> None:
    stored(tmp_path)
    change(tmp_path, f"update entries set {column} = {column} + 1 where log = 1 and first = 6")
    served, lost = told(tmp_path)
    assert served | lost == ALL and served == ALL - {6, 7, 8}
    timed = Range(from_time=0, until_time=10**9)
    assert {n for first, last, _ in missing(StoreReader(tmp_path).log("a").read(timed)) for n in (first, last)} == {
        6,
        8,
    }


def test_a_damaged_entry_after_a_gap_without_numbers_ends_no_reading(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("a")
        log.append(batch_of("a", 0, LOT)).result()
        log.append(batch_of("a", LOT, LOT), gap=Gap(0, -1, "server down")).result()
    change(tmp_path, "update entries set bytes = 0 where first = ? and rows = ?", LOT, LOT)
    items = list(StoreReader(tmp_path).log("a").read())
    assert missing(items) == [(LOT, LOT - 1, "server down"), (LOT, 2 * LOT - 1, "damaged")]


def test_an_entry_that_is_gone_costs_its_rows(tmp_path: Path) -> None:
    stored(tmp_path)
    change(tmp_path, "delete from entries where log = 1 and first = 15")
    change(tmp_path, "delete from entries where log = 1 and first = 3")
    served, lost = told(tmp_path)
    # What was appended last is not known to have been there.
    assert (served, lost) == (ALL - {3, 4, 5, 15, 16, 17}, {3, 4, 5})


def test_any_flipped_bit_of_a_parquet_file_costs_at_most_its_rows(tmp_path: Path) -> None:
    stored(tmp_path, file_bytes=0)
    for path in sorted(tmp_path.glob("*.parquet")):
        data = path.read_bytes()
        for at in range(0, len(data), 11):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
            found = {name: told(tmp_path, name) for name in ("a", "b")}
            assert sorted(found.values(), key=lambda each: len(each[0])) == [(set(), ALL), (ALL, set())], at
        path.write_bytes(data)
    assert told(tmp_path) == (ALL, set())


@pytest.mark.parametrize("kept", [0, 3, 0.3, 0.9, -9, -1])
def test_a_parquet_file_that_is_cut_off_costs_its_rows(tmp_path: Path, kept: float) -> None:
    """To so many bytes, to a part, or by so many: within its end, which says where the rows are."""
    stored(tmp_path, file_bytes=0)
    path = sorted(tmp_path.glob("*.parquet"))[0]
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if 0 < kept < 1 else int(kept)])
    found = {name: told(tmp_path, name) for name in ("a", "b")}
    assert sorted(found.values(), key=lambda each: len(each[0])) == [(set(), ALL), (ALL, set())]
    with Store(tmp_path, sync_ms=0):  # opening changes nothing of that
        pass
    assert {name: told(tmp_path, name) for name in ("a", "b")} == found


def test_a_parquet_file_that_is_gone_costs_its_rows(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        for first in range(0, 30, 10):
            store.open("a").append(batch_of("a", first, 10)).result()
            compact(store, file_bytes=0, least=1)
    files = sorted(tmp_path.glob("*.parquet"))
    files[1].unlink()
    assert told(tmp_path) == ({*range(10), *range(20, 30)}, set(range(10, 20)))
    with Store(tmp_path, sync_ms=0) as store:  # opening changes nothing of that
        assert missing(checked("a", store.log("a").read())) == [(10, 19, "damaged")]
        store.log("a").append(batch_of("a", 30, 1)).result()
    files[0].unlink()
    with Store(tmp_path, sync_ms=0) as store:  # the oldest: as if retention had deleted it
        assert missing(checked("a", store.log("a").read(Range(from_seq=0)))) == [(0, 19, "cleared")] or missing(
            store.log("a").read(Range(from_seq=0))
        ) == [(0, 9, "cleared"), (10, 19, "damaged")]
        assert store.log("a").next_seq == 31


@pytest.mark.parametrize("seed", range(12))
def test_garbage_in_the_database_is_damage_or_a_typed_error(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    stored(tmp_path / "whole", file_bytes=0 if seed % 2 else None)
    shutil.copytree(tmp_path / "whole", tmp_path / "changed")
    path = tmp_path / "changed" / "recordings.db"
    data = bytearray(path.read_bytes())
    for _ in range(3):
        at = chance.randrange(len(data))
        data[at : at + 8] = chance.randbytes(8)
    path.write_bytes(data)
    for reader in (lambda: StoreReader(tmp_path / "changed"), lambda: Store(tmp_path / "changed", sync_ms=0)):
        try:
            found = reader()
            try:
                for name in found.names():
                    if name in ("a", "b"):
                        # Each row is the one that its number says, and what is not served is missing.
                        items = list(checked(name, found.log(name).read(Range(from_seq=0))))
                        numbers(items)
            finally:
                found.close()
        except FastFlightError as error:
            assert str(tmp_path) not in str(error)


def pages_of(path: Path, tree: str) -> list[int]:
    """The pages of a table or an index in SQLite, but for its root if it has others: each is a number, from 1 on."""
    with sqlite3.connect(path) as connection:
        (size,) = connection.execute("pragma page_size").fetchone()
        (root,) = connection.execute("select rootpage from sqlite_master where name = ?", (tree,)).fetchone()
    connection.close()
    data = path.read_bytes()

    def below(page: int) -> list[int]:
        content = data[(page - 1) * size : page * size]
        if content[0] not in INTERIOR:
            return []
        places = [int.from_bytes(content[at : at + 2]) for at in range(12, 12 + 2 * int.from_bytes(content[3:5]), 2)]
        children = [int.from_bytes(content[at : at + 4]) for at in [*places, 8]]
        return [*children, *(each for child in children for each in below(child))]

    return below(root) or [root]


@pytest.mark.parametrize(("chosen", "in_files"), [(0, False), (-1, True)])
@pytest.mark.parametrize("tree", ["bodies_by_ordinal0", "entries_by_log0", "bodies", "entries"])
def test_a_damaged_page_of_the_database_costs_at_most_the_rows_in_it(
    tmp_path: Path, tree: str, chosen: int, in_files: bool
) -> None:
    count = 60
    with Store(tmp_path, sync_ms=0) as store:
        for i in range(count):
            for name in ("a", "b"):
                store.open(name).append(batch_of(name, i * LOT, LOT)).result()
            if in_files and i % 20 == 19:
                compact(store, file_bytes=0, least=1)
    path = tmp_path / "recordings.db"
    data = bytearray(path.read_bytes())
    at = (pages_of(path, tree)[chosen] - 1) * 4096
    data[at : at + 8] = bytes(8)
    path.write_bytes(data)
    files = sorted(tmp_path.glob("*.parquet"))
    every, lost = set(range((count + 1) * LOT)), 0
    with Store(tmp_path, sync_ms=0) as store:
        for name in ("a", "b"):
            with contextlib.suppress(StorageError):  # which says that the database is damaged
                list(store.log(name).read())
                store.log(name).append(batch_of(name, count * LOT, LOT)).result()
        store.sweep()
        for name in ("a", "b"):
            log = store.log(name)
            if log.next_seq == count * LOT:
                log.append(batch_of(name, count * LOT, LOT)).result()
    for _ in range(2):
        with Store(tmp_path, sync_ms=0) as store:
            lost = 0
            for name in ("a", "b"):
                items = list(store.log(name).read())
                assert {why for *_, why in missing(items)} <= {"damaged"}
                gaps = {n for first, last, _ in missing(items) for n in range(first, last + 1)}
                assert numbers(items) | gaps == every and not numbers(items) & gaps
                assert store.log(name).statistics().lost == len(gaps)
                lost += len(gaps)
            assert sorted(tmp_path.glob("*.parquet")) == files
            position, handed_over = store.position_before({}), 0
            while bodies := store.bodies_after(position, 1024):
                position = bodies[-1].position
                handed_over += sum(body.rows.num_rows for body in bodies if isinstance(body.rows, pa.RecordBatch))
            assert handed_over == 2 * len(every) - lost
            compact(store, least=1)
        assert (0 < lost < len(every)) if tree == "bodies" and not in_files else not lost
    with Store(tmp_path, sync_ms=0, retention=Retention(max_bytes=0)) as store:
        store.sweep()
        for name in ("a", "b"):
            assert list(store.log(name).read()) == []
            store.log(name).append(batch_of(name, (count + 1) * LOT, LOT)).result()
