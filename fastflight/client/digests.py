"""Digests of local files, as boards take them of theirs."""

from __future__ import annotations

import binascii
import hashlib
from pathlib import Path

PIECE_BYTES = 256 * 1024


def local_digest(path: Path, algorithm: str, limit: int | None = None) -> str:
    """The hexadecimal digest of a file, or of its first `limit` bytes; empty for an algorithm that is not known."""
    left = path.stat().st_size if limit is None else limit
    crc32, sha256 = 0, hashlib.sha256()
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(PIECE_BYTES, left))):
            left -= len(data)
            if algorithm == "crc32":
                crc32 = binascii.crc32(data, crc32)
            else:
                sha256.update(data)
    return {"crc32": f"{crc32:08x}", "sha256": sha256.hexdigest()}.get(algorithm, "")


def agrees(path: Path, algorithm: str, digest: str, limit: int | None = None) -> bool:
    """Whether a file, or its first `limit` bytes, have the digest that a board took."""
    return bool(digest) and local_digest(path, algorithm, limit) == digest
