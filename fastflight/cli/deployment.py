"""A new version of a program on one board: stored beside the old one, tried once, and then accepted or given up.

On the board, a launcher in `/main.py` starts the program in one of the folders `/deploy/N`:

- the one that `/deploy/trial` names, once: the launcher removes that file before it starts the program;
- else the highest N for which there is a file `/deploy/accepted-N`;
- else `/deploy/before.py`, the `main.py` from before the first deployment.

Each step of a deployment is one rename of a complete, verified file, and no step changes what the launcher would start.
So a board that loses its power at any moment starts the old program or the new one, as a whole. See decision 0086.
"""

from __future__ import annotations

import binascii
import posixpath
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastflight.errors import BusyError, DataError, DeviceError, FileMissing, RequestError, Stopped, TransportError
from fastflight.own_code import wrap_for_program

if TYPE_CHECKING:
    from fastflight.client.board import Board

FOLDER = "/deploy"
TRIAL_NAME, ACCEPTED = "trial", "accepted-"
TRIAL, BEFORE = f"{FOLDER}/{TRIAL_NAME}", f"{FOLDER}/before.py"
MAIN = "/main.py"
# Runs at each start of the board. Its first line tells it from other programs.
LAUNCHER = """\
# The launcher of fastflight deploy, version 1.
import os,sys
def _read(path):
 try:
  with open(path) as f:
   return f.read()
 except OSError:
  return None
def _choose():
 n=_read('/deploy/trial')
 if n is not None:
  os.remove('/deploy/trial')
 else:
  n=0
  for x in os.listdir('/deploy'):
   if x.startswith('accepted-'):
    try:
     n=max(n,int(x[9:]))
    except ValueError:
     pass
  n=str(n)
 return '/deploy/'+n
_path=_choose()
try:
 os.stat(_path+'/main.py')
 os.chdir(_path)
 sys.path.insert(0,_path)
 _path+='/main.py'
except OSError:
 _path='/deploy/before.py'
try:
 execfile
except NameError:
 def execfile(path):
  exec(_read(path) or '',globals())
try:
 os.stat(_path)
except OSError:
 _path=None
if _path:
 execfile(_path)
"""
MARK = LAUNCHER.partition(",")[0].encode()
# Enough of what a board prints to find the sign of health in, wherever it is cut.
KEPT_BYTES = 4096
SOFT_RESET = b"\x04"


# Prints which program the launcher has started, and a crc32 of it.
RUNNING = """\
import __main__,binascii
c=0
with open(__main__._path,'rb') as f:
 while 1:
  b=f.read(512)
  if not b:
   break
  c=binascii.crc32(b,c)
print(__main__._path,c&0xffffffff)
"""
# How often an agent is asked that does not answer yet.
ASK_SECONDS = 0.5
# How long a restart is watched where only the agent is the sign of health: it cannot be asked meanwhile.
BOOT_SECONDS = 2.0
TRACEBACK, PROMPT = b"Traceback (most recent call last):", b">>> "


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a version is not healthy, and the traceback that the board has printed; empty if it printed none."""

    why: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The sign of health: a text that the program prints, an agent that answers, or both, within so many seconds."""

    text: str | None
    by_agent: bool
    seconds: float


