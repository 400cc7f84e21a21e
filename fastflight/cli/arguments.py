"""Parses arguments of commands: `DEVICE:PATH`, schemas, and names of local files."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Unpack
from unicodedata import normalize

import typer

from fastflight.errors import FastFlightError, RequestError, UnknownName, nearest

if TYPE_CHECKING:
    from fastflight.cli.server_options import Boards
    from fastflight.client.board import Board
    from fastflight.client.options import FileOptions

# Names of devices in a hint: more of them would hide it.
NAMES_SHOWN = 8


@contextmanager
def device_first(boards: Boards, device: str) -> Iterator[None]:
    """Raise `UnknownName` in place of a `RequestError` of the block if the server has no such device.

    A wrong device name then comes before anything else that is wrong with the request.
    """
    try:
        yield
    except UnknownName:
        raise
    except RequestError:
        known = [each.name for each in boards.devices()]
        if device not in known:
            raise UnknownName("no such device", where=device, hint=nearest(device, known)) from None
        raise


@contextmanager
def opened(boards: Boards, device: str | None, **options: Unpack[FileOptions]) -> Iterator[Board]:
    """Use a board in the block: the only one if `device` is empty. Checks its name as `device_first` does."""
    name = device_name(boards, device)
    with device_first(boards, name):
        yield boards.board(name, **options)


def device_name(boards: Boards, name: str | None) -> str:
    """Return `name`, or the name of the server's only device if there is none. Wrong usage if it has several."""
    if name:
        return name
    known = [each.name for each in boards.devices()]
    if len(known) == 1:
        return known[0]
    names = ", ".join(known[:NAMES_SHOWN]) + (", ..." if len(known) > NAMES_SHOWN else "")
    raise typer.BadParameter(f"name a device: {names}" if known else "the server has no device")


@dataclass(frozen=True, slots=True)
class Target:
    """A path on a device. The device is empty for the server's only one."""

    device: str
    path: str

    def of(self, boards: Boards) -> Target:
        """Return this target with the name of its device, and with the path in the Unicode form that the board has.

        A terminal may give a composed letter or its parts, which look the same: `ü`, or `u` and two dots.
        """
        at = Target(device_name(boards, self.device), self.path)
        return at if at.path.isascii() else Target(at.device, _path_on(boards.board(at.device), at.path))

    def __str__(self) -> str:
        return f"{self.device}:{self.path}"

    def under(self, name: str) -> Target:
        """Return this target, or the file `name` in it if it ends in a slash (`demo:` or `demo:/data/`)."""
        return Target(self.device, self.path + name) if self.path.endswith("/") else self

    @property
    def normal(self) -> Target:
        """This target with its path as the server writes it: without `.`, `..`, doubled slashes and one at its end."""
        return Target(self.device, posixpath.normpath("/" + self.path.lstrip("/")))

    @property
    def name(self) -> str:
        """The part of the path after its last slash."""
        return self.path.rpartition("/")[2]


def _path_on(board: Board, path: str) -> str:
    """Return the only path in the same folder that looks like `path`; `path` itself if it exists, or there is none."""
    try:
        found = [entry.path for entry in board.ls(posixpath.dirname(path.rstrip("/")))]
    except FastFlightError:
        return path  # the command itself says what is wrong
    alike = [each for each in found if normalize("NFC", each) == normalize("NFC", path)]
    return path if path in alike or len(alike) != 1 else alike[0]


def target(text: str, *, folder: bool = False) -> Target:
    """Parse `DEVICE:PATH`. `:PATH` and `/PATH` are on the server's only device. With `folder`, PATH may be left out."""
    if text.startswith("/"):
        return Target("", text)
    device, colon, path = text.partition(":")
    if not (path or folder) or not (device or colon or folder):
        raise typer.BadParameter(f"{text!r} is not DEVICE:PATH, as in demo:/readings.csv")
    return Target(device, path if path.startswith("/") else f"/{path}")


def place(path: str) -> Target | str:
    """Return a path on a device, or the same text if it is a path on this computer.

    A colon after a slash belongs to a name. On Windows a single letter before the colon is a drive.
    """
    device, colon, _ = path.partition(":")
    is_drive = os.name == "nt" and len(device) == 1
    return path if not colon or "/" in device or os.sep in device or is_drive else target(path, folder=True)


def refuse(*rules: tuple[object, str]) -> None:
    """Raise wrong usage for the first of `rules` that holds. Each is a condition and what to say of it."""
    for holds, message in rules:
        if holds:
            raise typer.BadParameter(message)


def last_name(path: str) -> str:
    """Return the last name of a local path; empty if the path ends in a slash, and for `.` and `..`."""
    name = PurePath(path).name
    return "" if path.endswith(("/", os.sep)) or name == ".." else name


def schema_of(text: str | None) -> dict[str, str] | None:
    """Parse a schema: `time=timestamp[us],celsius=double`, or a JSON object where a type has commas."""
    if text is None:
        return None
    if text.lstrip().startswith("{"):
        try:
            types = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise typer.BadParameter(f"the schema is not JSON: {error}") from error
        return {str(name): str(kind) for name, kind in types.items()}
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and kind for name, _, kind in pairs):
        raise typer.BadParameter(f"{text!r} is not a schema, as in time=timestamp[us],celsius=double")
    return {name.strip(): kind.strip() for name, _, kind in pairs}
