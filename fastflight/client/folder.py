"""Lists the files of a local folder that can be copied to a device."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
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
