"""Writes files with secrets: certificates, keys and tokens."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fastflight.errors import RequestError


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise `RequestError` if one of the files exists."""
    for path in paths:
        if path.exists():
            raise RequestError("the file exists already", where=str(path), hint="Give --force to replace it")


@contextlib.contextmanager
def new_files(contents: Sequence[tuple[Path, bytes, int]], force: bool) -> Iterator[None]:
    """Write `contents`, triples of path, content and mode, under temporary names. Rename them when the block ends.

    All files are complete before the first is renamed: if the disk is full or the block raises, the old files stay. A
    symbolic link at a path is replaced, not followed. Unless `force`, a file that exists raises `FileExistsError`.
    """
    written: list[Path] = []
    try:
        for path, content, mode in contents:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            written.append(temporary)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        yield
        for temporary, (path, _, _) in zip(written, contents, strict=True):
            if path.exists() and not force:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            os.replace(temporary, path)
    finally:
        for temporary in written:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
