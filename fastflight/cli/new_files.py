"""Files with secrets that a command makes: certificates, keys and tokens."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fastflight.errors import RequestError


def absent(paths: Iterable[Path]) -> None:
    """`RequestError` for a file that exists."""
    for path in paths:
        if path.exists():
            raise RequestError("it is there already", where=str(path), hint="Give --force to write over it")


@contextlib.contextmanager
def new_files(contents: Sequence[tuple[Path, bytes, int]], force: bool) -> Iterator[None]:
    """Write files, each with its content and mode, that get their names when the block ends.

    All are complete before one has its name: where the disk is full, or the block raises, the old files stay. A link
    that somebody put in their place is replaced and not followed. `force`: files that exist are replaced.
    """
    made: list[Path] = []
    try:
        for path, content, mode in contents:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            made.append(beside)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        yield
        for beside, (path, _, _) in zip(made, contents, strict=True):
            if path.exists() and not force:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            os.replace(beside, path)
    finally:
        for beside in made:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