class Deployment:
    """The deployment of `folder` to one board. Call `stage`, then `attempt`, then `accept` or `give_up`.

    These take the board, whose program they stop, so that each of them can have a connection of its own.
    """

    def __init__(self, folder: Path, ignore: Sequence[str]) -> None:
        self._folder = folder
        self._ignore = ignore
        self._number = 0
        self._old: list[str] = []

    def stage(self, board: Board) -> int:
        """Store the folder beside the version that runs, and verify it. Return how many files were moved.

        Stops the board's program; `give_up` or a reset starts it again.
        """
        names = self._names(board)
        if TRIAL_NAME in names:
            # An interrupted deployment: this version must not start while it is being changed.
            board.remove(TRIAL)
        accepted = [int(name[len(ACCEPTED) :]) for name in names if re.fullmatch(rf"{ACCEPTED}[0-9]{{1,9}}", name)]
        self._number = max(accepted, default=0) + 1
        # The file that makes a version the one to start goes first, then its folder.
        self._old = [f"{ACCEPTED}{number}" for number in accepted]
        self._old += [name for name in names if re.fullmatch("[0-9]{1,9}", name) and int(name) != self._number]
        moved = len(self._put_folder(board))
        if self._put_folder(board):
            raise DataError("what was stored is not what was sent", where=board.name, hint="Deploy again")
        self._install_launcher(board)
        return moved

    def attempt(self, board: Board, gentle: Board, health: Health) -> Trouble | None:
        """Restart the board with the new version. Return why it is not healthy; None if it is.

        `gentle` is the same board, without stopping its program.
        """
        board.write_bytes(TRIAL, str(self._number).encode())
        until = time.monotonic() + health.seconds
        if health.text is None:
            said = self._watch(board, None, min(health.seconds, BOOT_SECONDS))
        else:
            sought = health.text.encode()
            said = self._watch(board, sought, health.seconds)
            if sought not in said:
                last = " ".join(said.decode("utf-8", "replace").split())[-100:]
                return _trouble(f"it did not print {health.text!r} within {health.seconds:g} s, but: {last}", said)
        if health.by_agent and (why := self._ask(gentle, until)):
            return _trouble(why, said)
        return None

    def _watch(self, board: Board, sought: bytes | None, seconds: float) -> bytes:
        """Restart the board. Return the last bytes that it prints until it has printed `sought`, or has failed."""
        terminal = board.terminal()
        limit = threading.Timer(seconds, terminal.cancel)
        said, most = b"", max(KEPT_BYTES, 2 * len(sought or b""))
        try:
            terminal.send(SOFT_RESET)
            limit.start()
            while (pieces := terminal.receive()) is not None:
                said = (said + b"".join(data for received, data in pieces if received))[-most:]
                has_ended = said.endswith(PROMPT) and TRACEBACK in said
                if has_ended or (sought is not None and sought in said):
                    break
        except Stopped:
            pass  # the time is up
        finally:
            limit.cancel()
            terminal.cancel()
            terminal.settle()
        return said

    def _ask(self, board: Board, until: float) -> str:
        """Ask the agent which program runs. Return why this is not the new version, else nothing."""
        expected = f"{FOLDER}/{self._number}/main.py {binascii.crc32((self._folder / 'main.py').read_bytes())}"
        trouble = ""
        while True:
            try:
                # Without the agent, a program that runs makes the device busy, and one that has ended has a prompt.
                if board.info()["capabilities"] == "agent":
                    rows = board.exec(wrap_for_program(RUNNING))
                    said = "\n".join(row["text"] for row in rows)
                    return "" if said == expected else f"its agent says that another program runs: {said[-100:]}"
                trouble = "its program has ended, or runs without the agent"
            except (BusyError, DeviceError, TransportError) as error:
                trouble = error.what
            if time.monotonic() >= until:
                return f"its agent did not answer in time: {trouble}"
            time.sleep(min(ASK_SECONDS, max(0.0, until - time.monotonic())))

    def accept(self, board: Board) -> None:
        """Make the new version the one that starts from now on, remove older ones, and restart the board."""
        board.write_bytes(f"{FOLDER}/{ACCEPTED}{self._number}", b"")
        for name in self._old:
            self._remove(board, f"{FOLDER}/{name}")
        self.give_up(board)

    def give_up(self, board: Board) -> None:
        """Restart the board: it starts the version that was accepted last, unless there is one on trial."""
        board.reset()

    def restore(self, board: Board) -> None:
        """Start the version that was accepted last, after a step that failed: the program may have been stopped."""
        with suppress(DeviceError):  # there is none
            board.remove(TRIAL)
        self.give_up(board)

    def _names(self, board: Board) -> list[str]:
        try:
            entries = board.ls(FOLDER)
        except FileMissing:
            return []
        return [posixpath.basename(entry.path.rstrip("/")) for entry in entries]

    def _put_folder(self, board: Board) -> tuple[str, ...]:
        at = f"{FOLDER}/{self._number}"
        return board.put_tree(at, self._folder, skip_unchanged=True, delete=True, ignore=self._ignore).files

    def _install_launcher(self, board: Board) -> None:
        """Put the launcher into `main.py`, after a copy of another `main.py` is safe."""
        try:
            present = board.read_bytes(MAIN)
        except FileMissing:
            present = b""
        if present == LAUNCHER.encode():
            return
        if present and not present.startswith(MARK):
            board.write_bytes(BEFORE, present)
        board.write_bytes(MAIN, LAUNCHER.encode())

    def _remove(self, board: Board, path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        try:
            inside = board.ls(path, recursive=True)
        except FileMissing:
            return
        for entry in sorted(inside, key=lambda entry: entry.path.count("/"), reverse=True):
            if entry.path.rstrip("/") != path:
                board.remove(entry.path)
        board.remove(path)


def _trouble(why: str, said: bytes) -> Trouble:
    """Return why a version is not healthy: the exception that has ended it, or else `why`."""
    before, mark, rest = said.rpartition(TRACEBACK)
    if not mark:
        return Trouble(why)
    lines = rest.decode("utf-8", "replace").splitlines()[1:]
    end = next((number for number, line in enumerate(lines) if not line.startswith(" ")), len(lines) - 1)
    has_ended = lines and said.endswith(PROMPT)
    return Trouble(f"it raised {lines[end]}" if has_ended else why, "\n".join([TRACEBACK.decode(), *lines[: end + 1]]))


def check_program(folder: Path) -> None:
    """Raise `RequestError` unless the folder holds a program that the launcher can start."""
    if not (folder / "main.py").is_file():
        raise RequestError("there is no main.py in it", where=str(folder), hint="The launcher starts main.py")
    if (folder / "boot.py").exists():
        raise RequestError(
            "boot.py cannot be deployed: a board runs it before it can choose a version",
            where=str(folder),
            hint="Move what it does to main.py, or put it on the boards yourself",
        )
