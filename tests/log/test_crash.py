"""What is left when the power is cut at any moment: whatever was acknowledged before it. `test_model` has kills.

SQLite and this log write to the folder in an order that its copy must survive: the copy of the files at some moment is
what a kill leaves, and its log of changes cut off or garbled behind the last sync is what a power cut leaves.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path

import pytest

from fastflight.errors import FastFlightError
from fastflight.log import Store, StoreReader, compact
from tests.log.rows import batch_of, checked, missing, numbers

WAL = "recordings.db-wal"


def copy(folder: Path, to: Path) -> None:
    """Copy what a kill would leave. The database goes first, because a checkpoint moves rows to it from its log."""
    to.mkdir()
    for name in ("recordings.db", WAL):
        if (folder / name).exists():
            shutil.copy(folder / name, to)
    for path in folder.glob("*.parquet*"):
        if path.exists():
            shutil.copy(path, to)


def survives(folder: Path, following: dict[str, int], exact: bool = True) -> None:
    """The rows up to these numbers are there, with none missing between them, and the log goes on."""
    for _ in range(2):  # opening must not lose what the opening before it kept
        with Store(folder, sync_ms=0) as store:
            for name, reached in following.items():
                log = store.open(name)
                items = list(checked(name, log.read()))
                assert not missing(items)
                assert numbers(items) == set(range(len(numbers(items))))
                assert len(numbers(items)) >= reached or not exact
            log.append(batch_of(log.name, log.next_seq, 1)).result()


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_during_a_write(tmp_path: Path, seed: int) -> None:
    """The log of changes has what was synced, and any bytes behind that."""
    chance = random.Random(seed)
    with Store(tmp_path / "log", sync_ms=0) as store:
        log = store.open("a")
        for _ in range(chance.randrange(1, 40)):
            log.append(batch_of("a", log.next_seq, chance.randrange(1, 5))).result()
        synced = (tmp_path / "log" / WAL).stat().st_size
        kept = {"a": log.next_seq}
        for _ in range(chance.randrange(1, 4)):
            log.append(batch_of("a", log.next_seq, chance.randrange(1, 5))).result()
        copy(tmp_path / "log", tmp_path / "cut")
    wal = tmp_path / "cut" / WAL
    data = bytearray(wal.read_bytes())
    assert len(data) > synced  # else it was used again from its beginning
    cut = chance.randrange(synced, len(data))
    if seed % 3 == 0:
        del data[cut:]
    elif seed % 3 == 1:
        data[cut:] = bytes(len(data) - cut)
    else:
        data[cut:] = chance.randbytes(len(data) - cut)
    wal.write_bytes(data)
    survives(tmp_path / "cut", kept)


@pytest.mark.parametrize("seed", range(12))
def test_a_medium_that_loses_what_it_has_synced(tmp_path: Path, seed: int) -> None:
    """Rows at the end are gone, and cannot be known; all that is served is right, and nothing between is missing."""
    chance = random.Random(seed)
    with Store(tmp_path / "log", sync_ms=0) as store:
        log = store.open("a")
        for _ in range(30):
            log.append(batch_of("a", log.next_seq, 2)).result()
        copy(tmp_path / "log", tmp_path / "cut")
    wal = tmp_path / "cut" / WAL
    data = bytearray(wal.read_bytes())
    at = chance.randrange(len(data))
    data[at:] = b"" if seed % 2 else chance.randbytes(len(data) - at)
    wal.write_bytes(data)
    try:
        reader = StoreReader(tmp_path / "cut")
        for name in reader.names():
            list(checked(name, reader.log(name).read()))
        reader.close()
        survives(tmp_path / "cut", {"a": 0}, exact=False)
    except FastFlightError as error:
        assert str(tmp_path) not in str(error)


def test_files_without_rows_and_rows_without_files(tmp_path: Path) -> None:
    """A compaction that was killed has made files. A sweep that was killed has deleted some."""
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("a")
        for first in range(0, 30, 10):
            log.append(batch_of("a", first, 10)).result()
            compact(store, file_bytes=0, least=1)
        log.append(batch_of("a", 30, 5)).result()
    files = sorted(tmp_path.glob("*.parquet"))
    shutil.copy(files[0], tmp_path / "000000000999.parquet")
    (tmp_path / "000000001000.parquet.new").write_bytes(b"half of")
    os.unlink(files[0])
    with Store(tmp_path, sync_ms=0) as store:
        log = store.log("a")
        assert numbers(checked("a", log.read())) == set(range(10, 35)) and log.first == 10
        assert sorted(tmp_path.glob("*.parquet*")) == files[1:]


def test_a_slow_disk_stops_nobody_who_reads(tmp_path: Path) -> None:
    from tests.log.disks import FailingDisk

    goes_on, slow = threading.Event(), False

    def fails(call: str, name: str) -> int:
        if slow and call == "sync":
            goes_on.wait(60)
        return 0

    with Store(tmp_path, sync_ms=0, disk=FailingDisk(tmp_path, fails)) as store:
        log = store.open("a")
        log.append(batch_of("a", 0, 10)).result()
        slow = True
        ticket = log.append(batch_of("a", 10, 10))
        assert numbers(checked("a", log.read())) == set(range(10))
        assert log.append(batch_of("a", 20, 5)).first == 20 and not ticket.done
        assert numbers(StoreReader(tmp_path).log("a").read()) == set(range(10))
        goes_on.set()
    with Store(tmp_path) as store:
        assert numbers(checked("a", store.log("a").read())) == set(range(25))
