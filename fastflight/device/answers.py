"""Parses what a board printed: values that it wrote with `repr`, and tracebacks, which become typed errors.

`literal`, `integer` and `text` raise `ValueError` for anything else; the caller turns that into an error that names the
request. Error numbers differ between MicroPython ports: most use Linux's, the WebAssembly port uses WASI's, and some
old ports print text instead of a number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from fastflight.errors import (
    MAX_QUOTED_CHARACTERS,
    DeviceError,
    DeviceException,
    DeviceFull,
    DeviceMemory,
    FileMissing,
    ProtocolError,
)

# A block in its text form has 8,256 characters, a long path with its details a few hundred. Python's parser takes 450
# bytes for each item of a tuple: a megabyte of items would block an event loop for seconds.
MAX_LITERAL_CHARACTERS = 16 * 1024
# 64 bits: more than any size, count or time of a board, and the range of the Arrow columns that hold them.
WHOLE = range(-(2**63), 2**63)

LINUX = {
    1: "EPERM",
    2: "ENOENT",
    5: "EIO",
    12: "ENOMEM",
    13: "EACCES",
    17: "EEXIST",
    19: "ENODEV",
    20: "ENOTDIR",
    21: "EISDIR",
    22: "EINVAL",
    24: "EMFILE",
    28: "ENOSPC",
    30: "EROFS",
    36: "ENAMETOOLONG",
    39: "ENOTEMPTY",
}
# https://github.com/WebAssembly/WASI, preview 1, errno.
WASI = {
    2: "EACCES",
    20: "EEXIST",
    28: "EINVAL",
    29: "EIO",
    31: "EISDIR",
    37: "ENAMETOOLONG",
    44: "ENOENT",
    48: "ENOMEM",
    51: "ENOSPC",
    54: "ENOTDIR",
    55: "ENOTEMPTY",
    63: "EPERM",
    69: "EROFS",
}
NUMBERS: Mapping[str, Mapping[int, str]] = {"webassembly": WASI}

# The meaning of each error name for the user, and a hint.
MEANING = {
    "EPERM": ("the board does not allow it", ""),
    "EIO": ("the board's storage failed", "Its flash or card may be damaged: try another file, then reformat it"),
    "EACCES": ("the board does not allow it", ""),
    "EEXIST": ("it exists already", "Remove it first, or choose another name"),
    "ENODEV": ("no file system is mounted there", "Mount one, or choose another path"),
    "ENOTDIR": ("a part of the path is a file, not a folder", "List the folder above it"),
    "EISDIR": ("it is a folder", "Name a file in it"),
    "EINVAL": ("the board does not accept the name or the value", "Use a shorter, simpler name"),
    "EMFILE": ("the board has no room for another open file", "Soft-reset it to close them"),
    "EROFS": ("the file system is read-only", "Remount it writable; a board mounted as a USB drive is read-only"),
    "ENAMETOOLONG": ("the name is too long for the board's file system", "Use a shorter name"),
    "ESTALE": ("the part that a broken write left has changed", "Write the file from its beginning"),
    "ENOTEMPTY": ("the folder is not empty", "Remove what is in it first"),
}

WORDS = {"file not found": "ENOENT"}

# Exceptions that fastflight's own code raises only if it arrived damaged. "Error" is CPython's `binascii.Error`.
GARBLED = frozenset({"SyntaxError", "IndentationError", "NameError", "Error"})

_KIND = re.compile(r"(?m)^([A-Za-z_][\w.]*)(?::\s*(.*))?$")
# Error numbers are small, and Python refuses to convert thousands of digits.
_ROOM = re.compile(r"ENOSPC (\d{1,19}) (\d{1,19})")
_NUMBER = re.compile(r"-?\d{1,9}")


def literal(text: str) -> Any:
    """Return the value of the Python literal `text`. `ValueError` for anything else: a board may print any text."""
    if len(text) > MAX_LITERAL_CHARACTERS:
        raise ValueError("a literal that is too long")
    try:
        return ast.literal_eval(text)
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError("not a literal") from error


def integer(value: Any) -> int:
    """Return `value` if it is an integer that fits into 64 bits with sign, else raise `ValueError`."""
    if not isinstance(value, int) or value not in WHOLE:
        raise ValueError("not a whole number")
    return value


def text(value: Any) -> str:
    """Return `value` if it is text that UTF-8 can encode, else raise `ValueError`: literals can hold surrogates."""
    if not isinstance(value, str):
        raise ValueError("not text")
    value.encode()
    return value


def failure(stderr: bytes, *, where: str, platform: str = "") -> DeviceError:
    """Return the typed error for a traceback that the board printed while working on `where`."""
    text = stderr.decode("utf-8", "replace").replace("\r\n", "\n").strip()
    last = text.rsplit("\n", 1)[-1][:MAX_QUOTED_CHARACTERS]
    lines = _KIND.findall(last)
    kind, detail = lines[-1] if lines else ("", last)
    if kind == "MemoryError":
        return _memory(detail, where)
    if kind == "OSError":
        name = _name(detail, platform)
        if name in BY_NAME:
            return BY_NAME[name](detail, where)
        if name in MEANING:
            what, hint = MEANING[name]
            return DeviceError(f"{what} ({name})", where=where, hint=hint, errno=name)
    return DeviceException(
        f"code on the board raised {kind}: {detail}" if detail else f"code on the board raised {kind or 'an error'}",
        kind=kind,
        traceback=text,
        where=where,
    )


def own_failure(stderr: bytes, *, where: str, platform: str = "") -> DeviceError | ProtocolError:
    """As `failure`, for fastflight's own code.

    An exception of `GARBLED` means that the code arrived damaged. So does any exception of the line that runs our code
    (`own_code`), which is the text `<string>` for the board.
    """
    error = failure(stderr, where=where, platform=platform)
    in_wrapper = b'"<stdin>"' in stderr and b'"<string>"' not in stderr
    if isinstance(error, DeviceException) and (in_wrapper or error.kind in GARBLED):
        return ProtocolError(
            f"what was sent to the board was changed or lost on the line (it answered {error.kind})",
            where=where,
            hint="Try again; if it happens often, use a lower speed or a better cable",
        )
    return error


def routine_failure(stderr: bytes, *, where: str, platform: str = "") -> DeviceError | ProtocolError:
    """As `own_failure`, for code that transfers files: any exception but `OSError` and `MemoryError` means damage."""
    error = own_failure(stderr, where=where, platform=platform)
    if isinstance(error, DeviceException) and error.kind != "OSError":
        return ProtocolError(
            f"code or content was changed or lost on the line (the board raised {error.kind})",
            where=where,
            hint="Try again; if it happens often, use a lower speed or a better cable",
        )
    return error


def _name(detail: str, platform: str) -> str:
    if _ROOM.fullmatch(detail):
        return "ENOSPC"
    number = _NUMBER.search(detail)
    if number:
        return NUMBERS.get(platform, LINUX).get(abs(int(number[0])), "")
    # fastflight's code raises names, because numbers differ between ports; the micro:bit's MicroPython 1.9 uses words.
    return WORDS.get(detail, detail)


def _missing(detail: str, where: str) -> DeviceError:
    return FileMissing("no such file or folder on the board", where=where, hint="List the folder to see what is there")


def _full(detail: str, where: str) -> DeviceError:
    what = "no space left on the board"
    if figures := _ROOM.fullmatch(detail):
        what += f": this needs {int(figures[1]):,} bytes or more, and {int(figures[2]):,} are free"
    return DeviceFull(what, where=where, hint="Remove files you do not need and try again")


def _memory(detail: str, where: str) -> DeviceError:
    return DeviceMemory(
        f"the board ran out of memory ({detail})" if detail else "the board ran out of memory",
        where=where,
        hint="Soft-reset it to free its heap, or ask for less at once",
    )


BY_NAME: Mapping[str, Callable[[str, str], DeviceError]] = {"ENOENT": _missing, "ENOSPC": _full, "ENOMEM": _memory}
