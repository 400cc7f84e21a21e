"""Versions of a file, and conditions on them, as HTTP has them (RFC 9110, 8.8.3 and 13).

The version of a file is its entity tag: the digest that the board computes, in quotes. Loads no pydantic: commands on
a board of this computer use this module, and start faster without it.
"""

from __future__ import annotations

import re

from fastflight.errors import VersionConflict

# RFC 9110, 8.8.3.
_ETAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
ANY = "*"
# Some tens of entity tags.
MAX_CONDITION_CHARACTERS = 4096


def etag_of(algorithm: str, digest: str, size: int) -> str:
    """Return a strong entity tag; empty if there is no digest: it was not requested, or the board cannot compute it."""
    if not algorithm:
        return ""
    # A crc32 is short, so the size is added: versions of different sizes never share a tag.
    return f'"{algorithm}-{digest}"' if algorithm == "sha256" else f'"{algorithm}-{digest}-{size}"'


def matches(field: str, etag: str, *, weak: bool = False) -> bool:
    """Return whether a list of entity tags contains `etag`, or is `*`. The resource must exist.

    An empty `etag` (the resource has none) matches only `*`. `weak`: tags that are marked as weak match, too.
    """
    if field.strip() == ANY:
        return True
    return etag != "" and any(tag == etag and (weak or not mark) for mark, tag in _ETAG.findall(field))


def version_conflict(where: str) -> VersionConflict:
    return VersionConflict(
        "the file is not the version that was asked for", where=where, hint="Read it again, then decide"
    )
