"""Suite `sql`: queries over a recording, beside DuckDB on the same rows as Parquet, Quack, and `do_get`.

The suite writes a recording, compacts it, and starts a server that keeps it. The contenders take turns at each task,
and each answer is compared with the right one. DuckDB runs in this process, with as many threads as a query of the
server has, and reads a Parquet file of the same rows, in row groups and with the compression of the store's own files.
Quack, DuckDB's own remote protocol, has a server process for the same file, and a client process that takes the time.

Clients have tokens. The server reads recordings in another way for a client that may read only some of them, so the
aggregate is also measured with such a token.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq

from fastflight.errors import DataError
from fastflight.log import LOG_SCHEMA, Store, compact
from fastflight.sql.process import SqlLimits
from fastflight_benchmark.engine import LESS, WARM_UP, Bench, Contender, Figures, Measure, Suite
from fastflight_benchmark.peers import environment
from fastflight_benchmark.peers.environment import Missing
from fastflight_benchmark.peers.running import FREE_PORT, SERVER, add_token
from fastflight_benchmark.processes import Worker, spawned, spawned_by

NAME = "demo"
# Bytes of data in a row: a line of JSON from a sensor.
DATA_BYTES = 100
ROWS_PER_APPEND = 50_000
FETCHED_ROWS = 1_000_000
CLIENTS, QUERIES = 16, 4
# Small queries of one client, one after the other: this many are one measurement.
SMALL_QUERIES, SMALL_ROWS = 20, 100
AGGREGATE, FIRST, FETCH, AT_ONCE = "aggregate", "first row", "fetch", f"{CLIENTS} clients at once"
SMALL = f"{SMALL_QUERIES} small queries"
SQL, DO_GET, DUCKDB, ADBC, QUACK = "sql", "do_get", "DuckDB", "ADBC", "Quack"
RESTRICTED = "sql with one recording allowed"
QUACK_SCRIPT = str(Path(environment.__file__).with_name("quack.py"))
# The store's own files have the numbers of the rows, too.
COPY_SCHEMA = LOG_SCHEMA.append(pa.field("seq", pa.uint64()))
AUTHORIZATION = "adbc.flight.sql.authorization_header"


@dataclass(frozen=True, slots=True)
class Scope:
    """Rows of the recording."""

    rows: int


FULL, QUICK = Scope(10_000_000), Scope(200_000)


def run(bench: Bench) -> None:
    """Write the recording, and measure every task."""
    rows = bench.scope(FULL, QUICK).rows
    with tempfile.TemporaryDirectory(prefix="fastflight-sql-") as name:
        bench.say(f"writing a recording of {rows * DATA_BYTES / 1e6:,.0f} MB")
        folder, parquet, access = Path(name, "recordings"), Path(name, "rows.parquet"), Path(name, "tokens.json")
        write(folder, parquet, rows)
        tokens = {SQL: add_token(access, "all", "session:*"), RESTRICTED: add_token(access, "one", f"session:{NAME}")}
        files = ("--recordings", str(folder), "--tokens", str(access))
        with contextlib.ExitStack() as stack:
            started = spawned(SERVER, "--server", FREE_PORT, "--device", f"{NAME}=sim:", *files)
            server = stack.enter_context(started)
            quack = quack_client(bench, stack, parquet)
            tasks = stack.enter_context(contenders(server.location, tokens, parquet, rows, quack))
            for round_ in (WARM_UP, *bench.rounds()):  # the first one starts the processes of the queries
                for task, by in tasks.items():
                    bench.measure({"task": task}, by, [round_])


def quack_client(bench: Bench, stack: contextlib.ExitStack, parquet: Path) -> Worker | None:
    """Return a client of Quack beside its server, which end with `stack`. None if Quack is not available."""
    try:
        python = str(environment.quack(bench.say))
    except Missing as reason:
        bench.missing[QUACK] = str(reason)
        return None
    server = stack.enter_context(spawned_by([python, "-I", QUACK_SCRIPT, "serve", str(parquet)], QUACK))
    return stack.enter_context(Worker(QUACK_SCRIPT, "ask", server.location, command=(python, "-I")))


def write(folder: Path, parquet: Path, rows: int) -> None:
    """Write a compacted recording of `rows` rows of `DATA_BYTES`, a millisecond apart; and the same rows as Parquet."""
    random = np.random.default_rng(1)
    with Store(folder) as store, pq.ParquetWriter(parquet, COPY_SCHEMA, compression="zstd") as copy:
        log = store.open(NAME)
        direction = pa.array(["rx"] * ROWS_PER_APPEND)
        for first in range(0, rows, ROWS_PER_APPEND):
            count = min(ROWS_PER_APPEND, rows - first)
            data = random.integers(32, 127, count * DATA_BYTES, np.uint8).tobytes()
            times = pa.array(
                1_750_000_000_000_000 + np.arange(first, first + count) * 1000, LOG_SCHEMA.field("time").type
            )
            offsets = pa.py_buffer((np.arange(count + 1) * DATA_BYTES).astype(np.int32))
            lines = pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(data)])
            columns = [times, direction.slice(0, count), lines, pa.nulls(count, pa.string())]
            batch = pa.RecordBatch.from_arrays(columns, schema=LOG_SCHEMA)
            log.append(batch).result()
            numbers = pa.array(np.arange(first, first + count, dtype=np.uint64))
            copy.write_batch(pa.RecordBatch.from_arrays([*columns, numbers], schema=COPY_SCHEMA))
        compact(store, file_bytes=0, least=1)


@contextlib.contextmanager
def contenders(
    location: str, tokens: Mapping[str, str], parquet: Path, rows: int, quack: Worker | None
) -> Iterator[Mapping[str, Mapping[str, Contender]]]:
    """Yield the tasks, and for each the contenders: functions that time an answer."""
    headers = {contender: f"Bearer {token}" for contender, token in tokens.items()}
    calls = {
        contender: flight.FlightCallOptions(headers=[(b"authorization", header.encode())])
        for contender, header in headers.items()
    }
    aggregate = "select count(*) as n, sum(octet_length(data)) as bytes, max(epoch_us(time)) as last from {}"
    right = (rows, rows * DATA_BYTES, 1_750_000_000_000_000 + (rows - 1) * 1000)
    fetched = min(rows, FETCHED_ROWS)
    fetch = f"from demo.recording select data where seq < {fetched}"
    small = f"from demo.recording select sum(seq)::bigint as s where seq < {SMALL_ROWS}"
    smalls = SMALL_ROWS * (SMALL_ROWS - 1) // 2
    with (
        flight.connect(location) as client,
        adbc.connect(location, {AUTHORIZATION: headers[SQL]}, autocommit=True) as dbapi,
        duckdb.connect(config={"threads": str(SqlLimits().threads)}) as local,
    ):

        def read(contender: str = SQL, **request: Any) -> flight.FlightStreamReader:
            return client.do_get(flight.Ticket(json.dumps(request).encode()), calls[contender])

        def query(sql: str) -> pa.Table:
            return read(type="sql", query=sql).read_all()

        def total(contender: str) -> tuple[int, ...]:
            found = read(contender, type="sql", query=aggregate.format("demo.recording")).read_all()
            return tuple(found.to_pylist()[0].values())

        def by_adbc(sql: str) -> pa.Table:
            with dbapi.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetch_arrow_table()

        def by_quack(sql: str, times: int, right: object) -> Figures:
            assert quack is not None
            seconds, found, first = quack.ask([sql.replace("demo.recording", "recording"), times])
            if right not in (found, first):
                raise DataError(f"{found} rows with {first}, not {right}")
            return {"time": 1e3 * seconds}

        def first_row(**request: Any) -> int:
            reader = read(**request)
            while not (batch := reader.read_chunk().data).num_rows:
                pass
            reader.cancel()
            return int(batch.num_rows > 0)

        def one_of_many(number: int) -> bool:
            with flight.connect(location) as own:
                sql = f"from demo.recording select sum(seq) as s where seq < {number + 2}"
                ticket = flight.Ticket(json.dumps({"type": "sql", "query": sql}).encode())
                answers = [own.do_get(ticket, calls[SQL]).read_all()["s"][0].as_py() for _ in range(QUERIES)]
            return all(answer == number * (number + 3) // 2 + 1 for answer in answers)

        def many() -> list[bool]:
            with ThreadPoolExecutor(CLIENTS) as pool:
                return list(pool.map(one_of_many, range(CLIENTS)))

        yield {
            AGGREGATE: {
                SQL: expect(right, lambda: total(SQL)),
                RESTRICTED: expect(right, lambda: total(RESTRICTED)),
                DUCKDB: expect(right, lambda: local.execute(aggregate.format(f"'{parquet}'")).fetchall()[0]),
            },
            FIRST: {
                SQL: expect(1, lambda: first_row(type="sql", query="select * from demo.recording limit 10")),
                DO_GET: expect(1, lambda: first_row(type="recording", name=NAME)),
            },
            FETCH: {
                SQL: expect(fetched, lambda: query(fetch).num_rows),
                ADBC: expect(fetched, lambda: by_adbc(fetch).num_rows),
                QUACK: lambda: by_quack(fetch, 1, fetched),
                DO_GET: expect(
                    fetched,
                    lambda: read(type="recording", name=NAME, columns=["data"], to_seq=fetched - 1).read_all().num_rows,
                ),
            },
            SMALL: {
                SQL: expect(smalls, lambda: [query(small) for _ in range(SMALL_QUERIES)][-1]["s"][0].as_py()),
                ADBC: expect(smalls, lambda: [by_adbc(small) for _ in range(SMALL_QUERIES)][-1]["s"][0].as_py()),
                QUACK: lambda: by_quack(small, SMALL_QUERIES, str(smalls)),
            },
            AT_ONCE: {SQL: expect([True] * CLIENTS, many)},
        }


def expect(right: Any, answer: Callable[[], Any]) -> Contender:
    """Return a function that times an answer. It raises `DataError` unless the answer is `right`."""

    def timed() -> Figures:
        began = time.perf_counter()
        try:
            found = answer()
        except Exception as error:  # of any of three libraries: one failure among many measurements
            raise DataError(f"{type(error).__name__}: {error}"[:200]) from error
        seconds = time.perf_counter() - began
        if found != right:
            raise DataError(f"{found}, not {right}")
        return {"time": 1e3 * seconds}

    return timed


SUITE = Suite(
    name="sql",
    title="SQL over a recording",
    measures={"time": Measure("ms", LESS)},
    ours=(SQL, RESTRICTED, ADBC, DO_GET),
    references=(DUCKDB, QUACK, DO_GET),
    run=run,
)
