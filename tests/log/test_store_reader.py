"""Reading beside the writer, from another process as far as the folder is concerned."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastflight.errors import StorageError, UnknownName
from fastflight.log import Store, StoreReader, compact
from tests.log.rows import batch_of, checked, clear, numbers


def test_what_is_appended_is_seen(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        reader = StoreReader(tmp_path)
        assert reader.names() == []
        log = store.open("demo")
        for first in range(0, 60, 3):
            log.append(batch_of("demo", first, 3)).result()
            assert numbers(checked("demo", reader.log("demo").read())) == set(range(first + 3))
        assert reader.log("demo").statistics().rows == 60
        with pytest.raises(UnknownName):
            reader.log("dome")


def test_compacting_and_sweeping_under_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("database", "reading"):
        monkeypatch.setattr(f"fastflight.log.{module}.PAGE", 1)
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("demo")
        for first in range(0, 60, 3):
            log.append(batch_of("demo", first, 3)).result()
        seen = StoreReader(tmp_path).log("demo")
        reading = seen.read()
        assert next(reading).first == 0
        assert compact(store, file_bytes=0, least=1)
        assert numbers(checked("demo", reading)) == set(range(3, 60))
        reading = seen.read()
        assert next(reading).first == 0
        clear(store, "demo", 60)
        log.append(batch_of("demo", 60, 3)).result()
        assert numbers(checked("demo", reading)) >= set()
        assert numbers(checked("demo", seen.read())) == {60, 61, 62}


def test_reading_does_not_stop_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a reader that takes its time keep the database from being tidied."""
    for module in ("database", "reading"):
        monkeypatch.setattr(f"fastflight.log.{module}.PAGE", 2)
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("demo")
        for first in range(0, 60, 3):
            log.append(batch_of("demo", first, 3)).result()
        reading = StoreReader(tmp_path).log("demo").read()
        assert next(reading).first == 0
        for first in range(60, 1200, 3):
            log.append(batch_of("demo", first, 3)).result()
        assert (tmp_path / "recordings.db-wal").stat().st_size < 8_000_000
        assert numbers(checked("demo", reading)) == set(range(6, 60))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        StoreReader(tmp_path / "nothing").names()


def test_a_folder_without_recordings(tmp_path: Path) -> None:
    reader = StoreReader(tmp_path)
    assert reader.names() == [] and not list(tmp_path.iterdir())
    with pytest.raises(UnknownName):
        reader.log("demo")


def test_a_folder_is_read_after_its_writer_was_closed(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        store.open("demo").append(batch_of("demo", 0, 3)).result()
    before = sorted(path.name for path in tmp_path.iterdir())
    reader = StoreReader(tmp_path)
    assert numbers(checked("demo", reader.log("demo").read())) == {0, 1, 2}
    reader.close()
    assert {"recordings.db", "writer.lock"} <= set(before)
