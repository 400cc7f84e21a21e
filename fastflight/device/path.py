"""Paths on a board."""

from __future__ import annotations

import posixpath

from fastflight.errors import RequestError


def normal(path: str) -> str:
    """The absolute form of `path`: one leading slash, no `.`, `..` or doubled slashes; `/` for the root.

    A name that no board can hold is refused; what is too long or not allowed on one board, that board says itself.
    """
    bad = next((character for character in path if character == "\0" or "\ud800" <= character <= "\udfff"), None)
    if bad is not None:
        raise RequestError(f"the path holds the character {bad!r}", where=repr(path), hint="Leave it out")
    return posixpath.normpath("/" + path.lstrip("/"))


def parent(path: str) -> str:
    """The folder that holds `path`."""
    return posixpath.dirname(path)


def name(path: str) -> str:
    """What a file or folder is called in the folder that holds it."""
    return posixpath.basename(path)


def join(folder: str, name: str) -> str:
    """`name` in `folder`."""
    return posixpath.join(folder, name)


def joined(folder: str, name: str) -> str:
    """`join` for a name that a board lists: `ValueError` for one that leads elsewhere, or that no file can have."""
    if name in ("", ".", "..") and folder or "/" in name or "\0" in name:
        raise ValueError("not a name")
    return join(folder, name)


def below(folder: str, path: str) -> str:
    """`path`, which a board says is that of a file below `folder`: `ValueError` where it is not."""
    prefix = folder.rstrip("/") + "/"
    rest = path.removeprefix(prefix)
    if not path.startswith(prefix) or "\0" in path or any(part in ("", ".", "..") for part in rest.split("/")):
        raise ValueError("not a path below it")
    return path
