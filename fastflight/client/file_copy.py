"""Copies a file between this computer and a device, byte for byte, and resumes interrupted copies.

An interrupted copy to a device leaves its part there. The server reports the size and the digest of that part; if the
first bytes of the local file have the same digest, only the rest is sent. An interrupted copy from a device leaves its
part here, as `FILE.part`; if the first bytes of the device's file have the same digest, only the rest is read. If not,
or if the board cannot compute digests, the copy starts from the beginning.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from fastflight.client import partial_file
from fastflight.client.answers import Copied, Digest
from fastflight.client.device_files import DeviceFiles, FileToSend, ReadableFiles
from fastflight.client.local_files import agrees, local_digest, os_errors_of, size_of
from fastflight.client.options import FileCopyOptions
from fastflight.client.progress import Report
from fastflight.client.threads import Steps
from fastflight.errors import DataError, DeviceError, FileMissing, RequestError

PART_SUFFIX = ".part"


class PutFile(Steps):
    """The `Work` of `put_file`: copies a local file to a device."""

    def __init__(self, files: DeviceFiles, path: str, source: str | Path, options: FileCopyOptions) -> None:
        super().__init__()
        self._files = files
        self._path = path
        self._source = Path(source)
        self._resume = options.get("resume", True)
        self._skip_unchanged = options.get("skip_unchanged", False)
        self._progress = options.get("progress")
        self._resuming = options.get("resuming")
        self._size = 0
        self._resumed_at = 0

    def run(self) -> Copied:
        """Send the bytes that the device does not have."""
        self._size = size_of(self._source)
        with os_errors_of(self._source):
            sha256 = local_digest(self._source, "sha256")
        _report_size(self._progress, self._size)
        if self._skip_unchanged and unchanged(self._files, self._path, self._source):
            return Copied(self._size, sha256, unchanged=True)
        file = FileToSend(self._source, self._size, sha256, self._resume_at if self._resume else None)
        upload = self._files.write(self._path, file, self._progress)
        with self.step(upload.give_up):
            written = upload.run()
        return Copied(written.bytes, written.sha256 or sha256, self._resumed_at)

    def _resume_at(self, kept: int, digest: Digest) -> int:
        """Return the number of bytes on the device if they are the beginning of this file, otherwise 0."""
        with os_errors_of(self._source):
            if not 0 < kept <= self._size or not agrees(self._source, digest.algorithm, digest.digest, kept):
                return 0
        self._resumed_at = kept
        if self._resuming is not None:
            self._resuming(kept, self._size)
        return kept


class GetFile(Steps):
    """The `Work` of `get_file`: copies a file of a device to this computer."""

    def __init__(self, files: ReadableFiles, path: str, target: str | Path, options: FileCopyOptions) -> None:
        super().__init__()
        self._files = files
        self._path = path
        self._shown = Path(target)
        # Unlike `resolve`, `realpath` does not fail on a link to itself.
        self._target = Path(os.path.realpath(target))
        self._part = self._target.with_name(self._target.name + PART_SUFFIX)
        self._resume = options.get("resume", True)
        self._skip_unchanged = options.get("skip_unchanged", False)
        self._progress = options.get("progress")
        self._resuming = options.get("resuming")

    def run(self) -> Copied:
        """Read the bytes that are missing here. Replace the old file when the new one is complete."""
        with os_errors_of(self._shown):
            if self._target.exists() and not self._target.is_file():
                raise RequestError("is not a file", where=str(self._shown), hint="Give the name of a file to write")
            with partial_file.locked(self._part, keep=self._resume) as file:
                return self._copy(file)

    def _copy(self, file: BinaryIO) -> Copied:
        entry = self._files.stat(self._path)
        if entry.kind != "file":
            where = f"{self._files.device}:{self._path}"
            raise RequestError(
                "this is a folder", where=where, hint="Copy it with get_tree; on the command line, get -r"
            )
        size = entry.size
        _report_size(self._progress, size)
        if self._skip_unchanged and unchanged(self._files, self._path, self._target):
            return Copied(size, local_digest(self._target, "sha256"), unchanged=True)
        offset = self._resume_offset(size) if self._resume else 0
        if offset and self._resuming is not None:
            self._resuming(offset, size)
        sha256 = self._read(file, offset, size)
        return Copied(partial_file.replace(file, self._part, self._target), sha256, offset)

    def _resume_offset(self, size: int) -> int:
        """Return the size of the partial file if it is still the beginning of the device's file, otherwise 0."""
        here = self._part.stat().st_size
        if not 0 < here <= size:
            return 0
        try:
            remote = self._files.hash(self._path, here)
        except DeviceError:  # the board cannot compute digests, or not of a part of a file
            return 0
        return here if agrees(self._part, remote.algorithm, remote.digest) else 0

    def _read(self, file: BinaryIO, offset: int, size: int) -> str:
        """Read the file from `offset` on into the partial file. Return the sha256 of the whole file."""
        if not offset:
            file.truncate(0)
        received, sent = self._receive(file, offset, size)
        file.flush()
        intact, whole = received == sent, received
        if intact and offset:
            # These digests covered only the new bytes: compare the whole file as well.
            remote = self._files.hash(self._path)
            intact = agrees(self._part, remote.algorithm, remote.digest)
            whole = local_digest(self._part, "sha256")
        if not intact:
            file.truncate(0)
            hint = "It may have changed meanwhile: try again"
            raise DataError("what arrived is not what the device has", where=str(self._shown), hint=hint)
        return whole

    def _receive(self, file: BinaryIO, offset: int, size: int) -> tuple[str, str]:
        """Write the rows of the answer to `file`. Return the sha256 of the bytes received and of those sent."""
        sha256 = hashlib.sha256()
        rows, done = 0, offset
        download = self._files.read(self._path, offset)
        with download, self.step(download.cancel):
            for data in download:
                file.write(data)
                sha256.update(data)
                rows, done = rows + 1, done + len(data)
                if self._progress is not None:
                    self._progress(rows, done, size)
        return sha256.hexdigest(), download.sha256


def _report_size(progress: Report | None, size: int) -> None:
    """Report the size of the file before anything is moved."""
    if progress is not None:
        progress(0, 0, size)


def unchanged(files: ReadableFiles, path: str, local: Path) -> bool:
    """Whether a local file and the device's are the same, by size and digest. False if the board cannot digest it."""
    try:
        if not local.is_file() or local.stat().st_size != files.stat(path).size:
            return False
        remote = files.hash(path)
    except DeviceError as error:
        if type(error) in (FileMissing, DeviceError):
            return False
        raise
    return agrees(local, remote.algorithm, remote.digest)
