"""What a program that started a board says to it beside its line: faults while it lives, on standard input.

A line holds fault specs (`faults`) with spaces between them, whose counts begin when it is read; an empty line ends all
faults, and the stall of a board that stalled, which restarts. Each line is answered on standard output: `ok`, or
`error` and the reason. Each strike is told there by `struck` and its spec. The board ends with its standard input.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastflight.simulator.uart import Uart


class Control:
    """Carries out the lines of `lines` on `uart`, and answers by `say`."""

    def __init__(self, uart: Uart, lines: Iterable[str], say: Callable[[str], None], leave: Callable[[], None]) -> None:
        self._uart = uart
        self._lines = lines
        self._say = say
        self._leave = leave

    def start(self) -> None:
        """From now on, in a thread."""
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

    def struck(self, spec: str) -> None:
        """A fault struck."""
        self._say(f"struck {spec}")
