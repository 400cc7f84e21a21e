"""Reading beside the writer, from another process as far as the folder is concerned."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastflight.errors import StorageError, UnknownName
from fastflight.log import Store, StoreReader, compact
from fastflight.log.disk import File
from tests.log.disks import MemoryDisk, MemoryFile
from tests.log.rows import SCHEMA, batch_of, checked, missing, numbers

SMALL = 2000


def test_what_is_appended_is_seen(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0, segment_bytes=SMALL) as store:
        reader = StoreReader(tmp_path)
        assert reader.names() == []
        log = store.open("demo", SCHEMA)
        for first in range(0, 60, 3):
            log.append(batch_of("demo", first, 3)).result()
            assert numbers(checked("demo", reader.log("demo").read())) == set(range(first + 3))
        assert reader.log("demo").statistics().rows == 60
        with pytest.raises(UnknownName):
            reader.log("dome")


def test_compacting_and_sweeping_under_a_reader(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0, segment_bytes=SMALL) as store:
        log = store.open("demo", SCHEMA)
        for first in range(0, 60, 3):
            log.append(batch_of("demo", first, 3)).result()
        seen = StoreReader(tmp_path).log("demo")
        reading = seen.read()
        assert next(reading).first == 0
        assert compact(store)
        assert numbers(checked("demo", reading)) == set(range(3, 60))
        reading = seen.read()
        assert next(reading).first == 0
        log.trim(60).result()
        log.append(batch_of("demo", 60, 3)).result()
        store.sweep()
        assert numbers(checked("demo", reading)) >= set()
        assert numbers(checked("demo", seen.read())) == {60, 61, 62}


def test_a_write_that_is_not_whole_is_not_seen_and_not_damage(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("demo", SCHEMA)
        log.append(batch_of("demo", 0, 3)).result()
    (segment,) = tmp_path.glob("*.seg")
    whole = segment.read_bytes()
    reader = StoreReader(tmp_path)
    assert numbers(reader.log("demo").read()) == {0, 1, 2}
    segment.write_bytes(whole + whole[64:-8])
    assert numbers(reader.log("demo").read()) == {0, 1, 2}
    assert missing(reader.log("demo").read()) == [] and reader.damage() == []
    assert segment.read_bytes() == whole + whole[64:-8]


def test_what_is_written_while_a_reader_looks_is_not_damage(tmp_path: Path) -> None:
    """The file grows by a record and a half whenever the reader asks for its size."""
    written = MemoryDisk()
    with Store(tmp_path, sync_ms=0, disk=written) as store:
        for first in range(0, 60, 3):
            store.open("demo", SCHEMA).append(batch_of("demo", first, 3)).result()
    ((name, whole),) = [(name, data) for name, data in written.state().items() if name.endswith(".seg")]
    step = len(whole) * 3 // 40

    class Growing(MemoryFile):
        def size(self) -> int:
            there = self._inode.cached
            there += whole[len(there) : len(there) + step]
            return len(there)

    class Folder(MemoryDisk):
        def open(self, name: str, *, writing: bool = False) -> File:
            return Growing(self, self._entries[name])

    folder = Folder({name: whole[:step]})
    while len(folder.state()[name]) < len(whole):
        assert StoreReader(tmp_path, disk=folder).damage() == []
    assert numbers(StoreReader(tmp_path, disk=folder).log("demo").read()) == set(range(60))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        StoreReader(tmp_path / "nothing").names()
