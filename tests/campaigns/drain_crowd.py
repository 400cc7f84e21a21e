"""Clients that keep a server busy until it shuts down, and how the work of each ended.

Each is a thread that does one thing over and over, or waits on a stream that it does not read, until it gets an error
or its stream ends. `Promised` collects what the server acknowledged (rows written, rows recorded) and what live
sessions received: the next server must know all of it. `untyped` collects errors without a code, and answers that end
normally and are too short.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import count

import pyarrow as pa
import pyarrow.flight as flight
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from fastflight.client import AsyncFastFlightClient, FastFlightClient
from fastflight.client.failure import typed
from fastflight.errors import BusyError, FastFlightError
from fastflight_benchmark.loading.counting import JSON_SCHEMA

READINGS, WRITTEN, SILENT = "/readings.csv", "/written.csv", "/silent.bin"
READ_ROWS, WRITTEN_ROWS = 2000, 400
# Between two questions how far the recordings are.
POLL_SECONDS = 0.05
# Of an answer that nobody reads: enough to know that it has begun.
BEGUN_BYTES = 4096
HTTP_SECONDS = 60.0
# Of a client whose connection was ended without a word.
CUT = "cut"
# How a WebSocket is closed at a shutdown: the feed of the page, and what is asked for then.
GOING_AWAY, UNAVAILABLE = 1001, 4503
INTERNAL = FastFlightError.code
# Clients that are told of an end by nothing but their connection: all others have words for it, and must use them.
HTTP, HTTP_STALLED, WEBSOCKET, STALLED, SILENT_WRITER = BY_CONNECTION = (
    "http reader",
    "http reader that does not read",
    "websocket",
    "reader that does not read",
    "silent writer",
)


class ShortAnswer(Exception):
    """An answer that ended normally, but too early."""


class ToldOfTheEnd(Exception):
    """An answer whose last line is an error."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class DrainedServer:
    """The server's addresses; boards that print; those with files, of which one is typed to and one held in silence."""

    location: str
    http: str
    printing: tuple[str, ...]
    boards: tuple[str, ...]
    typed: str
    silent: str


