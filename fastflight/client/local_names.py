"""Names from elsewhere, and the names of local files that are made from them.

A server and a board may send any text as the name of a device or of a file. So each such name passes one of these
functions before a local file is written:

- `device_name` and `board_path` check a name where it is decoded.
- `local_path` says where a file of a board is stored below a folder. It keeps the names, and refuses those that lead
  out of the folder or that this computer would not take as names.
- `local_name` and `local_folder` encode any name, or a device and a path, as a name that no other ones have.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import sys
import unicodedata
from pathlib import Path

from fastflight.client.local_files import is_text
from fastflight.errors import DataError, ProtocolError
from fastflight.service.choices import DEVICE_NAME

# Systems whose file names usually ignore case.
FOLDS_CASE = os.name == "nt" or sys.platform == "darwin"
# Names that Windows uses for its own devices, with any extension.
RESERVED = {
    "con",
    "prn",
    "aux",
    "nul",
    "conin$",
    "conout$",
    *(f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"),
}
# On Windows a colon separates a drive or a hidden stream; the other characters are not allowed in names.
NOT_ON_WINDOWS = frozenset(':<>"|?*')

# Controls (DEL and C1 among them) and separators of lines and paragraphs, by Unicode's general category.
CONTROLS = frozenset(("Cc", "Zl", "Zp"))
# Characters that change the display order of their neighbours, so that a terminal shows another name, by Unicode's
# bidirectional class.
REORDERING = frozenset(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))

# An encoded name keeps these characters. Capitals are other letters only where file names tell case.
_KEPT, _KEPT_WHERE_CASE_FOLDS = re.compile(r"[A-Za-z0-9_.-]"), re.compile(r"[a-z0-9_.-]")
# Most file systems allow 255 bytes. A longer encoded name is cut, and gets a digest of the whole in place of its end.
MAX_NAME_CHARACTERS, CUT_CHARACTERS = 200, 100


def device_name(text: str) -> str:
    """Return the name of a device that a server sent. Raises `ProtocolError` if no device can have it."""
    if not DEVICE_NAME.fullmatch(text):
        raise ProtocolError(
            f"the server sent {text[:64]!r} as the name of a device",
            hint="Names have letters, digits, _ . - and begin with no dot. Do you trust this server?",
        )
    return text


def board_path(text: str) -> str:
    """Return the absolute path of a file on a board that a server sent. Raises `ProtocolError` if it is none."""
    names = text.rstrip("/").split("/")[1:]
    if not text.startswith("/") or {"", ".", ".."}.intersection(names) or "\0" in text:
        raise ProtocolError(
            f"the server sent {text[:64]!r} as the path of a file on the board",
            hint="Such a path begins with / and has no empty names, . or .. in it. Do you trust this server?",
        )
    return text


def local_path(folder: Path, path: str, *, windows: bool = os.name == "nt") -> Path:
    """Return where to store the board's file `path`, which is relative, below `folder`.

    Raises `DataError` if the path leads out of the folder, or has a name that this computer does not take.
    """
    names = path.split("/")
    for name in names:
        if reason := _reason_to_refuse(name, windows):
            raise DataError(
                f"{name!r} cannot be a name here: {reason}",
                where=repr(path),
                hint="Rename it on the device, or get the other files one by one",
            )
    place = folder
    for name in names[:-1]:
        place /= name
        if place.is_symlink():
            raise DataError("a link stands where a folder is needed", where=str(place), hint="Remove it")
    return place / names[-1]


def local_name(text: str, *, folds_case: bool = FOLDS_CASE) -> str:
    """Encode any text as one name of a local file. Other texts have other names, also where file names ignore case.

    Letters, digits, `_`, `.` and `-` stay; all else becomes `%` and its UTF-8 bytes in hexadecimal, as in a URL.
    """
    kept = _KEPT_WHERE_CASE_FOLDS if folds_case else _KEPT
    name = "".join(each if kept.fullmatch(each) else _escape(each) for each in text) or "%"
    # Not hidden, not a link to a folder, and not one of Windows' own devices.
    if name[0] == "." or name.partition(".")[0].lower() in RESERVED:
        name = _escape(name[0]) + name[1:]
    if name[-1] == ".":  # Windows drops it
        name = name[:-1] + _escape(".")
    if len(name) <= MAX_NAME_CHARACTERS:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[:CUT_CHARACTERS]}%-{digest}"


def local_folder(to: Path, device: str, path: str) -> Path:
    """Return the folder below `to` for the file at `path` on a device. No other device and path have the same one."""
    return to / local_name(device) / local_name(posixpath.normpath("/" + path.lstrip("/"))[1:])


def clash(paths: list[str]) -> tuple[str, str] | None:
    """Return the first two paths that differ only in case, or None."""
    seen: dict[str, str] = {}
    for path in paths:
        other = seen.setdefault(path.casefold(), path)
        if other != path:
            return other, path
    return None


def _escape(character: str) -> str:
    return "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def _reason_to_refuse(name: str, windows: bool) -> str:
    if name in ("", ".", ".."):
        return "it leads elsewhere"
    if "\\" in name:
        return "it holds a backslash"
    if not is_text(name):
        return "it is not text"
    if any(unicodedata.category(character) in CONTROLS for character in name):
        return "it holds a control character"
    if any(unicodedata.bidirectional(character) in REORDERING for character in name):
        return "it holds a character that changes the order in which it is shown"
    if windows and NOT_ON_WINDOWS & set(name):
        return "it holds a character that Windows does not allow"
    if windows and name[-1] in ". ":
        return "Windows drops the dot or space at its end"
    if windows and name.split(".")[0].rstrip().lower() in RESERVED:
        return "Windows has a device of that name"
    return ""
