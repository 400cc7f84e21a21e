"""A board from power on, through soft and hard resets.

After a reset the board runs `boot.py`, then `main.py` if it is in friendly mode, then the REPL of its mode. A soft
reset keeps the mode. A hard reset also empties the receive ring and returns to friendly mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastflight.simulator.repl import Mode, Repl
from fastflight.simulator.runtime import Outcome
from fastflight.simulator.uart import OWN_FILES, BoardReset

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastflight.simulator.runtime import Runtime
    from fastflight.simulator.uart import Uart


class Board:
    """`new_runtime` creates the interpreter after each reset."""

    def __init__(self, uart: Uart, new_runtime: Callable[[], Runtime], *, raw_paste: bool = True) -> None:
        self._uart = uart
        self._new_runtime = new_runtime
        self._raw_paste = raw_paste

    def run(self) -> None:
        """Run the board from power on. Ends only with `LineClosed`."""
        mode = Mode.FRIENDLY
        while True:
            try:
                mode = self._live(mode)
                self._uart.write(b"MPY: soft reboot\r\n")
            except BoardReset:
                self._uart.restart()
                mode = Mode.FRIENDLY

    def _live(self, mode: Mode) -> Mode:
        """Run from boot to a soft reset; return the mode at that time."""
        runtime = self._new_runtime()
        ended = runtime.run_file("boot.py")
        if ended is not Outcome.SOFT_RESET and mode is Mode.FRIENDLY:
            ended = runtime.run_file("main.py")
        if ended is Outcome.SOFT_RESET:
            return mode
        repl = Repl(runtime, raw_paste=self._raw_paste)
        while True:
            next_mode = repl.raw() if mode is Mode.RAW else repl.friendly()
            if next_mode is Mode.SOFT_RESET:
                return mode
            mode = next_mode


# The signal handler must not raise a reset in this file, where nothing would catch it: the next step raises it.
OWN_FILES.add(__file__)