@dataclass(slots=True)
class Promised:
    """By board: the last file that was acknowledged, the last that was begun, recorded up to, last row heard live."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    recorded: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    rows_written: int = 0
    rows_read: int = 0


def written(generation: int) -> pa.Table:
    """Return the content that a writer writes, different each time."""
    return pa.table({"n": range(WRITTEN_ROWS), "generation": [generation] * WRITTEN_ROWS})


class DrainCrowd:
    """The clients of `place`, from `start` until the server has ended and `join` was called."""

    def __init__(self, place: DrainedServer, readers: int) -> None:
        """`readers` is the number of readers of each kind."""
        self.promised = Promised()
        self.ends: Counter[str] = Counter()
        self.untyped: list[str] = []
        self._place = place
        self._ended = threading.Event()
        self._lock = threading.Lock()
        boards, printing = place.boards, place.printing
        clients: list[tuple[str, Callable[[str], None], str]] = []

        def add(kind: str, visit: Callable[[str], None], where: str) -> None:
            clients.append((kind, visit, where))

        for number in range(readers):
            board, printer = boards[number % len(boards)], printing[number % len(printing)]
            add("sync reader", self._read, board)
            add("async reader", self._aread, board)
            add("session", lambda name: self._follow(name, "sync"), printer)
            add("session", lambda name: self._follow(name, "async"), printer)
            add(STALLED, lambda name: self._stall("sync"), "")
            add(STALLED, lambda name: self._stall("async"), "")
            add(HTTP, self._fetch, board)
            add(HTTP_STALLED, self._fetch_nothing, "")
            add(WEBSOCKET, lambda name: self._watch(), "")
        for board in boards:
            add("writer", self._write, board)
        add(SILENT_WRITER, self._write_nothing, place.silent)
        add("repl", self._type, place.typed)
        add("recordings", lambda name: self._ask(), "")
        # Set by each when it is well under way.
        self._under_way = [threading.Event() for _ in clients]
        self._threads = [
            # One that hangs is told of by `join`, and can only be left behind.
            threading.Thread(target=self._run, args=(kind, visit, where, begun), name=kind, daemon=True)
            for (kind, visit, where), begun in zip(clients, self._under_way, strict=True)
        ]
        self._own = threading.local()

    def start(self, seconds: float) -> None:
        """Start them, and wait until all have begun. `TimeoutError` if one has not after `seconds`."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.start()
        for thread, begun in zip(self._threads, self._under_way, strict=True):
            if not begun.wait(deadline - time.monotonic()):
                raise TimeoutError(f"{thread.name} is not under way: {self.untyped}")

    def join(self, seconds: float) -> list[str]:
        """Call this when the server has ended. Return the clients that have not ended after `seconds`."""
        self._ended.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _run(self, kind: str, visit: Callable[[str], None], where: str, begun: threading.Event) -> None:
        self._own.begun = begun
        end, untyped = "ended by itself", ""
        try:
            visit(where)
        except (FastFlightError, ToldOfTheEnd) as error:
            end = error.code
            untyped = f"{kind}: {error}" if error.code == INTERNAL else ""
        except pa.ArrowException as error:
            end = typed(error, "").code
            untyped = f"{kind}: {error}" if end == INTERNAL else ""
        except urllib.error.HTTPError as error:
            with error:
                end = f"HTTP {error.code}"
                untyped = f"{kind}: {error}" if error.code != 503 else ""
        except ConnectionClosed as error:
            end = CUT if error.rcvd is None else f"close {error.rcvd.code}"
            as_told = error.rcvd is None or error.rcvd.code in (GOING_AWAY, UNAVAILABLE)
            untyped = "" if as_told else f"{kind}: {error}"
        except (OSError, HTTPException) as error:
            # HTTP has no other word for an answer that breaks off, or for a port where nobody is.
            end, untyped = CUT, "" if kind in BY_CONNECTION else f"{kind}: {type(error).__name__}: {error}"
        except Exception as error:
            end, untyped = "another", f"{kind}: {type(error).__name__}: {error}"
        with self._lock:
            self.ends[f"{kind}: {end}"] += 1
            if untyped:
                self.untyped.append(untyped)

    def _begun(self) -> None:
        self._own.begun.set()

    def _count(self, rows: int) -> None:
        with self._lock:
            self.promised.rows_read += rows
        self._begun()

    def _whole(self, rows: int) -> None:
        """Check a file that was read to a normal end."""
        if rows != READ_ROWS:
            raise ShortAnswer(f"{rows} rows of {READ_ROWS}")
        self._count(rows)

    def _read(self, board: str) -> None:
        with FastFlightClient(self._place.location) as client:
            while True:
                try:
                    self._whole(client.read(board, READINGS, mode="sync").to_arrow().num_rows)
                except BusyError:
                    self._begun()

    def _aread(self, board: str) -> None:
        async def read() -> None:
            async with AsyncFastFlightClient(self._place.location) as client:
                while True:
                    try:
                        self._whole((await (await client.read(board, READINGS)).to_arrow()).num_rows)
                    except BusyError:
                        self._begun()

        asyncio.run(read())

    def _follow(self, board: str, mode: str) -> None:
        with FastFlightClient(self._place.location) as client:
            with client.session(board, format="jsonl", schema=JSON_SCHEMA, mode=mode) as rows:  # type: ignore[arg-type]
                for batch in rows:
                    numbers = [number for number in batch.column("n").to_pylist() if number is not None]
                    with self._lock:
                        heard = self.promised.heard
                        heard[board] = max([heard.get(board, -1), *numbers])
                    self._count(len(numbers))
            if not rows.summary.get("ended"):
                raise ShortAnswer("a session without a last word")

    def _stall(self, mode: str) -> None:
        asked = {"type": "mock", "mode": mode, "rows_per_batch": 10_000, "total_rows": 1_000_000_000}
        with flight.connect(self._place.location) as client:
            reader = client.do_get(flight.Ticket(json.dumps(asked)))
            reader.read_chunk()
            self._begun()
            self._ended.wait()
            while True:
                reader.read_chunk()

    def _write(self, board: str) -> None:
        promised = self.promised
        with FastFlightClient(self._place.location) as client:
            for generation in count(1):
                promised.begun[board] = generation
                try:
                    client.write(board, WRITTEN, written(generation))
                except BusyError:
                    continue
                promised.acknowledged[board] = generation
                with self._lock:
                    promised.rows_written += WRITTEN_ROWS
                self._begun()

    def _write_nothing(self, board: str) -> None:
        asked = {"type": "device.file", "device": board, "path": SILENT, "format": "raw"}
        schema = pa.schema([("data", pa.binary())])
        with flight.connect(self._place.location) as client:
            writer, reader = client.do_put(flight.FlightDescriptor.for_command(json.dumps(asked)), schema)
            writer.write_batch(pa.record_batch([pa.array([b"x" * 5000])], schema=schema))
            while "bytes" not in json.loads(reader.read().to_pybytes()):
                pass
            self._begun()
            self._ended.wait()
            writer.close()

    def _type(self, board: str) -> None:
        with FastFlightClient(self._place.location) as client, client.interact(board) as repl:
            for number in count(1):
                repl.send(f"print({number} * 10007)\r")
                repl.read_until(b"%d\r\n" % (number * 10007))
                self._begun()

    def _fetch(self, board: str) -> None:
        url = f"{self._place.http}/devices/{board}/files{READINGS}?format=jsonl"
        while True:
            with urllib.request.urlopen(url, timeout=HTTP_SECONDS) as answer:
                lines = list(answer)
            if lines and (error := json.loads(lines[-1]).get("error")) is not None:
                raise ToldOfTheEnd(error.get("code", INTERNAL))
            self._whole(len(lines))

    def _fetch_nothing(self, board: str) -> None:
        body = json.dumps({"type": "mock", "rows_per_batch": 10_000, "total_rows": 1_000_000_000}).encode()
        with urllib.request.urlopen(f"{self._place.http}/stream", body, timeout=HTTP_SECONDS) as answer:
            answer.read(BEGUN_BYTES)
            self._begun()
            self._ended.wait()
            while answer.read(1 << 20):
                pass
            raise ShortAnswer("a table without end")

    def _watch(self) -> None:
        with connect(self._place.http.replace("http", "ws") + "/ws/fleet") as socket:
            while True:
                socket.recv()
                self._begun()

    def _ask(self) -> None:
        with FastFlightClient(self._place.location) as client:
            while not self._ended.wait(POLL_SECONDS):
                for each in client.recordings():
                    self.promised.recorded[each.name] = each.next_seq
                self._begun()
