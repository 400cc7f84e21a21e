"""The cache of boards' files: what is read once, what is read again, and what is removed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastflight.concurrency import Channel
from fastflight.device import Device, FileEntry, Inventory, Session
from fastflight.device.session import AsyncSession
from fastflight.errors import RequestError, TransportClosed
from fastflight.service.requests import DeviceFile
from fastflight.service.source import Reading
from fastflight.sources import DeviceFiles, FileCache
from fastflight.sources.file_cache import CHECKSUM_BYTES, ENTRY, NEW, CacheKey, Origin
from fastflight.sources.spool import Spool
from tests.support.refusals import refused

CONTENT = b"a,b\n1,x\n2,y\n"


def key(content: bytes, path: str = "/a.csv", algorithm: str = "sha256", device: str = "demo") -> CacheKey:
    digests = {"sha256": hashlib.sha256(content).hexdigest(), "crc32": f"{zlib.crc32(content):08x}", "": ""}
    return CacheKey(device, FileEntry(path, "file", len(content), None), algorithm, digests[algorithm])


def store(cache: FileCache, content: bytes, of: CacheKey) -> Origin:
    spool = Spool()
    spool.feed(content[:5])
    spool.feed(content[5:])
    with closing(cache.store(of, spool)) as stored:
        assert b"".join(stored.spool.pieces()) == content
        return stored.origin


def found(cache: FileCache, of: CacheKey) -> bytes | None:
    content = cache.find(of)
    if content is None:
        return None
    with closing(content):
        assert content.origin == "cache"
        return b"".join(content.spool.pieces())


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "cache")


def test_a_content_is_found_by_its_digest_wherever_it_is(cache: FileCache) -> None:
    assert found(cache, key(CONTENT)) is None
    assert store(cache, CONTENT, key(CONTENT)) == "board"
    assert found(cache, key(CONTENT, "/b.csv", device="other")) == CONTENT
    assert found(cache, key(b"else")) is None


def test_a_short_digest_tells_only_versions_of_one_file_apart(cache: FileCache) -> None:
    store(cache, CONTENT, key(CONTENT, algorithm="crc32"))
    assert found(cache, key(CONTENT, algorithm="crc32")) == CONTENT
    assert found(cache, key(CONTENT, "/b.csv", algorithm="crc32")) is None


def test_without_a_digest_nothing_is_kept(cache: FileCache) -> None:
    assert store(cache, CONTENT, key(CONTENT, algorithm="")) == "board without digests"
    assert list(cache.folder.iterdir()) == []


def test_a_content_without_the_digest_of_its_board_is_not_kept(cache: FileCache) -> None:
    store(cache, CONTENT, key(b"as it was before it was changed"))
    assert list(cache.folder.iterdir()) == []


@pytest.mark.parametrize("at", [0, CHECKSUM_BYTES, CHECKSUM_BYTES + len(CONTENT) - 1])
def test_a_damaged_entry_is_missing(cache: FileCache, at: int) -> None:
    store(cache, CONTENT, key(CONTENT))
    (entry,) = cache.folder.iterdir()
    content = bytearray(entry.read_bytes())
    content[at] ^= 1
    entry.write_bytes(content)
    assert found(cache, key(CONTENT)) is None
    assert list(cache.folder.iterdir()) == []


@pytest.mark.parametrize("size", [0, CHECKSUM_BYTES, CHECKSUM_BYTES + 3])
def test_an_entry_that_was_cut_is_missing(cache: FileCache, size: int) -> None:
    store(cache, CONTENT, key(CONTENT))
    (entry,) = cache.folder.iterdir()
    os.truncate(entry, size)
    assert found(cache, key(CONTENT)) is None


def test_entries_that_were_used_longest_ago_are_removed(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 300)
    contents = [bytes([n]) * 64 for n in range(4)]
    for age, content in enumerate(contents[:3]):
        store(cache, content, key(content))
        os.utime(tmp_path / key(content).name, (age, age))
    assert found(cache, key(contents[0])) == contents[0]  # now the newest
    store(cache, contents[3], key(contents[3]))
    assert [found(cache, key(content)) is not None for content in contents] == [True, False, True, True]
    assert store(cache, bytes(301), key(bytes(301))) == "board"
    assert found(cache, key(bytes(301))) is None
    assert found(cache, key(contents[3])) == contents[3]


def test_unfinished_entries_of_a_killed_server_are_removed(tmp_path: Path) -> None:
    cache = FileCache(tmp_path)
    old, new = tmp_path / f"old{NEW}", tmp_path / f"new{NEW}"
    for each in (old, new):
        each.write_bytes(b"unfinished")
    os.utime(old, (0, 0))
    store(cache, CONTENT, key(CONTENT))
    assert (old.exists(), new.exists()) == (False, True)


def test_a_file_is_read_although_the_cache_cannot_keep_it(tmp_path: Path) -> None:
    in_the_way = tmp_path / "cache"
    in_the_way.write_bytes(b"not a folder")
    spool = Spool()
    spool.feed(CONTENT)
    cache = FileCache(in_the_way)
    assert cache.find(key(CONTENT)) is None
    with closing(cache.store(key(CONTENT), spool)) as stored:
        assert b"".join(stored.spool.pieces()) == CONTENT


def test_a_content_stays_while_it_is_read(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 100)
    store(cache, CONTENT, key(CONTENT))
    content = cache.find(key(CONTENT))
    assert content is not None
    with closing(content):
        store(cache, bytes(60), key(bytes(60)))
        assert found(cache, key(CONTENT)) is None
        assert b"".join(content.spool.pieces(4, 3)) == CONTENT[4:7]


def test_a_temporary_folder_goes_with_the_cache() -> None:
    cache = FileCache()
    folder = cache.folder
    assert folder.is_dir()
    cache.close()
    assert not folder.exists()


class Board:
    """A board with one file. `calls` are the operations on it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = folder / "board" / "a.csv"
        self.file.parent.mkdir()
        self.file.write_bytes(CONTENT)
        self.calls: list[str] = []
        for session in (Session, AsyncSession):
            for name in ("hash", "read"):
                monkeypatch.setattr(session, name, self._counted(name, getattr(session, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            return function(*args, **kwargs)

        return call


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    return Board(tmp_path, monkeypatch)


@pytest.fixture
def files(board: Board, cache: FileCache) -> Iterator[DeviceFiles]:
    with Inventory({"demo": f"sim:?files={board.file.parent}&telemetry=0"}) as inventory:
        yield DeviceFiles(inventory, cache)


def rows(reading: Reading) -> list[dict[str, Any]]:
    batches = [batch for batches in reading for batch in batches]
    return pa.Table.from_batches(batches, reading.schema).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_board_sends_a_file_once_for_each_content(
    board: Board, files: DeviceFiles, cache: FileCache, mode: str
) -> None:
    request = DeviceFile(device="demo", path="/a.csv", cached=True, columns=("b",))

    async def aread() -> list[dict[str, Any]]:
        reading: Reading = await files.aread(request)
        batches = [batch async for batches in reading for batch in batches]
        return pa.Table.from_batches(batches, reading.schema).to_pylist()  # type: ignore[no-any-return]

    def read() -> list[dict[str, Any]]:
        board.calls.clear()
        return asyncio.run(aread()) if mode == "async" else rows(files.read(request))

    assert (read(), board.calls) == ([{"b": "x"}, {"b": "y"}], ["hash", "read"])
    assert (read(), board.calls) == ([{"b": "x"}, {"b": "y"}], ["hash"])
    board.file.write_bytes(b"b\nz\n")
    assert (read(), board.calls) == ([{"b": "z"}], ["hash", "read"])
    for entry in cache.folder.iterdir():
        entry.write_bytes(b"damaged")
    assert (read(), board.calls) == ([{"b": "z"}], ["hash", "read"])


def test_a_part_of_a_cached_file_is_read_from_the_cache(board: Board, files: DeviceFiles) -> None:
    request = DeviceFile(device="demo", path="/a.csv", cached=True, format="raw", offset=4, limit=3, describe="digest")
    for calls in (["hash", "read"], ["hash"]):
        board.calls.clear()
        assert rows(files.read(request)) == [{"offset": 4, "data": CONTENT[4:7]}]
        assert board.calls == calls


def test_a_content_is_closed_if_the_board_cannot_be_given_back(
    files: DeviceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = DeviceFile(device="demo", path="/a.csv", cached=True)
    rows(files.read(request))
    lease = Device.lease

    @contextmanager
    def failing(device: Device, holder: str, **keys: Any) -> Iterator[Session]:
        with lease(device, holder, **keys) as session:
            yield session
        raise TransportClosed("the line is gone")

    monkeypatch.setattr(Device, "lease", failing)
    with pytest.raises(TransportClosed):
        files.read(request)
    assert not opened_entries()


def opened_entries() -> list[str]:
    """The entries that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.endswith(ENTRY)]


def test_only_reading_takes_a_cache(files: DeviceFiles) -> None:
    request = DeviceFile(device="demo", path="/b.csv", cached=True)
    with refused(RequestError, where="cached"):
        files.write(request, pa.schema([("a", pa.int64())]), Channel[pa.RecordBatch](1), lambda _: None)
