"""The values that callers of transfers give and get.

A write that was cut off can be resumed in three steps, of which the caller does the middle one::

    part = session.part(path)                       # what lies on the board, and the digest that the board took of it
    # compare part.digest with that of the first part.size bytes of the content, then
    session.write(path, rest, resume=Resumption(part, sha256_of_all), keep=True)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["auto", "binary", "base64", "literal"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """How to move bytes, where the choice is not left to what the board can do.

    `method` is the form of the bytes on the line: `binary` through a loop on the board, `base64` and `literal` as
    text. One that the board cannot take is a `RequestError`. `deflate`: whether to compress blocks that shrink, where
    the board can. None: only in binary, on a line whose speed is known and below 1 Mbaud.
    """

    method: Method = "auto"
    deflate: bool | None = None


AUTO = Transfer()


@dataclass(frozen=True, slots=True)
class PartialWrite:
    """What a write that was cut off left on the board: `size` bytes, and the digest that the board took of them.

    `algorithm` is `sha256` or `crc32`, `digest` hexadecimal.
    """

    size: int
    algorithm: str
    digest: str


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to go on after `part`. The caller has checked that its digest is that of the content's first bytes.

    `sha256` is the hexadecimal digest of the whole content. The finished file is compared with it, where the board can
    take a sha256, and it is reported as that of what was written.
    """

    part: PartialWrite
    sha256: str


@dataclass(frozen=True, slots=True)
class Hashed:
    """A file and the digest that the board took of it; `algorithm` and `digest` are empty where it can take none."""

    path: str
    size: int
    algorithm: str
    digest: str


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished write. `verified` says how: `sha256`, `crc32` or `read back`."""

    bytes: int
    sha256: str
    verified: str


@dataclass(frozen=True, slots=True)
class WrittenTree:
    """A finished write of several files, in the order given, by their absolute paths.

    `at_once`: all old files were in place until every new one was verified. False where the storage had no room for
    both: then they were replaced in several goes.
    """

    files: tuple[tuple[str, WrittenFile], ...]
    at_once: bool
