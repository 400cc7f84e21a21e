"""One visit of a client: it connects, does one thing, counts the rows, and leaves.

Each kind of visit counts the rows that it read, and those that are `wrong`: missing without a gap, repeated, or
different from what was written. The caller sorts exceptions: an error with a code is an answer, any other is a defect.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa

from fastflight.client import AsyncFastFlightClient, FastFlightClient
from fastflight.client.stream import RowStream
from fastflight.errors import FastFlightError
from fastflight_benchmark.loading.counting import JSON_SCHEMA
from fastflight_benchmark.mock import Mock

FILE = "/readings.csv"
WRITTEN_ROWS = 500
INTERNAL = FastFlightError.code
JSON_LINES: dict[str, Any] = {"format": "jsonl", "schema": JSON_SCHEMA}
# What a live session is followed for.
SESSION_SECONDS = (0.5, 3.0)
# Between the batches of a client that reads slowly.
SLOW_SECONDS = 0.05
# A request for the line of a board that others have may wait as long as the server lets it.
HTTP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where clients go: the server's addresses, boards that print, boards with files, what `FILE` has on all of them.

    `lines` is that as JSON lines.
    """

    location: str
    http: str
    printing: tuple[str, ...]
    boards: tuple[str, ...]
    file: pa.Table
    lines: bytes


@dataclass(slots=True)
class Counted:
    """Rows that were read, written, and wrong."""

    read: int = 0
    written: int = 0
    wrong: int = 0
    told_missing: int = 0

    def __add__(self, other: Counted) -> Counted:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Counted(*(one + another for one, another in pairs))


class Told(FastFlightError):
    """An error among the rows of an answer, by its code."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(what)
        self.code = code


Visit = Callable[[Place, random.Random, str], Counted]


def reading(place: Place, chance: random.Random, own: str) -> Counted:
    """Read a file completely."""
    with FastFlightClient(place.location) as client:
        found = client.read(chance.choice(place.boards), FILE, mode=chance.choice(("sync", "async"))).to_arrow()
    return _compared(found, place)


def areading(place: Place, chance: random.Random, own: str) -> Counted:
    """Read a file with the async client, twice at the same time."""

    async def read(client: AsyncFastFlightClient) -> Counted:
        return _compared(await (await client.read(chance.choice(place.boards), FILE)).to_arrow(), place)

    async def both() -> Counted:
        async with AsyncFastFlightClient(place.location) as client:
            one, other = await asyncio.gather(read(client), read(client))
        return Counted(read=one.read + other.read, wrong=one.wrong + other.wrong)

    return asyncio.run(both())


def following(place: Place, chance: random.Random, own: str) -> Counted:
    """Follow a board's rows as it prints them."""
    seconds = chance.uniform(*SESSION_SECONDS)
    with FastFlightClient(place.location) as client:
        board = chance.choice(place.printing)
        rows = client.session(board, limit_seconds=seconds, mode=chance.choice(("sync", "async")), **JSON_LINES)
        return _followed(rows)


def dawdling(place: Place, chance: random.Random, own: str) -> Counted:
    """Follow a board's rows slowly."""
    with FastFlightClient(place.location) as client:
        board = chance.choice(place.printing)
        rows = client.session(board, since_seconds=60, limit_seconds=SESSION_SECONDS[1], **JSON_LINES)
        return _followed(rows, SLOW_SECONDS)


def replaying(place: Place, chance: random.Random, own: str) -> Counted:
    """Replay the last rows of a recording."""
    with FastFlightClient(place.location) as client:
        return _followed(client.recording(chance.choice(place.printing), since_seconds=20, **JSON_LINES))


def writing(place: Place, chance: random.Random, own: str) -> Counted:
    """Write rows to a board, read them back and remove them."""
    board, path = chance.choice(place.boards), f"/{own}.csv"
    table = pa.table({"n": range(WRITTEN_ROWS), "x": [chance.randrange(1000) for _ in range(WRITTEN_ROWS)]})
    with FastFlightClient(place.location) as client:
        client.write(board, path, table, mode=chance.choice(("sync", "async")))
        found = client.read(board, path).to_arrow()
        client.remove(board, path)
    same = found.num_rows == WRITTEN_ROWS and found.select(["n", "x"]).equals(table)
    return Counted(read=found.num_rows, written=WRITTEN_ROWS, wrong=0 if same else WRITTEN_ROWS)


