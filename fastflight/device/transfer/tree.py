"""Writes many files below a folder so that a broken write leaves the old files whole.

The content of each file goes to a numbered temporary file in the same folder. When all are written, the board hashes
them in one pass. Only if all digests are right do they replace the old files, one right after the other. If that is
interrupted, the next conversation finishes it (`OpenBoard.mend`).

If the storage is full before that, the files that are complete are verified and replace the old ones at once. This
frees room for the rest, and `WrittenTree.at_once` is false.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastflight.device.execute import execute
from fastflight.device.listing import normal_path
from fastflight.device.transfer.digest import RunningDigest, digests
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.staging import (
    WRITE_SECONDS,
    StagedFile,
    check_writable,
    choose_place,
    damaged_error,
    explain_errors,
    place,
    place_all,
    verify,
)
from fastflight.device.transfer.types import Transfer, WrittenFile, WrittenTree
from fastflight.device.transfer.upload import FileUpload
from fastflight.errors import DeviceFull, RequestError
from fastflight.protocol import Conversation

T = TypeVar("T")

# How many paths one command has: its code must fit into a small heap.
MAX_PATHS = 16

# Prints the folders that were not there. Numbers of errors differ between ports: whether a folder exists is asked.
MKDIR = """\
import os
a=[]
for p in {folders!r}:
 try:
  os.mkdir(p)
  a.append(p)
 except OSError as e:
  try:
   os.stat(p)
  except OSError:
   raise e
print(a)
"""


@dataclass(frozen=True, slots=True)
class _Stored:
    staged: StagedFile
    sent: RunningDigest


class Tree:
    """A write of files below `folder`: call `add` for each file, then `finish`.

    `staged` is a list that belongs to the caller. It holds the unfinished files, which the caller must clean up if the
    write breaks off.
    """

    def __init__(self, link: BoardLink, folder: str, transfer: Transfer, staged: list[StagedFile]) -> None:
        self._link = link
        self._folder = folder
        self._transfer = transfer
        self._staged = staged
        self._folders = {"/"}
        self._paths: set[str] = set()
        # Files that are complete but have not replaced the old ones yet.
        self._stored: list[_Stored] = []
        self._written: list[tuple[str, WrittenFile]] = []
        self._at_once = True

    def add(self, path: str) -> Conversation[None]:
        """Fetch the content of the file at `path` below the folder, and store it in a temporary file."""
        full = self._resolve(path)
        made = yield from self._make_folders(full)
        staged = StagedFile(full, number=len(self._paths), made_folders=made)
        yield from choose_place(self._link, staged)
        self._staged.append(staged)
        upload = FileUpload(self._link, staged, None, self._transfer)
        with explain_errors(self._link, staged):
            try:
                sent = yield from upload.store()
            except DeviceFull:
                if not self._stored or not upload.can_continue:
                    raise
                self._at_once = False
                yield from self._replace_old_files()
                yield from upload.find_position()
                sent = yield from upload.store()
        self._stored.append(_Stored(staged, sent))

    def finish(self) -> Conversation[WrittenTree]:
        """Verify what was written, and let it replace the old files."""
        yield from self._replace_old_files()
        return WrittenTree(tuple(self._written), self._at_once)

    def _resolve(self, path: str) -> str:
        full = normal_path(posixpath.join(self._folder, path.lstrip("/")))
        if not full.startswith(self._folder.rstrip("/") + "/"):
            raise RequestError("the path leads out of the folder", where=path, hint="Name a file below it")
        if full in self._paths:
            raise RequestError("the path is given twice", where=path, hint="Name each file once")
        self._paths.add(full)
        return check_writable(full)

    def _make_folders(self, path: str) -> Conversation[tuple[str, ...]]:
        """Make the folders of the file at `path` that are missing. Return them, each before its parent."""
        missing = []
        while (path := posixpath.dirname(path)) not in self._folders:
            missing.append(path)
            self._folders.add(path)
        if not missing or not self._link.capabilities.folders:
            return ()
        code = MKDIR.format(folders=tuple(reversed(missing)))
        printed = yield from execute(self._link.repl, self._link.capabilities, code, missing[0], WRITE_SECONDS)
        return tuple(path for path in missing if repr(path).encode() in printed)

    def _replace_old_files(self) -> Conversation[None]:
        stored, link = self._stored, self._link
        name = link.capabilities.digest
        if name:
            for group in _groups(stored):
                found = yield from digests(link, [each.staged.staging_path for each in group], self._folder)
                for each, value in zip(group, found, strict=True):
                    if value != each.sent.hex(name):
                        raise damaged_error(each.staged.path)
        else:
            for each in stored:
                name = yield from verify(link, each.staged, each.sent)
        if link.capabilities.has("os.rename"):
            for each in stored:
                each.staged.placing = True
            for group in _groups(stored):
                yield from place_all(link, [each.staged for each in group])
        else:
            for each in stored:
                yield from place(link, each.staged, each.sent.size)
        for each in stored:
            self._staged.remove(each.staged)
            self._written.append((each.staged.path, WrittenFile(each.sent.size, each.sent.sha256, name)))
        self._stored = []


def _groups(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield `items` in groups of at most `MAX_PATHS`."""
    for start in range(0, len(items), MAX_PATHS):
        yield items[start : start + MAX_PATHS]
