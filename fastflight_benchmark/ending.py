"""How a script ends before its time: SIGTERM, and a terminal that is closed, do what Ctrl-C does.

By itself either would end the script at once, and leave the servers and folders that its contexts would have ended. One
that it was started to ignore, as `nohup` has it ignore the terminal, it goes on to ignore.
"""

from __future__ import annotations

import signal
from types import FrameType


def like_ctrl_c() -> None:
    """Have them raise `KeyboardInterrupt` in the main thread: once, so that a second one does not stop what ends."""
    for name in ("SIGTERM", "SIGHUP"):  # the latter where there is one
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
