"""Copies a file between this computer and a board, byte for byte, and resumes interrupted copies.

An interrupted copy to a board leaves a partial file there. The board reports the size and the digest of that file; if
the first bytes of the local file have the same digest, only the rest is sent. An interrupted copy from a board leaves
`FILE.part` here; if the first bytes of the board's file have the same digest, only the rest is read. If not, or if the
board cannot compute digests, the copy starts from the beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fastflight.client import partial_file
from fastflight.client.answers import Copied, Digest
from fastflight.client.local_files import agrees, local_digest, os_errors_of, size_of
from fastflight.client.progress import Report, Resuming
from fastflight.errors import DataError, DeviceError, FileMissing, RequestError

if TYPE_CHECKING:
    from fastflight.client.board import Board

PART_SUFFIX = ".part"


@dataclass(frozen=True, slots=True)
class FileToSend:
    """A local file to write to a board. `sha256` is that of the whole file."""

    source: Path
    size: int
    sha256: str
    # Called with the number of bytes that an interrupted write has left on the board, and their digest. Returns the
    # offset to go on at: that number, or 0. None: start from the beginning, and leave nothing if this breaks off.
    resume_at: Callable[[int, Digest], int] | None


def put_file(
    board: Board,
    path: str,
    local: str | Path,
    *,
    resume: bool = True,
    skip_unchanged: bool = False,
    progress: Report | None = None,
    resuming: Resuming | None = None,
) -> Copied:
    """Copy a local file to a board. The old file there stays until the new one is complete and verified."""
    source = Path(local)
    size = size_of(source)
    with os_errors_of(source):
        sha256 = local_digest(source, "sha256")
    _report_size(progress, size)
    if skip_unchanged and _is_unchanged(board, path, source):
        return Copied(size, sha256, unchanged=True)
    resumed_at = 0

    def resume_at(stored: int, digest: Digest) -> int:
        nonlocal resumed_at
        with os_errors_of(source):
            if not 0 < stored <= size or not agrees(source, digest.algorithm, digest.digest, stored):
                return 0
        resumed_at = stored
        if resuming is not None:
            resuming(stored, size)
        return stored

    written = board.write(path, FileToSend(source, size, sha256, resume_at if resume else None), progress)
    return Copied(written.bytes, written.sha256 or sha256, resumed_at)


def get_file(
    board: Board,
    path: str,
    local: str | Path,
    *,
    resume: bool = True,
    skip_unchanged: bool = False,
    progress: Report | None = None,
    resuming: Resuming | None = None,
) -> Copied:
    """Copy a file of a board to this computer. The old local file stays until the new one is complete."""
    # Unlike `resolve`, `realpath` does not fail on a link to itself.
    target = Path(os.path.realpath(local))
    part = target.with_name(target.name + PART_SUFFIX)
    with os_errors_of(Path(local)):
        if target.exists() and not target.is_file():
            raise RequestError("is not a file", where=str(local), hint="Give the name of a file to write")
        with partial_file.locked(part, keep=resume) as file:
            entry = board.stat(path)
            if entry.kind != "file":
                where, hint = f"{board.name}:{path}", "Copy it with get_tree; on the command line, get -r"
                raise RequestError("this is a folder", where=where, hint=hint)
            _report_size(progress, entry.size)
            if skip_unchanged and _is_unchanged(board, path, target):
                return Copied(entry.size, local_digest(target, "sha256"), unchanged=True)
            offset = _resume_offset(board, path, part, entry.size) if resume else 0
            if offset and resuming is not None:
                resuming(offset, entry.size)
            try:
                _read_rest(board, path, file, offset, entry.size, progress)
                if offset:  # what was read is verified, but not what was here
                    remote = board.hash(path)
                    if not agrees(part, remote.algorithm, remote.digest):
                        raise DataError(
                            "what arrived is not what the device has",
                            where=str(local),
                            hint="It may have changed meanwhile: try again",
                        )
            except DataError:
                file.truncate(0)
                raise
            sha256 = local_digest(part, "sha256")
            return Copied(partial_file.replace(file, part, target), sha256, offset)


def _resume_offset(board: Board, path: str, part: Path, size: int) -> int:
    """Return the size of the partial file if it is still the beginning of the board's file, otherwise 0."""
    here = part.stat().st_size
    if not 0 < here <= size:
        return 0
    try:
        remote = board.hash(path, here)
    except DeviceError:  # the board cannot compute digests, or not of the beginning of a file
        return 0
    return here if agrees(part, remote.algorithm, remote.digest) else 0


def _read_rest(board: Board, path: str, file: BinaryIO, offset: int, size: int, progress: Report | None) -> None:
    """Append to `file` what the board's file has from `offset` on."""
    if not offset:
        file.truncate(0)
    done = offset
    with closing(board.read(path, offset)) as blocks:
        for number, data in enumerate(blocks, 1):
            file.write(data)
            done += len(data)
            if progress is not None:
                progress(number, done, size)
    file.flush()


def _report_size(progress: Report | None, size: int) -> None:
    """Report the size of the file before anything is moved."""
    if progress is not None:
        progress(0, 0, size)


def _is_unchanged(board: Board, path: str, local: Path) -> bool:
    """Whether a local file and the board's are the same, by size and digest. False if the board cannot digest it."""
    try:
        if not local.is_file() or local.stat().st_size != board.stat(path).size:
            return False
        remote = board.hash(path)
    except DeviceError as error:
        if type(error) in (FileMissing, DeviceError):
            return False
        raise
    return agrees(local, remote.algorithm, remote.digest)
