"""Versions of a file, and conditions on them, as HTTP has them (RFC 9110, 8.8.3 and 13).

The version of a file is its entity tag: the digest that the board computes, in quotes.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, Field

from fastflight.errors import VersionConflict

# RFC 9110, 8.8.3.
_ETAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
ANY = "*"
# Some tens of entity tags.
MAX_CONDITION_CHARACTERS = 4096

Tags = Annotated[str | None, Field(min_length=1, max_length=MAX_CONDITION_CHARACTERS)]


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


class Conditional(BaseModel):
    """The keys of requests that change a file only in some version.

    With `if_match`, the file must exist, and its entity tag must be in this list; with `if_none_match`, it must not.
    `*` matches every file. The board is asked under the lease under which the file is changed.
    """

    if_match: Tags = None
    if_none_match: Tags = None

    @property
    def conditional(self) -> bool:
        return self.if_match is not None or self.if_none_match is not None

    def check_version(self, etag: str | None) -> None:
        """Raise `VersionConflict` if a condition does not hold; `etag` as `OpenBoard.version` returns it."""
        if self.if_match is not None and (etag is None or not matches(self.if_match, etag)):
            raise version_conflict("if_match")
        if self.if_none_match is not None and etag is not None and matches(self.if_none_match, etag, weak=True):
            raise version_conflict("if_none_match")


def version_conflict(where: str) -> VersionConflict:
    return VersionConflict(
        "the file is not the version that was asked for", where=where, hint="Read it again, then decide"
    )
