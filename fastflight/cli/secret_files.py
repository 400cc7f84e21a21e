"""Writes files with secrets: certificates, keys and tokens."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fastflight.errors import RequestError
from fastflight.files import replacement


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise `RequestError` if one of the files exists."""
    for path in paths:
        if path.exists():
            raise RequestError("the file exists already", where=str(path), hint="Give --force to replace it")


@contextlib.contextmanager
def new_files(contents: Sequence[tuple[Path, bytes, int]], force: bool) -> Iterator[None]:
    """Write `contents`, triples of path, content and mode. They replace the files at their paths when the block ends.

    All files are complete by then: if the disk is full or the block raises, the old files stay. Unless `force`, a file
    that exists raises `FileExistsError`.
    """
    with contextlib.ExitStack() as files:
        for path, content, mode in contents:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = files.enter_context(replacement(path, mode, sync=False))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # before the first of them replaces a file
        yield
        for path, _, _ in contents:
            if path.exists() and not force:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
