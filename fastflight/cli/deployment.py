"""A new version of a program on one board: stored beside the old one, tried once, and then accepted or given up.

On the board, a launcher in `/main.py` starts the program in one of the folders `/deploy/N`:

- the one that `/deploy/trial` names, once: the launcher removes that file before it starts the program;
- else the highest N for which there is a file `/deploy/accepted-N`;
- else `/deploy/before.py`, the `main.py` from before the first deployment.

Each step of a deployment is one rename of a complete, verified file, and no step changes what the launcher would start.
So a board that loses its power at any moment starts the old program or the new one, as a whole. See decision 0089.
"""

from __future__ import annotations

import posixpath
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastflight.errors import DataError, FileMissing, RequestError, Stopped

if TYPE_CHECKING:
    from fastflight.cli.interruptible_client import InterruptibleClient

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
  n=str(max([0]+[int(x[9:]) for x in os.listdir('/deploy') if x.startswith('accepted-')]))
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


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of the trial of a new version: whether it was healthy, and the last lines that the board printed."""

    healthy: bool
    said: str


class Deployment:
    """The deployment of `folder` to one device. Call `stage`, then `attempt`, then `accept` or `give_up`."""

    def __init__(self, client: InterruptibleClient, device: str, folder: Path, ignore: Sequence[str]) -> None:
        self._client = client
        self._device = device
        self._folder = folder
        self._ignore = ignore
        self._number = 0
        self._old: list[str] = []

    def stage(self) -> int:
        """Store the folder beside the version that runs, and verify it. Return how many files were moved.

        Stops the board's program; `give_up` or a reset starts it again.
        """
        names = self._names()
        if TRIAL_NAME in names:
            # An interrupted deployment: this version must not start while it is being changed.
            self._client.remove(self._device, TRIAL, interrupt=True)
        accepted = [int(name.removeprefix(ACCEPTED)) for name in names if name.startswith(ACCEPTED)]
        self._number = max(accepted, default=0) + 1
        # The file that makes a version the one to start goes first, then its folder.
        self._old = [f"{ACCEPTED}{number}" for number in accepted]
        self._old += [name for name in names if name.isdigit() and int(name) != self._number]
        moved = len(self._put_folder())
        if self._put_folder():
            raise DataError("what was stored is not what was sent", where=self._device, hint="Deploy again")
        self._install_launcher()
        return moved

    def attempt(self, healthy: str, seconds: float) -> Trial:
        """Restart the board with the new version, and watch for the text `healthy` in what it prints."""
        self._write(TRIAL, str(self._number).encode())
        terminal = self._client.terminal(self._device)
        limit = threading.Timer(seconds, terminal.cancel)
        sought, said, found = healthy.encode(), b"", False
        try:
            terminal.send(SOFT_RESET)
            limit.start()
            while not found and (pieces := terminal.receive()) is not None:
                said += b"".join(data for received, data in pieces if received)
                found = sought in said
                said = said[-max(KEPT_BYTES, 2 * len(sought)) :]
        except Stopped:
            pass  # the time is up
        finally:
            limit.cancel()
            terminal.cancel()
            terminal.settle()
        return Trial(found, said.decode("utf-8", "replace"))

    def accept(self) -> None:
        """Make the new version the one that starts from now on, remove older ones, and restart the board."""
        self._write(f"{FOLDER}/{ACCEPTED}{self._number}", b"")
        for name in self._old:
            self._remove(f"{FOLDER}/{name}")
        self.give_up()

    def give_up(self) -> None:
        """Restart the board: it starts the version that was accepted last."""
        self._client.reset(self._device, interrupt=True)

    def _names(self) -> list[str]:
        try:
            entries = self._client.ls(self._device, FOLDER, interrupt=True)
        except FileMissing:
            return []
        return [posixpath.basename(entry.path.rstrip("/")) for entry in entries]

    def _put_folder(self) -> tuple[str, ...]:
        at = f"{FOLDER}/{self._number}"
        options = {"skip_unchanged": True, "delete": True, "ignore": self._ignore, "interrupt": True}
        return self._client.put_tree(self._device, at, self._folder, **options).files  # type: ignore[arg-type]

    def _install_launcher(self) -> None:
        """Put the launcher into `main.py`, after a copy of another `main.py` is safe."""
        with tempfile.TemporaryDirectory(prefix="fastflight-") as folder:
            here = Path(folder) / "main.py"
            try:
                self._client.get_file(self._device, MAIN, here, resume=False, interrupt=True)
                present = here.read_bytes()
            except FileMissing:
                present = b""
            if present == LAUNCHER.encode():
                return
            if present and not present.startswith(MARK):
                self._client.put_file(self._device, BEFORE, here, resume=False, interrupt=True)
        self._write(MAIN, LAUNCHER.encode())

    def _write(self, path: str, content: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="fastflight-") as folder:
            here = Path(folder) / "file"
            here.write_bytes(content)
            self._client.put_file(self._device, path, here, resume=False, interrupt=True)

    def _remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        try:
            inside = self._client.ls(self._device, path, recursive=True, interrupt=True)
        except FileMissing:
            return
        for entry in sorted(inside, key=lambda entry: entry.path.count("/"), reverse=True):
            if entry.path.rstrip("/") != path:
                self._client.remove(self._device, entry.path, interrupt=True)
        self._client.remove(self._device, path, interrupt=True)


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
