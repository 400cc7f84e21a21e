"""Adds faults to a running board, by commands on its standard input.

A command is a line of fault specs (see `faults`), separated by spaces; their byte counts begin when the line is read.
An empty line removes all faults; a board that has stalled then restarts. The answer to each line, on standard output,
is `ok`, or `error` and the reason. When a fault occurs, the output is `struck` and its spec. The board ends when its
standard input ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastflight.simulator.uart import Uart


class Control:
    """Applies each line of `lines` to `uart`, and answers with `say`. Calls `leave` at the end of `lines`."""

    def __init__(self, uart: Uart, lines: Iterable[str], say: Callable[[str], None], leave: Callable[[], None]) -> None:
        self._uart = uart
        self._lines = lines
        self._say = say
        self._leave = leave

    def start(self) -> None:
        """Start reading commands, in a thread."""
        threading.Thread(target=self.run, name="control", daemon=True).start()

    def run(self) -> None:
        for line in self._lines:
            specs = line.split()
            try:
                if specs:
                    self._uart.inject(specs)
                else:
                    self._uart.mend()
            except ValueError as error:
                self._say(f"error {error}")
            else:
                self._say("ok")
        self._leave()

    def report_strike(self, spec: str) -> None:
        """Report that a fault has occurred."""
        self._say(f"struck {spec}")
