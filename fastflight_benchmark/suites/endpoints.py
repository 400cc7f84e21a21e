"""Suite `endpoints`: how much faster a flight is when its parts are read at the same time.

The source of the table takes 10 us for a row. The table is read through `read_parallel`: as one endpoint; as four that
are read at once, in order and in order of arrival; and as 32 of which four are read at once, in order. One server
serves all, and the ways to read take turns within a run. The limit of a way is the number of endpoints that are open at
once. The suite counts the rows and checks the path that served them.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fastflight import Mock
from fastflight.client import FastFlightClient
from fastflight.errors import DataError, FastFlightError
from fastflight_benchmark import output, report
from fastflight_benchmark.contenders import MODES, Mode
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers.running import FREE_PORT, SERVER
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.table import WrongPath, expected_bytes

# Seconds that the source takes for a row, much more than everything else about a row.
DELAY = 1e-5
TOTAL_ROWS, QUICK_ROWS = 1_000_000, 100_000
# 10 ms of the source's time. A part is a number of whole batches. Larger batches could not be divided evenly among the
# 32 parts of a quick run.
ROWS_PER_BATCH = 1_000
COLUMNS = ["mode", "endpoints", "at_once", "ordered", "run", "seconds", "rows", "error"]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to read: the number of endpoints of the flight, and how many of them are read at the same time."""

    endpoints: int
    at_once: int
    ordered: bool


ONE = Way(1, 1, True)
# In order, four large parts wait for each other when the client's buffer for them is full. Small parts do not.
WAYS = (ONE, Way(4, 4, False), Way(4, 4, True), Way(32, 4, True))


def run(options: Options) -> int:
    """Measure, save and show. Return how many readings failed."""
    total = QUICK_ROWS if options.quick else TOTAL_ROWS
    scope = {"total_rows": total, "delay_per_row": DELAY, "rows_per_batch": ROWS_PER_BATCH}
    description = options.describe("endpoints", scope)
    work = list(itertools.product(range(1, options.runs + 1), MODES, WAYS))
    seconds = sum(total * DELAY / way.at_once for _, _, way in work)
    options.say(
        f"{len(work)} readings, about {report.duration(seconds)} in all; a server of its own, --server is not used"
    )
    with spawned(SERVER, "--server", FREE_PORT) as server, FastFlightClient(server.location) as client:
        for mode in MODES:  # the first request of a kind is slower, because it imports code
            client.read_request(Mock(mode=mode, total_rows=1)).to_arrow()
        rows = []
        for number, (run_number, mode, way) in enumerate(work, 1):
            with options.console.status(f"{number}/{len(work)}: {mode}, {way.endpoints} endpoints"):
                rows.append({"run": run_number} | reading(client, mode, way, total))
    raw = pd.DataFrame(rows, columns=COLUMNS)
    result = summary(raw)
    output.save(options.output, result, {"raw": raw}, description)
    show(options, result)
    failed = raw[raw["error"] != ""]
    report.show_end(options.console, description, failed["error"], options.output)
    return len(failed)


def reading(client: FastFlightClient, mode: Mode, way: Way, total: int) -> dict[str, Any]:
    """Read the table once. Return a row of `COLUMNS` without its run."""
    request = Mock(
        mode=mode, total_rows=total, rows_per_batch=ROWS_PER_BATCH, delay_per_row=DELAY, endpoints=way.endpoints
    )
    error, rows, size = "", 0, 0
    began = time.perf_counter()
    try:
        with client.read_parallel(request, parallel=way.at_once, ordered=way.ordered) as stream:
            for batch in stream:
                rows += batch.num_rows
                size += batch.nbytes
            if stream.path != mode:
                raise WrongPath(f"requested the path {mode!r}, answered on {stream.path!r}")
            if len(stream.summary["endpoints"]) != way.endpoints:
                raise DataError(f"{len(stream.summary['endpoints'])} endpoints arrived, expected {way.endpoints}")
        if (rows, size) != (total, expected_bytes(request)):
            raise DataError(
                f"{rows} rows and {size} bytes arrived, expected {total} rows and {expected_bytes(request)} bytes"
            )
    except FastFlightError as failure:
        error = str(failure)
    return {
        "mode": mode,
        "endpoints": way.endpoints,
        "at_once": way.at_once,
        "ordered": way.ordered,
        "seconds": time.perf_counter() - began,
        "rows": rows,
        "error": error,
    }


def summary(raw: pd.DataFrame) -> pd.DataFrame:
    """Return the median of each way, and its ratio to one endpoint in the same run."""
    good = raw[raw["error"] == ""]
    one = good[good["endpoints"] == ONE.endpoints].set_index(["mode", "run"])["seconds"]
    ratios = good.assign(
        times_one=[one.get((row.mode, row.run), float("nan")) / row.seconds for row in good.itertuples()]
    )
    keys = ["mode", "endpoints", "at_once", "ordered"]
    result = ratios.groupby(keys, as_index=False)[["seconds", "times_one"]].median()
    return result.assign(of_limit=result["times_one"] / result["at_once"])


def show(options: Options, result: pd.DataFrame) -> None:
    """Show a line for each way."""
    grid = report.table(
        "The table in parts, read at the same time: the median run against one endpoint of the same run",
        ("path", "endpoints", "at once", "rows", "seconds"),
        "times one",
        "of the limit",
    )
    for row in result.itertuples():
        grid.add_row(
            str(row.mode),
            str(row.endpoints),
            str(row.at_once),
            "in order" if row.ordered else "order of arrival",
            f"{row.seconds:.2f}",
            f"{row.times_one:.2f}",
            f"{row.of_limit:.0%}",
        )
    options.console.print(grid)
