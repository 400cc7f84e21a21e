"""Digests of files: `RunningDigest` hashes what is sent, and conversations have the board hash its files."""

from __future__ import annotations

import binascii
import copy
import hashlib
import re
from collections.abc import Iterator, Sequence

from fastflight.device import answers, listing
from fastflight.device.execute import Kept, execute
from fastflight.device.listing import FileEntry
from fastflight.device.transfer.link import SHORT_BLOCK, BoardLink
from fastflight.device.transfer.resident import HASH_SECONDS
from fastflight.device.transfer.types import FileDigest, Resumption
from fastflight.errors import ProtocolError
from fastflight.protocol import Conversation

# The size of a sha256.
MAX_DIGEST_BYTES = 32

# How many bytes one command hashes beside a program: about 10 ms on a slow chip.
STEP_BYTES = 4096
START = """\
import {module}
def _ffh(s=[open({path!r},'rb'),{start},{count}]):
 import {module}
 f,h,l=s
 for i in range({blocks}):
  d=f.read({block} if l<0 or l>{block} else l)
  if not d:
   f.close()
   return {result}
  {update}
  l-=len(d)
 s[1:]=h,l
"""
HASHING = "_ffh"
NEXT = "print(_ffh())\n"
STEPS = {
    "sha256": {
        "module": "hashlib,binascii",
        "start": "hashlib.sha256()",
        "update": "h.update(d)",
        "result": "binascii.hexlify(h.digest()).decode()",
    },
    "crc32": {
        "module": "binascii",
        "start": "0",
        "update": "h=binascii.crc32(d,h)",
        "result": "'%08x'%(h&0xffffffff)",
    },
}
# Hashes small files in one command: at most `STEP_BYTES` in all, and not many, because opening a file takes time.
MAX_FILES = 8
HASH_FILES = """\
def _ff(p):
 import {module}
 h={start}
 with open(p,'rb') as f:
  while 1:
   d=f.read({block})
   if not d:
    return {result}
   {update}
for p in {paths!r}:
 print(_ff(p))
"""

_DIGEST = re.compile("[0-9a-f]{8}|[0-9a-f]{64}")


