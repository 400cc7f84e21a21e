"""What a board's file system holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["file", "folder"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder. `size` in bytes (0 for folders); `modified` in seconds since 1970, None where not kept."""

    path: str
    kind: Kind
    size: int
    modified: float | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A finished write. `verified` says how: `sha256`, `crc32` or `read back`."""

    bytes: int
    sha256: str
    verified: str


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a board says of itself. Sizes in bytes, None where it does not say."""

    platform: str
    version: str
    machine: str
    unique_id: str
    free_memory: int | None
    storage_bytes: int | None
    storage_free: int | None
    raw_paste: bool
    features: tuple[str, ...]
