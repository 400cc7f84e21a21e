"""The folder of a worker process, and what DuckDB can reach from it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastflight.errors import StorageFull
from fastflight.sql.database import Database
from fastflight.sql.folder import ABANDONED_SECONDS, LOCK, PREFIX, WorkerFolder

ROWS = pa.table({"n": pa.array(range(10), pa.int64())})
TABLE = ("server", "demo", "a.csv")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[WorkerFolder]:
    made = WorkerFolder(tmp_path)
    yield made
    made.remove()


@pytest.fixture
def database(folder: WorkerFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.chdir(folder.path)
    with closing(Database({"threads": "1"}, folder.path)) as made:
        yield made


def test_a_linked_file_stays_when_it_is_removed_until_the_query_ends(tmp_path: Path, folder: WorkerFolder) -> None:
    (tmp_path / "part").write_bytes(b"rows")
    name = folder.link(tmp_path / "part")
    (tmp_path / "part").unlink()
    assert (folder.path / name).read_bytes() == b"rows"
    folder.clear()
    assert [each.name for each in folder.path.iterdir()] == [LOCK]


def test_a_file_on_another_disk_is_copied(
    tmp_path: Path, folder: WorkerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    (tmp_path / "part").write_bytes(b"rows")
    assert (folder.path / folder.link(tmp_path / "part")).read_bytes() == b"rows"


def test_a_full_disk_is_told(folder: WorkerFolder) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        raise OSError(28, "No space left on device")
        yield

    with pytest.raises(StorageFull):
        folder.write(ROWS.schema, batches())


def test_folders_of_servers_that_were_killed_are_removed(tmp_path: Path, folder: WorkerFolder) -> None:
    old, new = tmp_path / f"{PREFIX}old", tmp_path / f"{PREFIX}new"
    for each in (old, new):
        each.mkdir()
        (each / "rows").write_bytes(b"rows")
    past = time.time() - 2 * ABANDONED_SECONDS
    for each in (old, folder.path):
        os.utime(each, (past, past))
    other = WorkerFolder(tmp_path)
    assert not old.exists() and new.exists() and folder.path.exists()
    other.remove()
    assert not other.path.exists()


def test_a_table_has_the_rows_of_its_files_in_order(folder: WorkerFolder, database: Database, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "first.parquet")
    parquet = [([folder.link(tmp_path / "first.parquet")], "select n + 100 as n where n < 3")]
    arrow, rows = folder.write(ROWS.schema, ROWS.to_batches())
    database.add(TABLE, {"parquet": parquet, "arrow": [(arrow, "")]})
    for _ in range(2):  # a stream can be read again
        found = database.table(TABLE).to_arrow_table()["n"].to_pylist()
        assert found == [100, 101, 102, *range(10)]
    assert rows == 10
    database.renew()
    with pytest.raises(duckdb.Error):
        database.table(TABLE)


@pytest.mark.parametrize(
    "query",
    [
        "from read_text('/etc/passwd')",
        "from read_text('../secret')",
        "from glob('/etc/*')",
        "from '../secret'",
        "from '*'",
        "from '*.parquet'",
        "from '*.arrow'",
        "copy (select 1) to '../stolen'",
        "attach '../secret'",
        "load httpfs",
        "set threads = 2",
        "set allowed_directories = ['/']",
        "set enable_external_access = true",
    ],
)
def test_duckdb_itself_reaches_nothing_but_the_folder(
    folder: WorkerFolder, database: Database, tmp_path: Path, query: str
) -> None:
    (tmp_path / "secret").write_text("secret")
    pq.write_table(ROWS, tmp_path / "part.parquet")
    folder.link(tmp_path / "part.parquet")
    with pytest.raises(duckdb.Error):
        database.connection.execute(query)
    assert not (tmp_path / "stolen").exists()
