"""Globs over the paths of a device, as in `demo:/log-*.csv`.

The folder before the first glob character is listed once, and its entries are matched here. In a name `*` stands for
any characters, `?` for one, `[a-c]` for one of several; `**` alone stands for any folders. As in a shell, a name that
begins with a dot is matched only by a pattern that begins with one. A path that exists under exactly this name is that
path, so files with such characters in their names can be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from unicodedata import normalize

from fastflight.cli.arguments import Target, opened
from fastflight.errors import RequestError

if TYPE_CHECKING:
    from fastflight.cli.server_options import Boards
    from fastflight.client import Entry
    from fastflight.client.board import Board

GLOB = frozenset("*?[")
ANY_FOLDERS = "**"


def is_glob(text: str) -> bool:
    """Whether the text has characters of a glob."""
    return bool(GLOB.intersection(text))


def matches(board: Board, path: str, *, folders: bool = True) -> list[Entry]:
    """Return the files and folders of a board that the glob `path` matches; without `folders`, only the files.

    Raises `RequestError` if there are none.
    """
    at = Target(board.name, path)
    parts = [part for part in path.split("/") if part]
    fixed = next(index for index, part in enumerate(parts) if is_glob(part))
    folder, pattern = "/" + "/".join(parts[:fixed]), parts[fixed:]
    recursive = len(pattern) > 1 or ANY_FOLDERS in pattern
    entries = board.ls(folder, recursive=recursive)
    exact = "/" + "/".join(parts)
    found = [entry for entry in entries if entry.path == exact]
    if not found:
        found = [entry for entry in entries if _fits(entry.path.strip("/").split("/")[fixed:], pattern)]
    if not found:
        where = Target(at.device, folder)
        raise RequestError("no path matches", where=str(at), hint=f"List what there is: fastflight ls {where}")
    if folders:
        return found
    if not (files := [entry for entry in found if entry.kind == "file"]):
        raise RequestError("only folders match", where=str(at), hint="Use -r, or end the glob in /*")
    return files


def expand(boards: Boards, targets: Iterable[Target], *, interrupt: bool = False, folders: bool = True) -> list[Target]:
    """Return `targets` with each glob replaced by what it matches, each path once. `folders` is as in `matches`."""
    found: dict[Target, None] = {}
    for at in (each.of(boards) for each in targets):
        if is_glob(at.path):
            with opened(boards, at.device, interrupt=interrupt) as board:
                entries = matches(board, at.path, folders=folders)
            found |= dict.fromkeys(Target(at.device, entry.path) for entry in entries)
        else:
            found[at] = None
    return list(found)


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the names of a path match the parts of a pattern."""
    if not pattern:
        return not names
    if pattern[0] == ANY_FOLDERS:
        return _fits(names, pattern[1:]) or bool(names) and _matches(names[0], "*") and _fits(names[1:], pattern)
    return bool(names) and _matches(names[0], pattern[0]) and _fits(names[1:], pattern[1:])


def _matches(name: str, pattern: str) -> bool:
    # In one Unicode form: a letter may be composed here and not there.
    return fnmatchcase(normalize("NFC", name), normalize("NFC", pattern)) and (
        pattern.startswith(".") or not name.startswith(".")
    )
