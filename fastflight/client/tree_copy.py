"""Copies folders between this computer and a device.

Each file is copied to the same relative path; files that only the target has stay, unless `delete` is set. With
`skip_unchanged`, the device first computes the digests of its files in one pass, and only files that differ are moved.
Folders without files are neither copied nor removed.
"""

from __future__ import annotations

import hashlib
import posixpath
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from fastflight.client.answers import CopiedTree
from fastflight.client.device_files import DeviceFiles, ReadableFiles, RemoteEntry
from fastflight.client.local_files import LocalEntry, is_left_out, os_errors_of, scan
from fastflight.client.local_names import FOLDS_CASE, clash, local_path
from fastflight.client.options import TreeCopyOptions
from fastflight.client.partial_file import FolderWriter
from fastflight.client.threads import Steps
from fastflight.errors import DataError, DeviceError, FileMissing, ProtocolError, RequestError
from fastflight.service.choices import LEFT_BEHIND, MAX_FILES, MAX_REQUEST_BYTES

T = TypeVar("T")

# The most characters of all paths in one request: JSON may need up to six for one of them.
MAX_NAMES_CHARACTERS = MAX_REQUEST_BYTES // 8


class PutTree(Steps):
    """The `Work` of `put_tree`: copies a local folder to a device."""

    def __init__(self, files: DeviceFiles, folder: str, source: str | Path, options: TreeCopyOptions) -> None:
        super().__init__()
        self._files = files
        self._folder = folder
        self._source = Path(source)
        self._skip_unchanged = options.get("skip_unchanged", False)
        self._ignore = options.get("ignore", ())
        self._delete = options.get("delete", False)
        self._progress = options.get("progress")

    def run(self) -> CopiedTree:
        """Send the files: all of them, or with `skip_unchanged` only the files that differ."""
        folder = scan(self._source, self._ignore)
        there = remote_digests(self._files, self._folder) if self._skip_unchanged else None
        wanted = self._different(folder.files, there or {})
        moved = {entry.path for entry in wanted}
        total = sum(entry.size for entry in wanted)
        done = 0
        if wanted and self._progress is not None:
            self._progress(wanted[0].path, 0, total)
        for lot in lots(wanted, lambda entry: entry.path):
            upload = self._files.write_tree(self._folder, lot, self._report(lot, done, total))
            with self.step(upload.give_up):
                done += upload.run().bytes
        kept = tuple(entry.path for entry in folder.files if entry.path not in moved)
        here = {entry.path for entry in folder.files}
        removed = self._remove_others(here, self._listed() if there is None else there) if self._delete else ()
        return CopiedTree(tuple(entry.path for entry in wanted), done, kept, folder.skipped, folder.ignored, removed)

    def _different(self, files: Sequence[LocalEntry], there: Mapping[str, RemoteEntry]) -> list[LocalEntry]:
        with os_errors_of(self._source):
            return [entry for entry in files if not (entry.path in there and there[entry.path].same(entry.local))]

    def _listed(self) -> Mapping[str, RemoteEntry]:
        try:
            return listed(self._files, self._folder, self)
        except FileMissing:
            return {}

    def _remove_others(self, here: Collection[str], there: Iterable[str]) -> tuple[str, ...]:
        """Remove the device's files that are not in the local folder. Return their paths."""
        others = tuple(path for path in there if path not in here and not is_left_out(path, self._ignore))
        for path in others:
            with self.step(lambda: None):
                self._files.remove(posixpath.join("/", self._folder, path))
        return others

    def _report(
        self, lot: Sequence[LocalEntry], before: int, total: int
    ) -> Callable[[int, int, int | None], None] | None:
        """Return a progress callback that turns the acknowledged bytes of a lot into the path of the current file."""
        if (tell := self._progress) is None:
            return None
        ends = list(accumulate(entry.size for entry in lot))

        def report(rows: int, done: int, _: int | None) -> None:
            under_way = lot[min(bisect_right(ends, done), len(lot) - 1)]
            tell(under_way.path, before + done, total)

        return report