def talking(place: Place, chance: random.Random, own: str) -> Counted:
    """Ask a board's REPL for a sum."""
    number = chance.randrange(1000, 10_000)
    with FastFlightClient(place.location) as client:
        with client.interact(chance.choice(place.boards)) as repl:
            repl.send(f"print({number} * 10007)\r")
            answer = repl.read_until(b"%d" % (number * 10007))
    return Counted(read=1, written=1, wrong=0 if answer else 1)


def fetching(place: Place, chance: random.Random, own: str) -> Counted:
    """Read a file's rows over HTTP."""
    found = lines(place.http, chance.choice(place.boards))
    return Counted(read=found.count(b"\n"), wrong=0 if found == place.lines else place.file.num_rows)


def lines(http: str, board: str) -> bytes:
    """`FILE` as JSON lines."""
    url = f"{http}/devices/{board}/files{FILE}?format=jsonl"
    with urllib.request.urlopen(url, timeout=HTTP_SECONDS) as answer:
        content: bytes = answer.read()
    return content


def watching(place: Place, chance: random.Random, own: str) -> Counted:
    """Follow a live session over HTTP."""
    asked = {
        "type": "device.session",
        "device": chance.choice(place.printing),
        "limit_seconds": chance.uniform(*SESSION_SECONDS),
        **JSON_LINES,
    }
    counted, last, ended = Counted(), -1, False
    with urllib.request.urlopen(f"{place.http}/stream", json.dumps(asked).encode(), timeout=HTTP_SECONDS) as answer:
        rows = pa.ipc.open_stream(answer)
        while not ended:
            batch, said = rows.read_next_batch_with_custom_metadata()
            told = {key.decode(): json.loads(value) for key, value in (said or {}).items()}
            if error := told.get("fastflight.error"):
                raise Told(error.get("code", INTERNAL), str(error))
            ended = "fastflight.trailer" in told
            if "gap" in told.get("fastflight.note", {}):
                counted.told_missing += 1
                last = -1
            for number in batch["n"].to_pylist():
                counted.read += 1
                counted.wrong += last >= 0 and number != last + 1
                last = number
    return counted


def leaving(place: Place, chance: random.Random, own: str) -> Counted:
    """Request much, read one batch, and leave: by cancelling, or by closing the connection."""
    client = FastFlightClient(place.location)
    try:
        stream = client.read_request(Mock(total_rows=1_000_000, rows_per_batch=10_000))
        count = next(iter(stream)).num_rows
        if chance.random() < 0.5:
            stream.cancel()
    finally:
        client.close()
    return Counted(read=count)


def hanging_up(place: Place, chance: random.Random, own: str) -> Counted:
    """Request much over HTTP, and hang up."""
    body = json.dumps({"type": "mock", "total_rows": 1_000_000}).encode()
    with urllib.request.urlopen(f"{place.http}/stream", body, timeout=HTTP_SECONDS) as answer:
        answer.read(4096)
    return Counted(read=1)


VISITS: dict[str, Visit] = {
    each.__name__: each
    for each in (
        reading, areading, following, dawdling, replaying, writing, talking, fetching, watching, leaving, hanging_up,
    )
}  # fmt: skip


def _compared(found: pa.Table, place: Place) -> Counted:
    """Count the rows of `FILE`. If one differs, all count as wrong."""
    return Counted(read=found.num_rows, wrong=0 if found.equals(place.file) else place.file.num_rows)


def _followed(rows: RowStream, pause: float = 0.0) -> Counted:
    """Count rows of a printing board. No number may be missing without a gap."""
    counted, last = Counted(), -1
    with rows:
        for batch in rows:
            if len(rows.gaps) > counted.told_missing:  # what follows is another run
                counted.told_missing, last = len(rows.gaps), -1
            for number in batch.column("n").to_pylist() if batch.num_rows else []:
                # A line of which the session has seen the end only has no number, and is the first of a run.
                counted.wrong += last >= 0 and number != last + 1
                last = -1 if number is None else number
            counted.read += batch.num_rows
            time.sleep(pause)
    return counted
