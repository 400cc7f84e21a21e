"""Copies folders between this computer and a board.

Each file is copied to the same relative path; files that only the target has stay, unless `delete` is set. With
`skip_unchanged`, the board first computes the digests of its files in one pass, and only files that differ are moved.
Folders without files are neither copied nor removed.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fastflight.client.answers import CopiedTree, RemoteEntry
from fastflight.client.local_files import LocalEntry, is_left_out, os_errors_of, scan
from fastflight.client.local_names import FOLDS_CASE, clash, local_path
from fastflight.client.partial_file import FolderWriter
from fastflight.client.progress import Report, TreeReport
from fastflight.errors import DataError, DeviceError, FileMissing, ProtocolError, RequestError
from fastflight.service.choices import LEFT_BEHIND, MAX_FILES, MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from fastflight.client.board import Board

T = TypeVar("T")

# The most characters of all paths in one request: JSON may need up to six for one of them.
MAX_NAMES_CHARACTERS = MAX_REQUEST_BYTES // 8


def put_tree(
    board: Board,
    folder: str,
    local: str | Path,
    *,
    skip_unchanged: bool = False,
    ignore: Sequence[str] = (),
    delete: bool = False,
    progress: TreeReport | None = None,
) -> CopiedTree:
    """Copy a local folder to a board: all files, or with `skip_unchanged` only those that differ."""
    source = Path(local)
    here = scan(source, ignore)
    there = _remote_digests(board, folder) if skip_unchanged else None
    with os_errors_of(source):
        same = {entry.path for entry in here.files if there and _is_same(there.get(entry.path), entry.local)}
    wanted = [entry for entry in here.files if entry.path not in same]
    total = sum(entry.size for entry in wanted)
    done = 0
    if wanted and progress is not None:
        progress(wanted[0].path, 0, total)
    for batch in batches_of(wanted, lambda entry: entry.path):
        done += board.write_tree(folder, batch, _file_report(progress, batch, done, total)).bytes
    removed: tuple[str, ...] = ()
    if delete:
        names = {entry.path for entry in here.files}
        if there is None:
            there = _listed_or_empty(board, folder)
        removed = tuple(path for path in there if path not in names and not is_left_out(path, ignore))
        for path in removed:
            board.remove(posixpath.join("/", folder, path))
    unchanged = tuple(entry.path for entry in here.files if entry.path in same)
    return CopiedTree(tuple(entry.path for entry in wanted), done, unchanged, here.skipped, here.ignored, removed)


def get_tree(
    board: Board,
    folder: str,
    local: str | Path,
    *,
    skip_unchanged: bool = False,
    ignore: Sequence[str] = (),
    delete: bool = False,
    progress: TreeReport | None = None,
) -> CopiedTree:
    """Copy a folder of a board to this computer: all files, or with `skip_unchanged` only those that differ."""
    target = Path(local)
    # Where nothing is here yet, nothing can be the same.
    there = _remote_digests(board, folder) if skip_unchanged and target.is_dir() else None
    if there is None:
        there = _listed(board, folder)
    ignored = tuple(path for path in there if is_left_out(path, ignore))
    there = {path: entry for path, entry in there.items() if path not in ignored}
    if FOLDS_CASE and (pair := clash(list(there))):
        raise DataError(f"{pair[0]!r} and {pair[1]!r} would be one file here", hint="Rename one on the device")
    with os_errors_of(target):
        here = {path: local_path(target, path) for path in there}
        wanted = [path for path, entry in there.items() if not (skip_unchanged and _is_same(entry, here[path]))]
        total = sum(there[path].size for path in wanted)
        writer = FolderWriter(target, there)
        if wanted and progress is not None:
            progress(wanted[0], 0, total)
        for batch in batches_of(wanted, str):
            with closing(board.read_tree(folder, batch)) as download, writer:
                for digests, blocks in download:
                    writer.expect(digests)
                    for path, offset, data in blocks:
                        writer.add(path, offset, data)
                    if progress is not None:
                        progress(writer.path, writer.bytes, total)
    if missing := set(wanted).difference(writer.paths):
        raise ProtocolError("the server did not send all requested files", where=min(missing))
    unchanged = tuple(path for path in there if path not in writer.paths)
    removed = _remove_others(target, here.values(), ignore) if delete else ()
    return CopiedTree(tuple(writer.paths), writer.bytes, unchanged, (), ignored, removed)


def _remove_others(folder: Path, copied: Collection[Path], ignore: Sequence[str]) -> tuple[str, ...]:
    """Remove the local files that were not copied. Return their paths. Links stay."""
    if not folder.is_dir():
        return ()
    others = [entry for entry in scan(folder, ignore).files if entry.local not in copied]
    with os_errors_of(folder):
        for entry in others:
            entry.local.unlink()
    return tuple(entry.path for entry in others)


def _file_report(progress: TreeReport | None, batch: Sequence[LocalEntry], before: int, total: int) -> Report | None:
    """Return a `Report` that turns the acknowledged bytes of a batch of files into the path of the current file."""
    if progress is None:
        return None
    ends = list(accumulate(entry.size for entry in batch))

    def report(rows: int, done: int, _: int | None) -> None:
        current = batch[min(bisect_right(ends, done), len(batch) - 1)]
        progress(current.path, before + done, total)

    return report


def _is_same(remote: RemoteEntry | None, local: Path) -> bool:
    return remote is not None and remote.same(local)


def _remote_digests(board: Board, folder: str) -> dict[str, RemoteEntry] | None:
    """Return the files below a folder, with digests that the board computes in one pass.

    Return None if there is no such folder, or if the board cannot compute digests.
    """
    try:
        return below(folder, board.hashes(folder))
    except DeviceError as error:
        if type(error) in (FileMissing, DeviceError):
            return None
        raise


def _listed(board: Board, folder: str) -> dict[str, RemoteEntry]:
    """Return the files below a folder, without digests. `FileMissing` if there is none."""
    entries = board.ls(folder, recursive=True)
    return below(folder, ((each.path, RemoteEntry(each.size)) for each in entries if each.kind == "file"))


def _listed_or_empty(board: Board, folder: str) -> dict[str, RemoteEntry]:
    try:
        return _listed(board, folder)
    except FileMissing:
        return {}


def below(folder: str, entries: Iterable[tuple[str, RemoteEntry]]) -> dict[str, RemoteEntry]:
    """Return entries by their paths relative to `folder`, without the partial files of interrupted writes.

    Raises `RequestError` if `folder` is a file: the listing of a file contains the file itself. Raises `ProtocolError`
    for an entry that is not below the folder.
    """
    prefix = posixpath.normpath("/" + folder.lstrip("/")).rstrip("/") + "/"
    found = dict(entries)
    if prefix[:-1] in found:
        raise RequestError("this is a file, not a folder", where=folder, hint="Copy it without -r")
    if elsewhere := next((path for path in found if not path.startswith(prefix)), None):
        raise ProtocolError(f"the server listed {elsewhere!r}, which is not in the folder", where=folder)
    return {
        path.removeprefix(prefix): entry
        for path, entry in found.items()
        if not posixpath.basename(path).startswith(LEFT_BEHIND)
    }


def batches_of(items: Sequence[T], path: Callable[[T], str]) -> Iterator[list[T]]:
    """Split `items` so that the paths of each batch fit into one request."""
    batch: list[T] = []
    characters = 0
    for item in items:
        characters += len(path(item))
        if batch and (len(batch) == MAX_FILES or characters > MAX_NAMES_CHARACTERS):
            yield batch
            batch, characters = [], len(path(item))
        batch.append(item)
    if batch:
        yield batch