class RunningDigest:
    """The size, the sha256 and the crc32 of the content that was sent so far.

    With `resume`, size and crc32 begin with those of the part on the board. The sha256 is then that of the whole file
    from the start, as the caller gave it.
    """

    def __init__(self, resume: Resumption | None = None) -> None:
        self.size = resume.part.size if resume else 0
        self._part = resume.part if resume else None
        self._crc32 = int(resume.part.digest, 16) if resume and resume.part.algorithm == "crc32" else 0
        # A sha256 cannot be continued from its value, so the caller passes that of the whole file.
        self._sha256 = resume.sha256 if resume else hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Hash `data`, which follows what was sent before."""
        self.size += len(data)
        self._crc32 = binascii.crc32(data, self._crc32)
        if not isinstance(self._sha256, str):
            self._sha256.update(data)

    def after(self, data: bytes) -> RunningDigest:
        """Return a copy to which `data` is added."""
        other = copy.copy(self)
        if not isinstance(self._sha256, str):
            other._sha256 = self._sha256.copy()
        other.add(data)
        return other

    @property
    def sha256(self) -> str:
        """The sha256 in hexadecimal: of the bytes so far, or with `resume` of the whole file."""
        return self._sha256 if isinstance(self._sha256, str) else self._sha256.hexdigest()

    def hex(self, algorithm: str) -> str:
        """The hexadecimal digest by `algorithm`, `sha256` or `crc32`."""
        return self.sha256 if algorithm == "sha256" else f"{self._crc32:08x}"

    def covers_sent(self, algorithm: str) -> bool:
        """Whether `hex(algorithm)` is the digest of the bytes so far.

        It is not for the sha256 of a resumed write, which is that of the whole file.
        """
        return self._part is None or self._part.algorithm == algorithm == "crc32"


def digest(link: BoardLink, path: str, limit: int | None = None) -> Conversation[tuple[str, str]]:
    """Have the board hash a file, or its first `limit` bytes. Return the algorithm and the hexadecimal digest.

    The algorithm is the best that the board supports. Both texts are empty if it supports none.
    """
    name = link.capabilities.digest
    if not name:
        return "", ""
    (found,) = yield from digests(link, [path], path, limit)
    return name, found


def digests(link: BoardLink, paths: list[str], where: str, limit: int | None = None) -> Conversation[list[str]]:
    """Return the hexadecimal digests of files, or of their first `limit` bytes, in one pass.

    The board must support a digest (`Capabilities.digest`).
    """
    if link.is_beside:
        found = []
        for path in paths:
            found.append((yield from _in_steps(link, path, limit)))
        return _checked(found, paths, where)
    native_paths = tuple(map(link.capabilities.native_path, paths))
    count = -1 if limit is None else limit
    yield from link.resident.call("show", native_paths, count, link.capabilities.block_bytes, where=where)
    # The board prints dots while it is still at work.
    found = (yield from link.resident.finish(where)).decode("ascii", "replace").replace(".", "").split()
    return _checked(found, paths, where)


def _checked(found: list[str], paths: list[str], where: str) -> list[str]:
    if len(found) != len(paths):
        raise ProtocolError(f"the board gave {len(found)} digests of {len(paths)} files", where=where)
    if not all(map(_DIGEST.fullmatch, found)):
        raise ProtocolError("what the board gave is not a digest", where=where, hint="Ask again")
    return found


def _in_steps(link: BoardLink, path: str, limit: int | None) -> Conversation[str]:
    """Return the hexadecimal digest of a file, or of its first `limit` bytes, in commands that are short."""
    native = link.capabilities.native_path(path)
    code = START.format(
        path=native,
        count=-1 if limit is None else limit,
        block=SHORT_BLOCK,
        blocks=STEP_BYTES // SHORT_BLOCK,
        **STEPS[link.capabilities.digest],
    )
    kept = Kept.at(HASHING, link.capabilities)
    yield from execute(link.repl, link.capabilities, code + kept.keep, path, HASH_SECONDS)
    answer = "None"
    while answer == "None":
        output = yield from execute(link.repl, link.capabilities, kept.load + NEXT, path, HASH_SECONDS)
        answer = output.decode().strip()
    yield from execute(link.repl, link.capabilities, kept.drop, path, HASH_SECONDS)
    return answer


def hashes(link: BoardLink, folder: str) -> Conversation[list[FileDigest]]:
    """Return every file below `folder` with its digest, ordered by path: in one pass, if the board can list folders."""
    name = link.capabilities.digest
    if link.is_beside or not link.capabilities.has("os.ilistdir"):
        entries = yield from listing.listing(link.repl, link.capabilities, folder, recursive=True)
        files = [entry for entry in entries if entry.kind == "file"]
        values = (yield from _of_small_files(link, files, folder)) if link.is_beside and name else {}
        found = []
        for entry in files:
            if entry.path not in values:
                _, values[entry.path] = yield from digest(link, entry.path)
            found.append(FileDigest(entry.path, entry.size, name, values[entry.path]))
        return found
    yield from link.resident.call("tree", folder, link.capabilities.block_bytes, where=folder)
    lines = (yield from link.resident.finish(folder)).decode("utf-8", "replace").splitlines()
    return sorted((_parse_digest_line(line, name, folder) for line in lines), key=lambda file: file.path.split("/"))


def _of_small_files(link: BoardLink, files: Sequence[FileEntry], where: str) -> Conversation[dict[str, str]]:
    """Return the hexadecimal digests of the files that one command may hash together with others, by path."""
    values: dict[str, str] = {}
    for paths in _groups(files):
        native_paths = tuple(map(link.capabilities.native_path, paths))
        code = HASH_FILES.format(paths=native_paths, block=SHORT_BLOCK, **STEPS[link.capabilities.digest])
        output = yield from execute(link.repl, link.capabilities, code, where, HASH_SECONDS)
        values |= zip(paths, _checked(output.decode("ascii", "replace").split(), paths, where), strict=True)
    return values


def _groups(files: Sequence[FileEntry]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for entry in files:
        if entry.size > STEP_BYTES:
            continue
        if len(group) == MAX_FILES or size + entry.size > STEP_BYTES:
            yield group
            group, size = [], 0
        group.append(entry.path)
        size += entry.size
    if group:
        yield group


def _parse_digest_line(line: str, name: str, folder: str) -> FileDigest:
    try:
        # The board prints dots while it is still at work.
        path, size, value = answers.literal(line.strip().lstrip("."))
        if isinstance(value, str):
            value = binascii.a2b_base64(value)
        if not isinstance(value, bytes) or len(value) > MAX_DIGEST_BYTES:
            raise ValueError("not a digest")
        return FileDigest(listing.path_below(folder, answers.text(path)), answers.integer(size), name, value.hex())
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"the board listed {line[:200]!r}", where=folder, hint="Ask again") from error
