"""What a second process brings: `serve --workers 2` beside `serve`, in turns, on the cores there are.

    python worker_times.py

Rows: the benchmark table by four endpoints, read side by side, which with workers are spread over them. Requests: small
answers per second over eight connections, all at the server of one process; half of them at each worker; all at the
front of the workers. The clients are processes of their own and take their share of the same cores: on two of them this
shows what a second process costs, and not what it could bring.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Annotated

import typer
from pyarrow import flight

from fastflight.client import FastFlightClient
from fastflight.errors import DataError
from fastflight.service import encode
from fastflight.service.requests import Mock
from fastflight_benchmark import ending, machine
from fastflight_benchmark.loading.pool import Loaders
from fastflight_benchmark.mock_data_service import MIB, expected_bytes
from fastflight_benchmark.peers.running import FREE_PORT, SERVER
from fastflight_benchmark.spawned import spawned

WORKERS = 2
ENDPOINTS = 4
TABLE = Mock(total_rows=1_000_000, rows_per_batch=10_000, endpoints=ENDPOINTS)
SMALL = Mock(total_rows=10, rows_per_batch=10)
CONNECTIONS = 8
SECONDS = 1.0


def main(rounds: Annotated[int, typer.Option(min=1, metavar="N", help="How often each is measured.")] = 5) -> None:
    """Print the median of each, and of its ratios to one process in the same round."""
    with ExitStack() as parts:
        one = parts.enter_context(spawned(SERVER, "--server", FREE_PORT)).location
        front = parts.enter_context(spawned(SERVER, "--server", FREE_PORT, "--workers", str(WORKERS))).location
        workers = _locations(front)
        # A set of loading processes for each server that is asked at the same time.
        loaders = [parts.enter_context(Loaders(1)) for _ in workers]

        def requests(*locations: str) -> Callable[[], float]:
            return lambda: _requests(loaders, locations)

        ways: dict[str, dict[str, Callable[[], float]]] = {
            "MiB/s by 4 endpoints": {"one process": lambda: _rows(one), "2 workers": lambda: _rows(front)},
            "small requests/s": {
                "one process": requests(one, one),
                "2 workers, at each": requests(*workers),
                "2 workers, at the front": requests(front, front),
            },
        }
        for what, asked in ways.items():
            for line in _measured(what, asked, rounds):
                typer.echo(line)
        typer.echo(machine.in_one_line(machine.describe()))


def _measured(what: str, asked: dict[str, Callable[[], float]], rounds: int) -> Iterator[str]:
    figures: dict[str, list[float]] = {way: [] for way in asked}
    for number in range(rounds + 1):
        for way in asked if number % 2 else reversed(asked):
            figure = asked[way]()
            if number:  # the first round warms up
                figures[way].append(figure)
    first = next(iter(figures.values()))
    for way, seen in figures.items():
        ratios = [mine / its for mine, its in zip(seen, first, strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        yield f"{what:22} {way:24} {statistics.median(seen):8,.0f}  {statistics.median(ratios):5.2f} ({spread})"


def _locations(front: str) -> list[str]:
    """Where the workers are, as a flight's endpoints say."""
    with flight.connect(front) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(encode(TABLE)))
    found = sorted({endpoint.locations[0].uri.decode() for endpoint in info.endpoints})
    if len(found) != WORKERS:
        raise DataError(f"the endpoints name {len(found)} workers of {WORKERS}")
    return found


def _rows(location: str) -> float:
    with FastFlightClient(location) as client:
        began = time.perf_counter()
        with client.read_parallel(TABLE, parallel=ENDPOINTS) as stream:
            size: int = sum(batch.nbytes for batch in stream)
        seconds = time.perf_counter() - began
    if size != expected_bytes(TABLE):
        raise DataError(f"{size} bytes came of {expected_bytes(TABLE)}")
    return size / MIB / seconds


def _requests(loaders: Sequence[Loaders], locations: Sequence[str]) -> float:
    def call(loader: Loaders, location: str) -> float:
        calls = loader.call(
            location,
            "do_get",
            encode(SMALL),
            rows=SMALL.total_rows,
            path=SMALL.mode,
            connections=CONNECTIONS // len(locations),
            seconds=SECONDS,
        )
        if calls.errors:
            raise DataError(f"requests failed: {dict(calls.errors)}")
        return len(calls.latencies) / calls.seconds

    with ThreadPoolExecutor(len(loaders)) as pool:
        return sum(pool.map(call, loaders, locations))


if __name__ == "__main__":
    ending.like_ctrl_c()
    typer.run(main)
