"""A simulated board as a serial port of this computer, in a process that ends with the context.

Any program for serial ports can open it by its `path`. Its files are in `folder`, where they can be read and written
without the serial line. `inject` starts faults. `mend` ends them and returns the faults that took effect.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fastflight.errors import FastFlightError, TransportError

SIMULATOR = "fastflight.simulator"
SERIAL_BOARD = "fastflight_benchmark.serial_board"
# Python starts in a fraction of a second, but many boards that start at once on few cores take several seconds.
START_SECONDS = 60.0
ANSWER_SECONDS = 10.0
STOP_SECONDS = 10.0
# The receive ring of most real boards, in bytes.
RING = 512


class SimulatedBoard:
    """A board that runs while the context lasts. With `baud` 0 its line has no pace.

    Programs reach it at `path`: the name of a serial port, or an address if it listens at `listen` (`HOST:PORT`).
    """

    def __init__(self, folder: Path, baud: int = 0, *options: str, ring: int = RING, listen: str = "") -> None:
        self.folder = folder
        self.baud = baud
        self.path = ""
        program = [SIMULATOR, "--listen", listen] if listen else [SERIAL_BOARD]
        self._command = [sys.executable, "-m", *program, "--control", "--telemetry", "0"]
        self._command += ["--files", str(folder), "--baud", str(baud), "--ring", str(ring), *options]

    def start(self) -> None:
        """Power the board on. Raise `TransportError` if it does not start."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            # Ctrl-C is for the benchmark, which ends the board itself.
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._triggered_faults: list[str] = []
        self._reader = threading.Thread(target=self._listen, name="board-output")
        self._reader.start()
        self.path = self._next(START_SECONDS)
        if not self.path:
            self.stop()
            raise TransportError("the simulated board did not start", where=SIMULATOR)

    def stop(self) -> None:
        """Power the board off at once."""
        self._process.kill()
        self._process.wait(STOP_SECONDS)
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            # A request that the board did not read any more is still in the pipe.
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether its process runs. The process of an unplugged board has ended."""
        return self._process.poll() is None

    def inject(self, specs: Sequence[str]) -> None:
        """Start faults (`fastflight.simulator.faults`). Their counts begin now."""
        self._ask(" ".join(specs))

    def mend(self) -> list[str]:
        """End all faults; a restart ends a stall. Return the faults that took effect since the last call."""
        try:
            self._ask("")
        except TransportError:
            # The board was unplugged, so its process ends.
            self._process.wait(STOP_SECONDS)
        faults, self._triggered_faults = self._triggered_faults, []
        return faults

    def _ask(self, line: str) -> None:
        if self._process.stdin is None:
            raise TransportError("the simulated board has no input for requests", where=SIMULATOR)
        try:
            self._process.stdin.write(line + "\n")
        except OSError as error:
            raise TransportError("the simulated board is gone", where=SIMULATOR) from error
        answer = self._next(ANSWER_SECONDS)
        if not answer:
            raise TransportError("the simulated board is gone", where=SIMULATOR)
        if answer != "ok":
            raise FastFlightError(f"the simulated board answers {answer!r} to {line!r}", where=SIMULATOR)

    def _next(self, seconds: float) -> str:
        """Return the next line that does not report a fault, or an empty text after `seconds`."""
        try:
            return self._lines.get(timeout=seconds)
        except queue.Empty:
            return ""

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            if line.startswith("struck "):
                self._triggered_faults.append(line.removeprefix("struck ").rstrip("\n"))
            else:
                self._lines.put(line.rstrip("\n"))
        self._lines.put("")
