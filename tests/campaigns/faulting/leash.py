"""Runs the command `fastflight` so that it ends at once when the process that started it ends in any way.

    python -m tests.campaigns.faulting.leash ARGUMENTS

It ends when its input ends. SIGUSR1 prints where it is. Its clock can be set (`tests.support.clock`), and it can
compact often (`clustering.compacting`).
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import threading

from fastflight.cli.entry import choose_pool
from tests.campaigns.clustering import compacting
from tests.support import clock

# As of a program that lost its terminal.
LOST = 129


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    clock.follow(os.environ)
    choose_pool(os.environ, sys.platform)
    command = importlib.import_module("fastflight.cli.main")  # now: all of it takes the clock that it finds
    command.load(sys.argv[1])
    compacting.follow(os.environ)
    threading.Thread(target=_hold, name="leash", daemon=True).start()
    command.app()


def _hold() -> None:
    while os.read(0, 1):
        pass
    os._exit(LOST)


if __name__ == "__main__":
    main()
