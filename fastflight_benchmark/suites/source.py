"""`--source`: how fast a server serves the user's own source, compared with the source by itself.

A small answer is measured as in the suite `requests`: answers per second on a few connections. A larger one is measured
as in the suite `flight`: MiB/s of a few clients that read at the same time. `alone` is the source iterated in this
process without a server, which no server exceeds for one client. Both modes take turns; a source that has only one is
measured in that one. Each answer must have the rows and the path of the first one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from fastflight import Source
from fastflight.app.own_sources import load_sources
from fastflight.client import FastFlightClient
from fastflight.errors import DataError, RequestError
from fastflight.service import Catalog, encode, make_request
from fastflight_benchmark.contenders import MODES
from fastflight_benchmark.engine import LESS, MIB, MORE, Bench, Contender, Figures, Measure, Suite
from fastflight_benchmark.loading.calling import DO_GET
from fastflight_benchmark.loading.pool import Loaders
from fastflight_benchmark.loading.reading import Answer
from fastflight_benchmark.peers.running import FREE_PORT, SERVER
from fastflight_benchmark.processes import spawned

# Answers below this size are counted, larger ones are weighed.
SMALL_BYTES = 256 * 1024
CLIENTS, QUICK_CLIENTS = (1, 4, 16), (1, 4)
ROUNDS = 3
SECONDS, QUICK_SECONDS = 1.0, 0.3
ALONE = "alone"


def suite(name: str, keys: str) -> Suite:
    """Return the suite that measures the source MODULE:NAME with a request of these `keys` (JSON)."""
    return Suite(
        name="source",
        title="Your source behind a server, and alone",
        measures={
            "rate": Measure("answers/s", MORE),
            "throughput": Measure("MiB/s", MORE),
            "median": Measure("ms", LESS),
            "99 %": Measure("ms"),
            "first row": Measure("ms"),
        },
        ours=MODES,
        references=(ALONE,),
        run=partial(_run, name=name, keys=keys),
    )


def _run(bench: Bench, name: str, keys: str) -> None:
    source = next(each for each in reversed(load_sources([name])))
    request = _request(source, keys)
    bench.facts["request"] = json.loads(encode(request))
    with spawned(SERVER, "--server", FREE_PORT, "--source", name) as server, Loaders() as loaders:
        first = {mode: _read_once(server.location, request.model_copy(update={"mode": mode})) for mode in MODES}
        paths = {answer.path: mode for mode, answer in first.items()}
        is_small = all(answer.bytes < SMALL_BYTES for answer in first.values())
        bench.say(f"{source.name} at {server.location}: {first[MODES[0]].rows} rows, {' and '.join(paths)}")
        rounds = bench.rounds(1 if bench.quick else ROUNDS)
        seconds = QUICK_SECONDS if bench.quick else SECONDS
        for round_, clients in itertools.product(rounds, QUICK_CLIENTS if bench.quick else CLIENTS):
            contenders: dict[str, Contender] = {}
            for path, mode in paths.items():
                ticket = encode(request.model_copy(update={"mode": mode}))
                contenders[path] = (
                    partial(_calls, loaders, server.location, ticket, first[mode], clients, seconds)
                    if is_small
                    else partial(_reads, loaders, server.location, ticket, first[mode], clients)
                )
            if clients == 1:
                contenders[ALONE] = partial(_alone, source, request, is_small)
            bench.measure({"clients": clients}, contenders, [round_])


def _request(source: Source[Any], keys: str) -> Any:
    catalog = Catalog()
    catalog.add(source)
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


def _alone(source: Source[Any], request: Any, is_small: bool) -> Figures:
    """Iterate the source here."""
    began = time.perf_counter()
    if source.read is not None:
        reading: Iterable[list[Any]] = source.read(request)
        size = sum(batch.nbytes for batches in reading for batch in batches)
    else:
        size = asyncio.run(_aread(source.aread, request))
    seconds = time.perf_counter() - began
    return {"rate": 1 / seconds} if is_small else {"throughput": size / MIB / seconds}


async def _aread(aread: Any, request: Any) -> int:
    return sum([batch.nbytes async for batches in await aread(request) for batch in batches])


def _calls(loaders: Loaders, location: str, ticket: bytes, first: Answer, clients: int, seconds: float) -> Figures:
    calls = loaders.call(
        location, DO_GET, ticket, rows=first.rows, path=first.path, connections=clients, seconds=seconds
    )
    if calls.errors:
        raise DataError(calls.errors.most_common(1)[0][0], where="an answer of the source")
    p50, p99 = np.percentile(1e3 * np.asarray(calls.latencies), (50, 99))
    return {"rate": len(calls.latencies) / calls.seconds, "median": float(p50), "99_%": float(p99)}


def _reads(loaders: Loaders, location: str, ticket: bytes, first: Answer, clients: int) -> Figures:
    burst = loaders.read(location, ticket, clients)
    for outcome in burst.outcomes:
        found = outcome.correct.rows, outcome.correct.path
        if found != (first.rows, first.path):
            raise DataError(f"{found[0]} rows arrived by {found[1]}, expected {first.rows} by {first.path}")
    return {
        "throughput": burst.throughput_mbps,
        "median": 1e3 * median(outcome.latency_seconds for outcome in burst.outcomes),
        "first_row": 1e3 * median(outcome.first_batch_seconds for outcome in burst.outcomes),
    }
