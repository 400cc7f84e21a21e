"""An audit hook that stops mistakes of board code from reaching beyond the board.

After `Wall.install`, board code cannot open, list, change or remove anything outside its folder, start a process or a
thread, open a socket, or load native code. This is no protection against malicious code, which can find the hook and
disable it; `sandbox` protects against that.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from fastflight.simulator.files import inside

# Events that touch nothing outside the interpreter. Events that are neither here nor below are refused.
HARMLESS = frozenset(
    """
    array.__new__ builtins.id compile exec marshal.load marshal.loads object.__delattr__ object.__getattr__
    object.__setattr__ sys.excepthook sys.unraisablehook time.sleep
    """.split()
)
# Events whose first arguments are paths, with the number of these: allowed inside the board's folder.
PATHS = {
    "open": 1,
    "os.listdir": 1,
    "os.scandir": 1,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rmdir": 1,
    "os.rename": 2,
    "os.truncate": 1,
    "os.walk": 1,
}
# Modules that the interpreter itself imports on first use.
IMPORTS = ("encodings.", "stringprep", "unicodedata", "_strptime", "_multibytecodec", "_codecs_")


class Wall:
    """The audit hook. It raises `PermissionError` for an event that it refuses.

    Board code runs in the main thread. The events in `own` are allowed in the simulator's other threads.
    """

    def __init__(self, root: str, *, own: frozenset[str] = frozenset()) -> None:
        self._root = os.path.realpath(root)
        self._own = own
        self._board = threading.main_thread().ident
        self._library = os.path.dirname(os.path.realpath(os.__file__))

    def install(self) -> None:
        """Install the hook. Python cannot remove an audit hook."""
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in HARMLESS:
            return
        if event in PATHS and all(self._allows(event, path, arguments) for path in arguments[: PATHS[event]]):
            return
        if event in self._own and threading.get_ident() != self._board:
            return
        if event == "import" and str(arguments[0]).startswith(IMPORTS):
            return
        raise PermissionError(f"{event} is not for board code")

    def _allows(self, event: str, path: Any, arguments: tuple[Any, ...]) -> bool:
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str):
            return False
        if inside(path, self._root):
            return True
        reading = event != "open" or (arguments[1] or "r") in ("r", "rb") and not _writes(arguments[2])
        return reading and event in ("open", "os.listdir", "os.scandir") and inside(path, self._library)


def _writes(flags: Any) -> bool:
    return bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))
