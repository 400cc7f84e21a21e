"""The disk of the operating system: what is said to be kept was written through to the medium."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastflight.log import Retention, Store, compact
from fastflight.log.database import prepare
from fastflight.log.disk import LocalDisk
from tests.log.rows import batch_of, checked, numbers


@pytest.mark.skipif(os.name == "nt", reason="a folder cannot be opened there")
def test_a_file_is_on_the_medium_before_the_rows_it_replaces_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that is killed loses nothing of what the system holds: only a power cut would show what was not synced.
    on_medium: dict[int, int] = {}
    sync = os.fsync

    def synced(descriptor: int) -> None:
        sync(descriptor)
        state = os.fstat(descriptor)
        on_medium[state.st_ino] = state.st_size

    monkeypatch.setattr(os, "fsync", synced)
    with Store(tmp_path, sync_ms=0) as store:
        store.open("a").append(batch_of("a", 0, 100)).result()
        (name,) = compact(store, file_bytes=0, least=1)
    assert on_medium[(tmp_path / name).stat().st_ino] == (tmp_path / name).stat().st_size
    assert tmp_path.stat().st_ino in on_medium


def test_sqlite_syncs_each_transaction(tmp_path: Path) -> None:
    with contextlib.closing(LocalDisk(tmp_path).connect(writing=True)) as connection:
        prepare(connection)
        asked = [connection.execute(f"pragma {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
        assert asked == ["wal", 2]


class OldDisk(LocalDisk):
    """A folder with the SQLite of an old system: without the operators of JSON."""

    def connect(self, *, writing: bool = False) -> sqlite3.Connection:
        connection = super().connect(writing=writing)
        connection.set_authorizer(_as_old)
        return connection


def _as_old(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    unknown = action == sqlite3.SQLITE_FUNCTION and second in ("->", "->>")
    return sqlite3.SQLITE_DENY if unknown else sqlite3.SQLITE_OK


def test_sqlite_of_an_old_system_is_enough(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0, disk=OldDisk(tmp_path)) as store:
        log = store.open("a")
        log.append(batch_of("a", 0, 3)).result()
        log.append(batch_of("a", 5, 3), first=5).result()
        assert [(gap.first, gap.last) for gap in store.gaps([(log.id, 0, 5)])[log.id]] == [(3, 4)]
    with Store(tmp_path, sync_ms=0, disk=OldDisk(tmp_path)) as store:
        items = list(checked("a", store.log("a").read()))
        assert numbers(items) == {0, 1, 2, 5, 6, 7} and store.names() == ["a"]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def appended(folder: Path, **options: Any) -> Store:
    store = Store(folder, sync_ms=0, **options)
    store.open("a").append(batch_of("a", store.open("a").next_seq, 3)).result()
    return store


@pytest.fixture
def _loose_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.skipif(os.name == "nt", reason="rights are not in the mode")
@pytest.mark.usefixtures("_loose_umask")
class TestRights:
    def test_recordings_are_for_their_owner_alone(self, tmp_path: Path) -> None:
        folder = tmp_path / "recordings"
        appended(folder).close()
        with appended(folder, retention=Retention(max_bytes=10**9)) as store:
            assert compact(store, file_bytes=0, least=1) and store.is_private
            store.open("b").append(batch_of("b", 0, 3)).result()
            list(store.log("b").read())
            modes = {path.name.rpartition(".")[2]: mode_of(path) for path in folder.iterdir()}
        assert modes == dict.fromkeys(("db", "db-wal", "db-shm", "parquet", "lock", "reserve"), 0o600)
        assert mode_of(folder) == 0o700

    def test_a_folder_that_others_may_read_is_closed_to_them(self, tmp_path: Path) -> None:
        folder = tmp_path / "recordings"
        appended(folder).close()
        folder.chmod(0o755)
        for path in folder.iterdir():
            path.chmod(0o644)
        with appended(folder) as store:
            assert store.is_private
        assert mode_of(folder) == 0o700 and {mode_of(path) for path in folder.iterdir()} == {0o600}

    def test_a_folder_with_other_files_keeps_its_mode(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        (tmp_path / "notes.txt").touch(0o644)
        with appended(tmp_path) as store:
            assert not store.is_private
        assert mode_of(tmp_path) == 0o755 and mode_of(tmp_path / "notes.txt") == 0o644
        assert {mode_of(path) for path in tmp_path.glob("recordings.db*")} == {0o600}
