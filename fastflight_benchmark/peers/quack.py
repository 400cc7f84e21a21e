"""Rows of a Parquet file, served and queried by Quack, the remote protocol of DuckDB.

It runs in an environment of its own, which has DuckDB and its extensions but nothing of this project:
`quack.py serve PARQUET` serves the file as the table `recording`, and `quack.py ask LOCATION` reads queries as lines
of JSON, `[query, times]`. It runs each of them so often, one after the other, and answers with the seconds, the number
of rows and the first value.
"""

from __future__ import annotations

import json
import secrets
import socket
import sys
import time
from importlib.resources import files
from typing import Any

import duckdb

THREADS = 2


def connected() -> duckdb.DuckDBPyConnection:
    """Return a database with Quack, which needs DuckDB's HTTP client."""
    database = duckdb.connect(config={"threads": str(THREADS)})
    for name in ("httpfs", "quack"):
        folder = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
        database.execute(f"load '{folder / f'{name}.duckdb_extension'}'")
    return database


def serve(parquet: str) -> None:
    """Serve a file until the process ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        location = f"quack:127.0.0.1:{free.getsockname()[1]}"
    token = secrets.token_hex(16)
    with connected() as database:
        database.execute(f"create view recording as from read_parquet('{parquet}')")
        database.execute(f"call quack_serve('{location}', token := '{token}')")
        print(f"listening on {location}#{token}; rows by Quack", flush=True)
        while True:
            time.sleep(3600)


def ask(location: str) -> None:
    """Answer the queries on standard input."""
    address, _, token = location.partition("#")
    with connected() as database:
        for line in sys.stdin:
            query, times = json.loads(line)
            remote = f"from quack_query('{address}', $${query}$$, token := '{token}', disable_ssl := true)"
            began = time.perf_counter()
            answers = [database.execute(remote).to_arrow_table() for _ in range(times)]
            seconds = time.perf_counter() - began
            found: Any = answers[-1]
            print(json.dumps([seconds, found.num_rows, str(found[0][0])]), flush=True)


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]](sys.argv[2])
