"""Paths that a fleet file gives."""

from __future__ import annotations

from pathlib import Path

from fastflight.errors import RequestError


def place(folder: Path, given: str, where: str) -> Path:
    """`given` as a path: `~` is a home, and what is relative lies in `folder`. `RequestError` for a home of nobody."""
    try:
        return folder / Path(given).expanduser()
    except RuntimeError:
        raise RequestError(
            f"nobody here has the home of {given[:80]!r}", where=where, hint="Write it in full"
        ) from None
