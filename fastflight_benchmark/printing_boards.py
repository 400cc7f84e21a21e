"""Boards that only print, many in one process. Each is a TCP port on this computer that sends rows at a pace.

    python -m fastflight_benchmark.printing_boards '{"boards": 1000, "rows_per_second": 10}'

They execute nothing, and ignore what is sent to them. A board prints while a client is connected: JSON lines with the
board's number, the row's number, which goes up by one, and `ns`, the host's monotonic clock when the row was written.
The boards take turns, spread evenly over a period. With `bytes_per_second`, a board's line is never idle: it sends its
rows in slices, which may end anywhere, as a UART of that speed would.

A board keeps data that its client does not read, and sends it later. It loses nothing, so missing data was lost at the
other end.

All lines of input and output are JSON. The first line of output lists the ports. Each line of input, `"start"`,
`"count"` or `"stop"` (which ends the printing), is answered by a line with `Printed` of each board. The process ends
when its input does.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import resource
import selectors
import socket
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from fastflight_benchmark.processes import Worker

# A listening and a connected socket for each board, and some for the process itself.
DESCRIPTORS_PER_BOARD, OTHER_DESCRIPTORS = 2, 64
# A line that is never idle moves this much at once, as USB adapters do.
SLICE_SECONDS = 0.008


@dataclass(frozen=True, slots=True)
class Options:
    """The number of boards, the rows or bytes that each prints in a second, and whether they wait for `start`."""

    boards: int
    rows_per_second: float = 10.0
    bytes_per_second: float = 0.0
    # Boards print nothing before `start`.
    waiting: bool = False

    @property
    def period(self) -> float:
        """Seconds from one write to the next."""
        return SLICE_SECONDS if self.bytes_per_second else 1 / self.rows_per_second


@dataclass(slots=True)
class Printed:
    """The output of a board so far: rows, bytes, and the CRC-32 of all bytes."""

    rows: int = 0
    bytes: int = 0
    crc: int = 0


class PrintingBoard:
    """One board, at `port`. `print` must be called whenever it is due."""

    def __init__(self, number: int, options: Options) -> None:
        self.number = number
        self.printed = Printed()
        self._slice = int(options.bytes_per_second * SLICE_SECONDS)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=2)
        self.port: int = self._listener.getsockname()[1]
        self._line: socket.socket | None = None
        self._unsent = b""
        # The rest of the last row, for the next slice of a line that is never idle.
        self._rest = b""

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Register for new connections."""
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def print(self) -> None:
        """Print what is due, if a client is connected."""
        if self._line is None:
            return
        if self._slice:
            while len(self._rest) < self._slice:
                self._rest += self._row()
            data, self._rest = self._rest[: self._slice], self._rest[self._slice :]
        else:
            data = self._row()
        self._say(data)

    def complete(self) -> None:
        """Print the rest of a row that a slice has cut."""
        self._say(self._rest)
        self._rest = b""

    def flush(self) -> None:
        """Send data that the client did not accept before."""
        if self._line is None or not self._unsent:
            return
        try:
            self._unsent = self._unsent[self._line.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:  # the client has gone
            self._line.close()
            self._line, self._unsent = None, b""

    def _say(self, data: bytes) -> None:
        self.printed.bytes += len(data)
        self.printed.crc = zlib.crc32(data, self.printed.crc)
        self._unsent += data
        self.flush()

    def _row(self) -> bytes:
        row = b'{"board": %d, "n": %d, "ns": %d}\n' % (self.number, self.printed.rows, time.monotonic_ns())
        self.printed.rows += 1
        return row

    def _accept(self) -> None:
        line, _ = self._listener.accept()
        line.setblocking(False)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._line is not None:  # like a serial port, a board has one client: the newest
            self._line.close()
        self._line, self._unsent = line, b""


def run(options: Options) -> None:
    """Print until the input ends."""
    _raise_descriptor_limit(DESCRIPTORS_PER_BOARD * options.boards + OTHER_DESCRIPTORS)
    boards = [PrintingBoard(number, options) for number in range(options.boards)]
    selector = selectors.DefaultSelector()
    for board in boards:
        board.watch(selector)
    commands = _Commands(boards, options.waiting)
    selector.register(sys.stdin, selectors.EVENT_READ, commands.read_command)
    _say([board.port for board in boards])
    began = time.monotonic()
    due = [(began + options.period * place / len(boards), place) for place in range(len(boards))]
    while not commands.over:
        now = time.monotonic()
        while due[0][0] <= now:
            when, place = due[0]
            if commands.stopped:
                boards[place].flush()
            else:
                boards[place].print()
            heapq.heapreplace(due, (when + options.period, place))
        wait = due[0][0] - time.monotonic()
        for key, _ in selector.select(max(0.0, wait)):
            callback: Callable[[], None] = key.data
            callback()


class _Commands:
    """Reads and answers the lines of input."""

    def __init__(self, boards: list[PrintingBoard], waiting: bool) -> None:
        self._boards = boards
        self.stopped = waiting
        self.over = False

    def read_command(self) -> None:
        line = sys.stdin.readline()
        if not line:
            self.over = True
            return
        command = json.loads(line)
        if command == "start":
            self.stopped = False
        elif command == "stop":
            self.stopped = True
            for board in self._boards:
                board.complete()
        _say([asdict(board.printed) for board in self._boards])


def _raise_descriptor_limit(descriptors: int) -> None:
    """Raise the limit on open descriptors as far as needed, if the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < descriptors:
        most = descriptors if hard == resource.RLIM_INFINITY else min(hard, descriptors)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


class Fleet:
    """Boards that print at `urls`. Each prints while a client is connected; with `waiting`, only after `start`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.pid = worker.pid
        self.urls: Sequence[str] = [f"socket://127.0.0.1:{port}" for port in worker.hear()]

    def toml(self) -> str:
        """Return a fleet file in which they are named `board-0`, `board-1` and so on."""
        return "".join(f'[devices.board-{number}]\nurl = "{url}"\n' for number, url in enumerate(self.urls))

    def start(self) -> None:
        """Start printing, if the boards were started with `waiting`."""
        self._ask("start")

    def count(self) -> list[Printed]:
        """Return what each board has printed so far."""
        return self._ask("count")

    def stop(self) -> list[Printed]:
        """Stop printing. Return what each board has printed."""
        return self._ask("stop")

    def _ask(self, word: str) -> list[Printed]:
        return [Printed(**each) for each in self._worker.ask(word)]


@contextlib.contextmanager
def printing(options: Options) -> Iterator[Fleet]:
    """Start printing boards; they end with the context."""
    with Worker("fastflight_benchmark.printing_boards", json.dumps(asdict(options))) as worker:
        yield Fleet(worker)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        run(Options(**json.loads(sys.argv[1])))
