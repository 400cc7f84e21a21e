"""Makes SIGTERM and a closed terminal (SIGHUP) stop a script as Ctrl-C does.

By default either signal ends the script at once. The servers that it started would keep running, and its temporary
folders would stay. A signal that was ignored when the script started (`nohup` ignores SIGHUP) stays ignored.
"""

from __future__ import annotations

import signal
from types import FrameType


def like_ctrl_c() -> None:
    """Raise `KeyboardInterrupt` in the main thread at the first signal. Later ones do not interrupt the clean-up."""
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
