"""Digests: `RunningDigest` of what is sent, and conversations that have the board hash its files."""

from __future__ import annotations

import binascii
import copy
import hashlib
import re

from fastflight.device import answers, listing
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.types import Hashed, Resumption
from fastflight.errors import ProtocolError
from fastflight.protocol import Conversation

# Of sha256.
MAX_DIGEST_BYTES = 32

_DIGEST = re.compile("[0-9a-f]{8}|[0-9a-f]{64}")


class RunningDigest:
    """The sha256 and the crc32 of what was sent. With `resume`, of the whole file that it completes."""

    def __init__(self, resume: Resumption | None = None) -> None:
        self.size = resume.part.size if resume else 0
        self._part = resume.part if resume else None
        self._crc32 = int(resume.part.digest, 16) if resume and resume.part.algorithm == "crc32" else 0
        # A sha256 cannot be continued from its value: the caller gives that of the whole file.
        self._sha256 = resume.sha256 if resume else hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Add `data` to what was sent."""
        self.size += len(data)
        self._crc32 = binascii.crc32(data, self._crc32)
        if not isinstance(self._sha256, str):
            self._sha256.update(data)

    def after(self, data: bytes) -> RunningDigest:
        """A copy to which `data` is added."""
        other = copy.copy(self)
        if not isinstance(self._sha256, str):
            other._sha256 = self._sha256.copy()
        other.add(data)
        return other

    @property
    def sha256(self) -> str:
        """Hexadecimal."""
        return self._sha256 if isinstance(self._sha256, str) else self._sha256.hexdigest()

    def hex(self, algorithm: str) -> str:
        """The digest of all that was sent, as a board gives it."""
        return self.sha256 if algorithm == "sha256" else f"{self._crc32:08x}"

    def known(self, algorithm: str) -> bool:
        """Whether `hex` is right before all is sent: the sha256 of a resumed write is known of the whole only."""
        return self._part is None or self._part.algorithm == algorithm == "crc32"


def digest(link: BoardLink, path: str, limit: int | None = None) -> Conversation[tuple[str, str]]:
    """The name and the hexadecimal digest of the best hash that the board itself can take of a file."""
    name = link.capabilities.digest
    if not name:
        return "", ""
    (found,) = yield from digests(link, [path], path, limit)
    return name, found


def digests(link: BoardLink, paths: list[str], where: str, limit: int | None = None) -> Conversation[list[str]]:
    """The hexadecimal digests of files, or of their first `limit` bytes, in one pass; the board can take them."""
    spelled = tuple(map(link.capabilities.spelled, paths))
    count = -1 if limit is None else limit
    yield from link.resident.call("show", spelled, count, link.capabilities.block_bytes, where=where)
    # Dots before a digest said that the board was still at work.
    found = (yield from link.resident.finish(where)).decode("ascii", "replace").replace(".", "").split()
    if len(found) != len(paths):
        raise ProtocolError(f"the board gave {len(found)} digests of {len(paths)} files", where=where)
    if not all(map(_DIGEST.fullmatch, found)):
        raise ProtocolError("what the board gave is not a digest", where=where, hint="Ask again")
    return found


def hashes(link: BoardLink, folder: str) -> Conversation[list[Hashed]]:
    """Every file below `folder` with its digest, ordered by path, in one pass on the board."""
    name = link.capabilities.digest
    if not link.capabilities.has("os.ilistdir"):
        found = []
        for entry in (yield from listing.listing(link.repl, link.capabilities, folder, recursive=True)):
            _, value = yield from digest(link, entry.path)
            found.append(Hashed(entry.path, entry.size, name, value))
        return found
    yield from link.resident.call("tree", folder, link.capabilities.block_bytes, where=folder)
    lines = (yield from link.resident.finish(folder)).decode("utf-8", "replace").splitlines()
    return sorted((_hashed(line, name, folder) for line in lines), key=lambda file: file.path.split("/"))


def _hashed(line: str, name: str, folder: str) -> Hashed:
    try:
        # The dots before it said that the board was still at work.
        path, size, value = answers.value(line.strip().lstrip("."))
        if not isinstance(value, bytes) or len(value) > MAX_DIGEST_BYTES:
            raise ValueError("not a digest")
        return Hashed(listing.path_below(folder, answers.text(path)), answers.whole(size), name, value.hex())
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"the board listed {line[:200]!r}", where=folder, hint="Ask again") from error
