"""Lists the files of a local folder that can be copied to a device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastflight.errors import RequestError

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
    """The content of a folder: its files, and the paths skipped because they are neither files nor folders."""

    files: tuple[LocalEntry, ...]
    skipped: tuple[str, ...]


def scan(folder: Path) -> LocalFolder:
    """Find all files below `folder`. Links are not followed: they are `skipped`, and so are sockets.

    Raises `RequestError` if it cannot be read, nests too deep, or holds a name that is not UTF-8.
    """
    files: list[LocalEntry] = []
    skipped: list[str] = []
    try:
        for path, entry in _walk(folder, ""):
            if entry.is_file(follow_symlinks=False):
                files.append(LocalEntry(path, Path(entry.path), entry.stat(follow_symlinks=False).st_size))
            else:
                skipped.append(path)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=error.filename or str(folder)) from error
    return LocalFolder(tuple(files), tuple(skipped))


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    if prefix.count("/") > MAX_DEPTH:
        raise RequestError(f"folders nest deeper than {MAX_DEPTH}", where=str(folder))
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = prefix + entry.name
        if not is_text(entry.name):
            raise RequestError("the name of a file is not UTF-8", where=repr(entry.path), hint="Rename it")
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{path}/")
        else:
            yield path, entry


def is_text(name: str) -> bool:
    """Whether a name is valid UTF-8. Python represents undecodable bytes of names as surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in name)
