"""Paths on a board, and conversations that list a folder or look at one entry.

Paths are absolute, with `/` for the root. A board may list anything: names and paths that lead elsewhere, sizes and
times that cannot be, and listings without end are a `ProtocolError` or `RequestError`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fastflight.device import answers
from fastflight.device.capabilities import Capabilities
from fastflight.device.execute import execute
from fastflight.errors import FileMissing, ProtocolError, RequestError
from fastflight.protocol import Conversation, RawRepl

LIST_SECONDS = 15.0
FOLDER_BIT = 0x4000
# A file system that links into itself would never end: no board nests deeper.
MAX_DEPTH = 64
# A full card has some thousand files. Folders that hold folders without end are deep nowhere.
MAX_ENTRIES = 100_000
# Of the year 9999, in seconds since 1970: later ones are no times to most programs.
MAX_TIME = 253_402_300_799

Kind = Literal["file", "folder"]

# One line per entry: name, mode, size, time. A file whose details cannot be read is still listed.
LIST = """\
def _ff(p):
 import os
 for e in os.ilistdir(p):
  z=e[3] if len(e)>3 else 0
  t=None
  try:
   s=os.stat((p if p[-1]=='/' else p+'/')+e[0])
   z=s[6]
   t=s[8]
  except (OSError,AttributeError):
   pass
  print(repr((e[0],e[1],z,t)))
_ff({path!r})
"""
# Boards with a flat file system: names and sizes.
LIST_FLAT = """\
import os
for n in os.listdir():
 print(repr((n,0x8000,os.size(n),None)))
"""
STAT = "import os\ns=os.stat({path!r})\nprint(repr(('',s[0],s[6],s[8])))\n"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file or folder. `size` in bytes (0 for folders); `modified` in seconds since 1970, None where not kept."""

    path: str
    kind: Kind
    size: int
    modified: float | None = None


def normal_path(path: str) -> str:
    """The absolute form of `path`: one leading slash, no `.`, `..` or doubled slashes; `/` for the root.

    A name that no board can hold is refused; what is too long or not allowed on one board, that board says itself.
    """
    bad = next((character for character in path if character == "\0" or "\ud800" <= character <= "\udfff"), None)
    if bad is not None:
        raise RequestError(f"the path holds the character {bad!r}", where=repr(path), hint="Leave it out")
    return posixpath.normpath("/" + path.lstrip("/"))


def child_path(folder: str, name: str) -> str:
    """The path of `name`, which a board lists in `folder`: `ValueError` for a name that leads elsewhere."""
    if name in ("", ".", "..") and folder or "/" in name or "\0" in name:
        raise ValueError("not a name")
    return posixpath.join(folder, name)


def path_below(folder: str, path: str) -> str:
    """`path`, which a board says is that of a file below `folder`: `ValueError` where it is not."""
    prefix = folder.rstrip("/") + "/"
    rest = path.removeprefix(prefix)
    if not path.startswith(prefix) or "\0" in path or any(part in ("", ".", "..") for part in rest.split("/")):
        raise ValueError("not a path below it")
    return path


def listing(repl: RawRepl, capabilities: Capabilities, path: str, recursive: bool) -> Conversation[list[FileEntry]]:
    """The entries of the folder at `path`, folders after their parents; a file lists itself."""
    if not capabilities.has("os.ilistdir"):
        return (yield from _flat(repl, capabilities, path))
    if path != "/":
        entry = yield from stat(repl, capabilities, path)
        if entry.kind == "file":
            return [entry]
    found: list[FileEntry] = []
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        if folder.count("/") > MAX_DEPTH:
            raise RequestError(f"folders nest deeper than {MAX_DEPTH}", where=folder, hint="List a folder in it")
        lines = yield from _lines(repl, capabilities, LIST.format(path=folder), folder)
        entries = sorted((_entry(line, capabilities, folder) for line in lines), key=lambda entry: entry.path)
        found += entries
        if len(found) > MAX_ENTRIES:
            raise RequestError(f"more than {MAX_ENTRIES} entries", where=path, hint="List a folder in it")
        if recursive:
            waiting += [entry.path for entry in reversed(entries) if entry.kind == "folder"]
    return sorted(found, key=lambda entry: entry.path.split("/")) if recursive else found


def stat(repl: RawRepl, capabilities: Capabilities, path: str) -> Conversation[FileEntry]:
    """The entry at `path`."""
    if path == "/":
        return FileEntry("/", "folder", 0)
    if capabilities.has("os.stat"):
        lines = yield from _lines(repl, capabilities, STAT.format(path=path), path)
        # The last, should something else on the board have printed, too; none is not understood either.
        entry = _entry(lines[-1] if lines else "", capabilities, "")
        return FileEntry(path, entry.kind, entry.size, entry.modified)
    for entry in (yield from _flat(repl, capabilities, "/")):
        if entry.path == path:
            return entry
    raise FileMissing("no such file on the board", where=path, hint="List the folder to see what is there")


def _flat(repl: RawRepl, capabilities: Capabilities, path: str) -> Conversation[list[FileEntry]]:
    lines = yield from _lines(repl, capabilities, LIST_FLAT, path)
    entries = sorted((_entry(line, capabilities, "/", _in_flat) for line in lines), key=lambda entry: entry.path)
    if path == "/":
        return entries
    named = [entry for entry in entries if entry.path == path]
    if not named:
        raise FileMissing("no such file on the board", where=path, hint="This board has no folders: list /")
    return named


def _lines(repl: RawRepl, capabilities: Capabilities, code: str, where: str) -> Conversation[list[str]]:
    output = yield from execute(repl, capabilities, code, where, LIST_SECONDS)
    return output.decode("utf-8", "replace").splitlines()


def _in_flat(folder: str, name: str) -> str:
    """Where there are no folders, a slash is a character of a name."""
    return path_below(folder, posixpath.join(folder, name))


def _entry(
    line: str, capabilities: Capabilities, folder: str, path_of: Callable[[str, str], str] = child_path
) -> FileEntry:
    try:
        name, mode, size, time = answers.value(line.strip())
        kind: Kind = "folder" if answers.whole(mode) & FOLDER_BIT else "file"
        return FileEntry(
            path_of(folder, answers.text(name)),
            kind,
            max(answers.whole(size), 0) if kind == "file" else 0,
            _modified(time, capabilities),
        )
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"the board listed {line[:200]!r}", where=folder, hint="List it again") from error


def _modified(time: object, capabilities: Capabilities) -> float | None:
    """None where the board keeps no times (0 stands for them), or gives one that no calendar has."""
    if not time:
        return None
    seconds = answers.whole(time) + capabilities.epoch_offset
    return float(seconds) if 0 < seconds <= MAX_TIME else None
