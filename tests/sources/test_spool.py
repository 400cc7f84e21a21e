"""The bytes of one file: in memory, then in a file without a name."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from fastflight.errors import StorageError
from fastflight.sources.spool import MEMORY_BYTES, Spool
from tests.support.refusals import refused

SIZES = [0, 1, MEMORY_BYTES - 1, MEMORY_BYTES, MEMORY_BYTES + 1, 3 * MEMORY_BYTES]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("step", [1000, MEMORY_BYTES // 2 + 1, 4 * MEMORY_BYTES])
def test_the_same_bytes_come_back(tmp_path: Path, size: int, step: int) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    content = content[:size]
    with closing(Spool(tmp_path)) as spool:
        for start in range(0, size, step):
            spool.feed(content[start : start + step])
        assert b"".join(spool.pieces()) == content
        assert b"".join(spool.pieces(5, 7)) == content[5:12]
        assert (spool.size, spool.sha256, spool.crc32) == (size, hashlib.sha256(content).digest(), zlib.crc32(content))
        assert list(tmp_path.iterdir()) == []


def test_a_coroutine_feeds_it_as_well(tmp_path: Path) -> None:
    async def fill(spool: Spool) -> None:
        for _ in range(3):
            await spool.afeed(bytes(MEMORY_BYTES // 2))

    with closing(Spool(tmp_path)) as spool:
        asyncio.run(fill(spool))
        assert b"".join(spool.pieces()) == bytes(3 * MEMORY_BYTES // 2)


def test_a_disk_that_cannot_take_it_is_a_storage_error(tmp_path: Path) -> None:
    with closing(Spool(tmp_path / "missing")) as spool:
        spool.feed(bytes(MEMORY_BYTES))
        with refused(StorageError):
            spool.feed(b"1")
