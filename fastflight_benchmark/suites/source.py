"""`--source`: how fast a server serves the user's own source, compared with the source by itself.

A small answer is measured as in the suite `requests`: answers per second on a few connections. A larger one is measured
as in the suite `flight`: MiB/s of a few clients that read at the same time. `alone` is the source iterated in this
process without a server, which no server exceeds for one client. Both modes take turns; a source that has only one is
measured in that one. Each answer must have the rows and the path of the first one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pandas as pd

from fastflight import Source
from fastflight.app.own_sources import load_sources
from fastflight.client import FastFlightClient
from fastflight.errors import DataError, RequestError
from fastflight.service import Catalog, encode, make_request
from fastflight_benchmark import output, report
from fastflight_benchmark.contenders import MODES
from fastflight_benchmark.cores import MIB
from fastflight_benchmark.loading.calling import DO_GET
from fastflight_benchmark.loading.pool import Loaders
from fastflight_benchmark.loading.reading import Answer
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers.running import FREE_PORT, SERVER
from fastflight_benchmark.spawned import spawned

# Answers below this size are counted, larger ones are weighed.
SMALL_BYTES = 256 * 1024
CLIENTS, QUICK_CLIENTS = (1, 4, 16), (1, 4)
ROUNDS = 3
SECONDS, QUICK_SECONDS = 1.0, 0.3
UNITS = {True: "answers/s", False: "MiB/s"}
COLUMNS = ["clients", "mode", "run", "unit", "rate", "p50_ms", "p99_ms", "first_batch_ms", "rows", "bytes", "error"]


def run(options: Options, name: str, keys: str) -> int:
    """Measure the source MODULE:NAME with a request of these `keys` (JSON). Return how many requests failed."""
    source = next(each for each in reversed(load_sources([name])))
    request = _request(source, keys)
    rows: list[dict[str, Any]] = []
    with spawned(SERVER, "--server", FREE_PORT, "--source", name) as server, Loaders() as loaders:
        first = {mode: _read_once(server.location, request.model_copy(update={"mode": mode})) for mode in MODES}
        paths = {answer.path: mode for mode, answer in first.items()}
        is_small = all(answer.bytes < SMALL_BYTES for answer in first.values())
        options.say(f"{source.name} at {server.location}: {first[MODES[0]].rows} rows, {' and '.join(paths)}")
        for number in range(1, options.runs * (1 if options.quick else ROUNDS) + 1):
            rows += _alone(source, request, number, is_small)
            for clients in QUICK_CLIENTS if options.quick else CLIENTS:
                for path in paths if number % 2 else reversed(paths):
                    ticket = encode(request.model_copy(update={"mode": paths[path]}))
                    measure = _calls if is_small else _reads
                    measured = measure(loaders, server.location, ticket, first[paths[path]], clients, options)
                    rows.append({"clients": clients, "mode": path, "run": number, "unit": UNITS[is_small], **measured})
    raw = pd.DataFrame(rows, columns=COLUMNS)
    result = raw.groupby(["clients", "mode", "unit"], as_index=False)[["rate", "p50_ms", "p99_ms", "first_batch_ms"]]
    medians = result.median()
    description = options.describe("source", {"source": name, "request": json.loads(encode(request))})
    output.save(options.output, medians, {"raw": raw}, description)
    _show(options, medians)
    failed = raw.loc[raw["error"] != "", "error"]
    report.show_end(options.console, description, failed, options.output)
    return len(failed)


def _request(source: Source[Any], keys: str) -> Any:
    catalog = Catalog()
    catalog.add(source.functions())
    try:
        given = json.loads(keys)
    except ValueError as error:
        raise RequestError(
            f"not JSON: {error}", where="--request", hint="As in --request '{\"year\": 2026}'"
        ) from error
    if not isinstance(given, dict):
        raise RequestError("not a JSON object", where="--request", hint="As in --request '{\"year\": 2026}'")
    return make_request({**given, "type": source.request.type}, catalog)


def _read_once(location: str, request: Any) -> Answer:
    with FastFlightClient(location) as client:
        stream = client.read_request(request)
        table = stream.to_arrow()
        path = (stream.schema.metadata or {})[b"fastflight.path"].decode()
        return Answer(table.num_rows, table.nbytes, path)


def _alone(source: Source[Any], request: Any, run: int, is_small: bool) -> Iterator[dict[str, Any]]:
    """Iterate the source here."""
    functions = source.functions()
    began = time.perf_counter()
    if functions.read is not None:
        lots: Iterator[list[Any]] = functions.read(request).all_lots()
        size = sum(batch.nbytes for lot in lots for batch in lot)
    else:
        size = asyncio.run(_aread(functions.aread, request))
    seconds = time.perf_counter() - began
    rate = 1 / seconds if is_small else size / MIB / seconds
    yield {"clients": 1, "mode": "alone", "run": run, "unit": UNITS[is_small], "rate": rate, "bytes": size, "error": ""}


async def _aread(aread: Any, request: Any) -> int:
    return sum([batch.nbytes async for lot in (await aread(request)).all_lots() for batch in lot])


def _calls(
    loaders: Loaders, location: str, ticket: bytes, first: Answer, clients: int, options: Options
) -> dict[str, Any]:
    seconds = QUICK_SECONDS if options.quick else SECONDS
    calls = loaders.call(
        location, DO_GET, ticket, rows=first.rows, path=first.path, connections=clients, seconds=seconds
    )
    milliseconds = pd.Series(calls.latencies, dtype=float) * 1e3
    return {
        "rate": len(calls.latencies) / calls.seconds,
        "p50_ms": milliseconds.quantile(0.5),
        "p99_ms": milliseconds.quantile(0.99),
        "rows": first.rows,
        "bytes": first.bytes,
        "error": next(iter(calls.errors), ""),
    }


def _reads(
    loaders: Loaders, location: str, ticket: bytes, first: Answer, clients: int, options: Options
) -> dict[str, Any]:
    burst = loaders.read(location, ticket, clients)
    errors = [outcome.error for outcome in burst.outcomes if outcome.error]
    for answer in (outcome.answer for outcome in burst.outcomes if outcome.answer is not None):
        if (answer.rows, answer.path) != (first.rows, first.path):
            raise DataError(f"{answer.rows} rows arrived by {answer.path}, expected {first.rows} by {first.path}")
    return {
        "rate": burst.throughput_mbps,
        "p50_ms": median(outcome.latency_seconds for outcome in burst.outcomes) * 1e3,
        "first_batch_ms": median(outcome.first_batch_seconds for outcome in burst.outcomes) * 1e3,
        "rows": first.rows,
        "bytes": first.bytes,
        "error": errors[0] if errors else "",
    }


def _show(options: Options, medians: pd.DataFrame) -> None:
    table = report.table("Medians", ("clients", "mode", "rate", "unit", "p50 ms", "p99 ms", "first batch ms"))
    for row in medians.to_dict("records"):
        figures = (row["p50_ms"], row["p99_ms"], row["first_batch_ms"])
        shown = ("" if pd.isna(figure) else f"{figure:.3g}" for figure in figures)
        table.add_row(str(row["clients"]), row["mode"], f"{row['rate']:.0f}", row["unit"], *shown)
    options.console.print(table)
