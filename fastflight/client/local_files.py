"""Local files as bytes: their sizes, blocks and digests, and the files of a folder that can be copied to a device.

Loads no Arrow.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
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


# Links are not followed, but a junction on Windows counts as a folder and may contain itself. No board nests deeper.
MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class LocalEntry:
    """A file below a folder: its path relative to the folder, with slashes, its local path, and its size in bytes."""

    path: str
    local: Path
    size: int


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """The content of a folder: its files, the paths skipped because they are neither files nor folders, and the paths
    that were ignored. An ignored folder ends in a slash, and stands for everything in it.
    """

    files: tuple[LocalEntry, ...]
    skipped: tuple[str, ...]
    ignored: tuple[str, ...]


def scan(folder: Path, ignore: Sequence[str] = ()) -> LocalFolder:
    """Find all files below `folder`. Links are not followed: they are `skipped`, and so are sockets.

    `ignore` lists globs of files and folders to leave out; see `is_ignored`.

    Raises `RequestError` if it cannot be read, nests too deep, or holds a name that is not UTF-8.
    """
    files: list[LocalEntry] = []
    skipped: list[str] = []
    ignored: list[str] = []
    try:
        for path, entry in _walk(folder, "", ignore):
            if is_ignored(path, ignore):
                ignored.append(path)
            elif entry.is_file(follow_symlinks=False):
                files.append(LocalEntry(path, Path(entry.path), entry.stat(follow_symlinks=False).st_size))
            else:
                skipped.append(path)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=error.filename or str(folder)) from error
    return LocalFolder(tuple(files), tuple(skipped), tuple(ignored))


def is_ignored(path: str, ignore: Sequence[str]) -> bool:
    """Whether a glob of `ignore` matches `path`. The path of a folder ends in a slash.

    A glob without a slash matches a name in any folder: `*.pyc`. One with a slash matches a whole path, which is
    relative to the folder that is copied: `docs/*.md`. A glob that ends in a slash matches only folders: `build/`.
    """
    names = path.rstrip("/").split("/")
    for glob in ignore:
        if glob.endswith("/") and not path.endswith("/"):
            continue
        parts = glob.rstrip("/").lstrip("/").split("/")
        matched = names if "/" in glob.rstrip("/") else names[-1:]
        if len(matched) == len(parts) and all(map(fnmatchcase, matched, parts)):
            return True
    return False


def is_left_out(path: str, ignore: Sequence[str]) -> bool:
    """Whether a glob of `ignore` matches the file at `path`, or a folder that it is in."""
    names = path.split("/")
    folders = ("/".join(names[:depth]) + "/" for depth in range(1, len(names)))
    return any(is_ignored(each, ignore) for each in (path, *folders))


def _walk(folder: Path, prefix: str, ignore: Sequence[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all entries that are no folders, and the folders to ignore, whose paths end in a slash."""
    if prefix.count("/") > MAX_DEPTH:
        raise RequestError(f"folders nest deeper than {MAX_DEPTH}", where=str(folder))
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = prefix + entry.name
        if not is_text(entry.name):
            raise RequestError("the name of a file is not UTF-8", where=repr(entry.path), hint="Rename it")
        if not entry.is_dir(follow_symlinks=False):
            yield path, entry
        elif is_ignored(f"{path}/", ignore):
            yield f"{path}/", entry
        else:
            yield from _walk(Path(entry.path), f"{path}/", ignore)


def is_text(name: str) -> bool:
    """Whether a name is valid UTF-8. Python represents undecodable bytes of names as surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in name)
