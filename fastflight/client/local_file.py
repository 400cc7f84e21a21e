"""Local files as bytes: their sizes, pieces, and digests to compare with the board's. Loads no Arrow."""

from __future__ import annotations

import binascii
import hashlib
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastflight.errors import RequestError

# Bytes that are sent at a time: on a 115200 baud line, one acknowledgement and one step of a progress bar per 1.4 s.
PIECE_BYTES = 16 * 1024
# Bytes of a local file that are read and hashed at a time.
DIGEST_PIECE_BYTES = 256 * 1024


def size_of(path: Path) -> int:
    """Return the size of a file. Raises `RequestError` for pipes (they block) and devices (they never end)."""
    with os_errors_of(path):
        state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise RequestError("is not a file", where=str(path), hint="Give the name of a file to read")
    return state.st_size


def pieces_of(path: Path, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of a file, from `offset` on, in pieces of `PIECE_BYTES`, each with its offset."""
    with os_errors_of(path), path.open("rb") as file:
        file.seek(offset)
        while data := file.read(PIECE_BYTES):
            yield offset, data
            offset += len(data)


def local_digest(path: Path, algorithm: str, limit: int | None = None) -> str:
    """Return the hexadecimal digest of a file, or of its first `limit` bytes; empty if the algorithm is unknown."""
    left = path.stat().st_size if limit is None else limit
    crc32, sha256 = 0, hashlib.sha256()
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(DIGEST_PIECE_BYTES, left))):
            left -= len(data)
            if algorithm == "crc32":
                crc32 = binascii.crc32(data, crc32)
            else:
                sha256.update(data)
    return {"crc32": f"{crc32:08x}", "sha256": sha256.hexdigest()}.get(algorithm, "")


def agrees(path: Path, algorithm: str, digest: str, limit: int | None = None) -> bool:
    """Whether a file, or its first `limit` bytes, has this digest. False if `digest` is empty."""
    return bool(digest) and local_digest(path, algorithm, limit) == digest


@contextmanager
def os_errors_of(path: Path) -> Iterator[None]:
    """Raise an `OSError` as a `RequestError` that names the local file."""
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else str(path)
        raise RequestError(error.strerror or "cannot be used", where=where) from error
