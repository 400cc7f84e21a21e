"""Paths on a board, and conversations that list a folder or stat one entry.

Paths are absolute; `/` is the root. The board's answer is not trusted: names that lead out of the folder and impossible
sizes are a `ProtocolError`, listings without end a `RequestError`.
"""

from __future__ import annotations

import posixpath
import re
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
# A file system that links into itself would never end. No real board nests deeper.
MAX_DEPTH = 64
# A full card has some thousand files. `MAX_DEPTH` does not stop a listing without end that is not deep.
MAX_ENTRIES = 100_000
# The end of the year 9999, in seconds since 1970. Most programs cannot represent later times.
MAX_TIME = 253_402_300_799

Kind = Literal["file", "folder"]

# Prints one line per entry: name, mode, size, time. An entry that `os.stat` fails on is still listed.
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
# As `LIST`, for boards with a flat file system, which have no `ilistdir` and no times.
LIST_FLAT = """\
import os
for n in os.listdir():
 print(repr((n,0x8000,os.size(n),None)))
"""
# A line as most are. `ast` takes twenty times as long, and the event loop would stand still for half a second while it
# reads a folder of 20,000 files.
_NUMBER = "(0|[1-9][0-9]{0,17})"
_PLAIN = re.compile(rf"\('([^'\\]*)', {_NUMBER}, {_NUMBER}, (?:None|{_NUMBER})\)").fullmatch
STAT = "import os\ns=os.stat({path!r})\nprint(repr(('',s[0],s[6],s[8])))\n"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file or folder. `size` is in bytes, 0 for folders; `modified` in seconds since 1970, None if not known."""

    path: str
    kind: Kind
    size: int
    modified: float | None = None


def normal_path(path: str) -> str:
    """Return the absolute form of `path`: one leading slash, no `.`, `..` or doubled slashes; `/` for the root.

    `RequestError` for characters that no board can store. Names that only some boards refuse are left to the board.
    """
    bad = next((character for character in path if character == "\0" or "\ud800" <= character <= "\udfff"), None)
    if bad is not None:
        raise RequestError(f"the path holds the character {bad!r}", where=repr(path), hint="Leave it out")
    return posixpath.normpath("/" + path.lstrip("/"))


def child_path(folder: str, name: str) -> str:
    """Return the path of the entry `name` that a board lists in `folder`. `ValueError` if it leads out of it."""
    if name in ("", ".", "..") and folder or "/" in name or "\0" in name:
        raise ValueError("not a name")
    return posixpath.join(folder, name)


def path_below(folder: str, path: str) -> str:
    """Return `path` if it lies below `folder`, as the board claims. `ValueError` if not."""
    prefix = folder.rstrip("/") + "/"
    rest = path.removeprefix(prefix)
    if not path.startswith(prefix) or "\0" in path or any(part in ("", ".", "..") for part in rest.split("/")):
        raise ValueError("not a path below it")
    return path


def listing(repl: RawRepl, capabilities: Capabilities, path: str, recursive: bool) -> Conversation[list[FileEntry]]:
    """List the folder at `path`, each folder before what is in it. A file lists itself.

    `recursive` lists the folders below as well. `FileMissing` if there is no such path.
    """
    if not capabilities.has("os.ilistdir"):
        return (yield from _flat_listing(repl, capabilities, path))
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
    """Return the entry at `path`. `FileMissing` if there is none."""
    if path == "/":
        return FileEntry("/", "folder", 0)
    if capabilities.has("os.stat"):
        lines = yield from _lines(repl, capabilities, STAT.format(path=path), path)
        # The last line: other code on the board may print as well. No line at all is an error, like one that is wrong.
        entry = _entry(lines[-1] if lines else "", capabilities, "")
        return FileEntry(path, entry.kind, entry.size, entry.modified)
    for entry in (yield from _flat_listing(repl, capabilities, "/")):
        if entry.path == path:
            return entry
    raise FileMissing("no such file on the board", where=path, hint="List the folder to see what is there")


def _flat_listing(repl: RawRepl, capabilities: Capabilities, path: str) -> Conversation[list[FileEntry]]:
    lines = yield from _lines(repl, capabilities, LIST_FLAT, path)
    entries = sorted((_entry(line, capabilities, "/", _flat_path) for line in lines), key=lambda entry: entry.path)
    if path == "/":
        return entries
    matches = [entry for entry in entries if entry.path == path]
    if not matches:
        raise FileMissing("no such file on the board", where=path, hint="This board has no folders: list /")
    return matches


def _lines(repl: RawRepl, capabilities: Capabilities, code: str, where: str) -> Conversation[list[str]]:
    output = yield from execute(repl, capabilities, code, where, LIST_SECONDS)
    return output.decode("utf-8", "replace").splitlines()


def _flat_path(folder: str, name: str) -> str:
    """As `child_path`, for a board without folders, where a slash is part of a name."""
    return path_below(folder, posixpath.join(folder, name))


def _entry(
    line: str, capabilities: Capabilities, folder: str, path_of: Callable[[str, str], str] = child_path
) -> FileEntry:
    try:
        name, mode, size, time = _fields(line.strip())
        kind: Kind = "folder" if answers.integer(mode) & FOLDER_BIT else "file"
        return FileEntry(
            path_of(folder, answers.text(name)),
            kind,
            max(answers.integer(size), 0) if kind == "file" else 0,
            _modified(time, capabilities),
        )
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"the board listed {line[:200]!r}", where=folder, hint="List it again") from error


def _fields(line: str) -> tuple[object, object, object, object]:
    if len(line) > answers.MAX_LITERAL_CHARACTERS or (plain := _PLAIN(line)) is None:
        name, mode, size, time = answers.literal(line)
        return name, mode, size, time
    return plain[1], int(plain[2]), int(plain[3]), plain[4] and int(plain[4])


def _modified(time: object, capabilities: Capabilities) -> float | None:
    """Return seconds since 1970; None if the board keeps no times (it reports 0) or the time is out of range."""
    if not time:
        return None
    seconds = answers.integer(time) + capabilities.epoch_offset
    return float(seconds) if 0 < seconds <= MAX_TIME else None
