"""One board: what happens at power on, at a soft reset and at a hard one.

A life starts with `boot.py`; in the friendly mode `main.py` follows; then the REPL of the mode it is in. A soft reset
ends a life and keeps the mode; a hard reset also empties the receive ring and goes back to the friendly mode.
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
    """`new_runtime` makes the interpreter of each life."""

    def __init__(self, uart: Uart, new_runtime: Callable[[], Runtime], *, raw_paste: bool = True) -> None:
        self._uart = uart
        self._new_runtime = new_runtime
        self._raw_paste = raw_paste

    def run(self) -> None:
        """Power on. Ends only by `LineClosed`."""
        mode = Mode.FRIENDLY
        while True:
            try:
                mode = self._live(mode)
                self._uart.write(b"MPY: soft reboot\r\n")
            except BoardReset:
                self._uart.restart()
                mode = Mode.FRIENDLY

    def _live(self, mode: Mode) -> Mode:
        """One life, from boot to soft reset; gives the mode that it ended in."""
        runtime = self._new_runtime()
        ended = runtime.run_file("boot.py")
        if ended is not Outcome.SOFT_RESET and mode is Mode.FRIENDLY:
            ended = runtime.run_file("main.py")
        if ended is Outcome.SOFT_RESET:
            return mode
        repl = Repl(runtime, raw_paste=self._raw_paste)
        while True:
            following = repl.raw() if mode is Mode.RAW else repl.friendly()
            if following is Mode.SOFT_RESET:
                return mode
            mode = following


# A reset that struck here, before a life or after it, would be nobody's to carry out: the next step raises it.
OWN_FILES.add(__file__)
