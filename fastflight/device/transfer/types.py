"""The parameters and results of transfers.

A write that broke off can be resumed in three steps; the caller does the second one::

    part = session.part(path)                       # the part on the board, with the digest that the board computed
    # compare part.digest with the digest of the first part.size bytes of the content, then
    session.write(path, rest, resume=Resumption(part, sha256_of_all), keep=True)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["auto", "binary", "base64", "literal"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """How to move bytes. The defaults choose by what the board can do.

    `method` is the form of the bytes on the line: `binary` through a routine on the board, `base64` or `literal` as
    text. `RequestError` for a method that the board does not support. `deflate`: whether to send compressed blocks, if
    they shrink and the board can inflate. None: only in binary, and not on a line that is known to have 1 Mbaud.
    """

    method: Method = "auto"
    deflate: bool | None = None


AUTO = Transfer()


@dataclass(frozen=True, slots=True)
class PartialWrite:
    """The part of a file that a broken write left on the board: `size` bytes, and the digest that the board computed.

    `algorithm` is `sha256` or `crc32`; `digest` is hexadecimal.
    """

    size: int
    algorithm: str
    digest: str


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to continue after `part`. The caller has checked that its digest is that of the content's first bytes.

    `sha256` is the hexadecimal digest of the whole content. The finished file is compared with it if the board can
    compute a sha256, and the result of the write reports it.
    """

    part: PartialWrite
    sha256: str


@dataclass(frozen=True, slots=True)
class FileDigest:
    """A file with the digest that the board computed; `algorithm` and `digest` are empty if it cannot compute one."""

    path: str
    size: int
    algorithm: str
    digest: str


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished write: its size in `bytes`, and in `verified` how it was checked: `sha256`, `crc32` or `read back`."""

    bytes: int
    sha256: str
    verified: str


@dataclass(frozen=True, slots=True)
class WrittenTree:
    """A finished write of several files, with their absolute paths, in the order in which they were written.

    `at_once`: no old file was replaced before every new one was verified. False if the storage had no room for that:
    then the files were replaced in several steps.
    """

    files: tuple[tuple[str, WrittenFile], ...]
    at_once: bool