class GetTree(Steps):
    """The `Work` of `get_tree`: copies a folder of a device to this computer."""

    def __init__(self, files: ReadableFiles, folder: str, target: str | Path, options: TreeCopyOptions) -> None:
        super().__init__()
        self._files = files
        self._folder = folder
        self._target = Path(target)
        self._skip_unchanged = options.get("skip_unchanged", False)
        self._ignore = options.get("ignore", ())
        self._delete = options.get("delete", False)
        self._progress = options.get("progress")

    def run(self) -> CopiedTree:
        """Read the files: all of them, or with `skip_unchanged` only the files that differ."""
        # Where nothing is here yet, nothing can be the same.
        compare = self._skip_unchanged and self._target.is_dir()
        there = remote_digests(self._files, self._folder) if compare else None
        if there is None:
            there = listed(self._files, self._folder, self)
        ignored = tuple(path for path in there if is_left_out(path, self._ignore))
        there = {path: entry for path, entry in there.items() if path not in ignored}
        if FOLDS_CASE and (pair := clash(list(there))):
            raise DataError(f"{pair[0]!r} and {pair[1]!r} would be one file here", hint="Rename one on the device")
        with os_errors_of(self._target):
            places = {path: local_path(self._target, path) for path in there}
            wanted = [path for path, entry in there.items() if not (self._skip_unchanged and entry.same(places[path]))]
            total = sum(there[path].size for path in wanted)
            writer = FolderWriter(self._target, there)
            if wanted and self._progress is not None:
                self._progress(wanted[0], 0, total)
            for lot in lots(wanted, str):
                self._take(lot, writer, total)
        if missing := set(wanted).difference(writer.paths):
            raise ProtocolError("the server did not send all requested files", where=min(missing))
        kept = tuple(path for path in there if path not in writer.paths)
        removed = self._remove_others(places.values()) if self._delete else ()
        return CopiedTree(tuple(writer.paths), writer.bytes, kept, (), ignored, removed)

    def _remove_others(self, places: Collection[Path]) -> tuple[str, ...]:
        """Remove the local files that are not on the device. Return their paths. Links stay."""
        if not self._target.is_dir():
            return ()
        others = [entry for entry in scan(self._target, self._ignore).files if entry.local not in places]
        with os_errors_of(self._target):
            for entry in others:
                entry.local.unlink()
        return tuple(entry.path for entry in others)

    def _take(self, lot: Sequence[str], writer: FolderWriter, total: int) -> None:
        sha256 = hashlib.sha256()
        download = self._files.read_tree(self._folder, lot)
        with download, self.step(download.cancel), writer:
            for digests, pieces in download:
                writer.expect(digests)
                for path, offset, data in pieces:
                    writer.add(path, offset, data)
                    sha256.update(data)
                if self._progress is not None:
                    self._progress(writer.path, writer.bytes, total)
        if download.sha256 != sha256.hexdigest():
            raise DataError("what arrived is not what the device sent", where=str(self._target), hint="Try again")


def remote_digests(files: ReadableFiles, folder: str) -> dict[str, RemoteEntry] | None:
    """Return the files below a folder, with digests that the device computes in one pass.

    Return None if there is no such folder, or if the board cannot compute digests.
    """
    try:
        return below(folder, files.hashes(folder))
    except DeviceError as error:
        if type(error) in (FileMissing, DeviceError):
            return None
        raise


def listed(files: ReadableFiles, folder: str, work: Steps) -> dict[str, RemoteEntry]:
    """Return the files below a folder, without digests, as a step of `work`. `FileMissing` if there is none."""
    listing = files.list_tree(folder)
    with listing, work.step(listing.cancel):
        entries = list(listing)
    return below(folder, ((each.path, RemoteEntry(each.size)) for each in entries if each.kind == "file"))


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


def lots(items: Sequence[T], path: Callable[[T], str]) -> Iterator[list[T]]:
    """Split `items` into lots, so that the paths of each lot fit into one request."""
    lot: list[T] = []
    characters = 0
    for item in items:
        characters += len(path(item))
        if lot and (len(lot) == MAX_FILES or characters > MAX_NAMES_CHARACTERS):
            yield lot
            lot, characters = [], len(path(item))
        lot.append(item)
    if lot:
        yield lot
