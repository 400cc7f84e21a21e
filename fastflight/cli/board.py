"""Commands on a whole board: `info`, `df`, `rtc`, `reset`, `soft-reset`, `bootloader`.

`df`, `rtc` and `bootloader` run fastflight's own code on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import opened
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson, DeviceName, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import DataError, DeviceError, TransportError
from fastflight.own_code import wrap_for_program

if TYPE_CHECKING:
    from fastflight.client.board import Board

# Prints the size and the free space in bytes, and the path, of each file system. MicroPython lists them from 1.25 on.
# For older versions each entry of `/` may be one: an ordinary one gives the same numbers as `/`. If no file system is
# mounted at `/` itself, it has no blocks.
DF = """\
import os
if hasattr(os,'statvfs'):
 l=[]
 try:
  l=[m[1] for m in os.mount()]
 except (AttributeError,TypeError):
  pass
 r=None
 for p in l or ['/']+['/'+n for n in os.listdir('/')]:
  try:
   s=os.statvfs(p)
  except OSError:
   continue
  if s[2] and (l or s!=r):
   print(s[1]*s[2],s[1]*s[3],p)
  if p=='/':
   r=s
"""
READ_CLOCK = """\
try:
 from machine import RTC
 print(*RTC().datetime())
except (ImportError,AttributeError):
 print('none')
"""
# The weekday counts from Monday: from 1 on the pyboard and its relatives (`pyb.RTC.datetime`), else from 0.
SET_CLOCK = """\
from machine import RTC
import sys
RTC().datetime(({0.year},{0.month},{0.day},{1}+(sys.platform=='pyboard'),{0.hour},{0.minute},{0.second},0))
"""
HAS_BOOTLOADER = """\
try:
 from machine import bootloader
 print('yes')
except ImportError:
 print('no')
"""
BOOTLOADER = "import machine\nmachine.bootloader()"
# A board in its bootloader is silent; one that is connected by USB goes away at once.
BOOTLOADER_SECONDS = 2.0


@interruptible
@with_device_options
def info(
    device: DeviceName = None, interrupt: Interrupt = False, json: AsJson = False, server: Server = DEFAULT_SERVER
) -> None:
    """Show a board's firmware, memory, storage and features."""
    with server.boards(tables=False) as boards, opened(boards, device, interrupt=interrupt) as board:
        facts = board.info()
    if json:
        screen.as_json(facts)
        return
    if facts.get("kind") == "lines":  # nothing else is known of it
        facts = {key: facts[key] for key in ("name", "kind")}
    width = max(map(len, facts), default=0)
    for key, value in facts.items():
        screen.line(f"{key.replace('_', ' '):{width}}  {_format_value(value)}")


@interruptible
@with_device_options
def reset(
    device: DeviceName = None,
    hard: Annotated[bool, typer.Option("--hard", help="Restart the chip, not only its program.")] = False,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Restart a device."""
    with server.boards(tables=False) as boards, opened(boards, device, interrupt=interrupt) as board:
        board.reset(hard=hard)


@interruptible
@with_device_options
def df(
    device: DeviceName = None, interrupt: Interrupt = False, json: AsJson = False, server: Server = DEFAULT_SERVER
) -> None:
    """Show the size and the free space of a board's file systems."""
    with server.boards(tables=False) as boards, opened(boards, device, interrupt=interrupt) as board:
        lines = _answer(board, DF)
    found = list(_file_systems(lines)) or [("/", None, None)]
    if json:
        screen.as_json([{"path": path, "size": size, "free": free} for path, size, free in found])
        return
    rows = [
        (path, "unknown", "unknown", "unknown", "-")
        if size is None or free is None
        else (path, screen.size(size), screen.size(size - free), screen.size(free), f"{(size - free) / size:.0%}")
        for path, size, free in found
    ]
    screen.table(("path", "size", "used", "free", "use"), rows, right=("size", "used", "free", "use"))


@interruptible
@with_device_options
def rtc(
    device: DeviceName = None,
    set_: Annotated[bool, typer.Option("--set", help="Set the clock to this computer's local time.")] = False,
    utc: Annotated[bool, typer.Option("--utc", help="With --set: set it to UTC.")] = False,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show or set the clock of a board."""
    if utc and not set_:
        raise typer.BadParameter("--utc needs --set: a board does not know its time zone")
    with server.boards(tables=False) as boards, opened(boards, device, interrupt=interrupt) as board:
        # Also before the clock is set: the first request to a board takes longest, and the time would be old.
        clock = _clock(board)
        if set_:
            now = datetime.now(UTC if utc else None)
            _answer(board, SET_CLOCK.format(now, now.weekday()))
            clock = _clock(board)
    if json:
        screen.as_json({"device": board.name, "time": clock})
    else:
        screen.line(f"{clock:%Y-%m-%d %H:%M:%S}")


@interruptible
@with_device_options
def soft_reset(device: DeviceName = None, interrupt: Interrupt = False, server: Server = DEFAULT_SERVER) -> None:
    """Restart the interpreter of a board, which then runs main.py. The chip is not reset."""
    with server.boards(tables=False) as boards, opened(boards, device, interrupt=interrupt) as board:
        board.reset()


@interruptible
@with_device_options
def bootloader(device: DeviceName = None, interrupt: Interrupt = False, server: Server = DEFAULT_SERVER) -> None:
    """Start the bootloader of a board, for new firmware. Its line goes away until it is reset."""
    with server.boards(changes=True, tables=False) as boards, opened(boards, device, interrupt=interrupt) as board:
        if _answer(board, HAS_BOOTLOADER) != ["yes"]:
            raise DeviceError(
                "this board's firmware has no machine.bootloader()",
                where=board.name,
                hint="Start its bootloader with its buttons, as its manual says",
            )
        try:
            _answer(board, BOOTLOADER, timeout=BOOTLOADER_SECONDS)
        except TransportError as error:
            if error.where != board.name:  # not the board but the server is gone
                raise
    screen.complain(f"{board.name} is in its bootloader")


def _answer(board: Board, code: str, timeout: float | None = None) -> list[str]:
    """Run code on the board, and return the lines that it prints. The variables of the board's program stay."""
    return [row["text"] for row in board.exec(wrap_for_program(code), timeout)]


def _file_systems(lines: list[str]) -> Iterator[tuple[str, int | None, int | None]]:
    """Yield the path, size and free space of each file system, as the board printed them. Raises `DataError`."""
    for line in lines:
        try:
            size, free, path = line.split(maxsplit=2)
            yield path, int(size), int(free)
        except ValueError as error:
            raise DataError(f"the board answered {line[:80]!r}", where="free space", hint="Try again") from error


def _clock(board: Board) -> datetime:
    """Return the time of the board's clock. `DeviceError` if it has none."""
    answer = _answer(board, READ_CLOCK)
    if answer == ["none"]:
        raise DeviceError(
            "this board has no clock that can be read or set",
            where=board.name,
            hint="`fastflight tail` shows when its lines came, by the server's clock",
        )
    try:
        year, month, day, _, hour, minute, second, *_ = map(int, " ".join(answer).split())
        return datetime(year, month, day, hour, minute, second)
    except (ValueError, OverflowError) as error:
        said = " ".join(answer)[:80]
        raise DataError(f"its clock shows no valid time: {said}", where=board.name, hint="Set it: --set") from error


def _format_value(value: Any) -> str:
    if value is None or value == "":
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return screen.printable(", ".join(map(str, value)))
    return screen.printable(str(value))
