"""SQL by clients that we did not write: ADBC, pandas and Polars over it, JDBC, and what Grafana sends."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, issued
from fastflight.app.config import RecordingSettings
from fastflight.app.token_file import change
from fastflight.client import FastFlightClient
from fastflight.protocol.flight_sql import CommandStatementQuery, encode
from tests.docs.site_pages import DOCS, SERVER, blocks
from tests.support.servers import ready_server, serving
from tests.support.waiting import until

from .clients import JAVA, PATIENCE_SECONDS, ForeignClient, Step, missing

READINGS = 'demo."readings.csv"'
COLUMNS = ["time", "temperature", "humidity", "pressure", "battery"]
WRITES = "create is not allowed"


@pytest.fixture(scope="module", autouse=True)
def _adbc_has_run() -> None:
    """Let Go's runtime, in which ADBC's driver runs, take the descriptors that it keeps for the life of the process."""
    with adbc.connect("grpc+tcp://127.0.0.1:1", autocommit=True) as connection, connection.cursor() as cursor:
        with pytest.raises(adbc_driver_manager.Error):
            cursor.execute("select 1")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The location of a server that has answered a query: what it has opened for that stays open."""
    with ready_server() as location:
        with FastFlightClient(location) as client:
            client.sql(f"select count(*) from {READINGS}").to_arrow()
        yield location


@pytest.fixture
def connection(server: str) -> Iterator[adbc.Connection]:
    with adbc.connect(server, autocommit=True) as connection:
        yield connection


def test_adbc_reads_what_our_client_reads(connection: adbc.Connection, server: str) -> None:
    with connection.cursor() as cursor, FastFlightClient(server) as client:
        cursor.execute(f"select * from {READINGS}")
        table = cursor.fetch_arrow_table()
        assert table.num_rows == 10_000 and table.column_names == COLUMNS
        assert table.equals(client.read("demo", "/readings.csv").to_arrow())


def test_adbc_binds_parameters(connection: adbc.Connection) -> None:
    query = f"select count(*) from {READINGS} where time >= ? and temperature < ? and ? = 'x' and pressure > ?"
    with connection.cursor() as cursor:
        since = datetime(2026, 3, 1, 0, 1, tzinfo=UTC)
        cursor.execute(query, (since, 18.0, "x", Decimal("1000.5")))
        (some,) = cursor.fetchone()
        cursor.execute(query, (since, 18.0, "y", 1000))
        assert 0 < some < 10_000 and cursor.fetchone() == (0,)
        cursor.execute("select $1::int + 1 as a, $2::varchar as b", (41, None))
        assert cursor.fetchall() == [(42, None)]
        with pytest.raises(adbc_driver_manager.Error, match="the query has 1 parameters, not 2"):
            cursor.execute("select ?::int", (1, 2))


def test_adbc_lists_catalogs_tables_and_columns(connection: adbc.Connection) -> None:
    (catalog,) = connection.adbc_get_objects(depth="all", db_schema_filter="demo").read_all().to_pylist()
    (schema,) = catalog["catalog_db_schemas"]
    tables = {each["table_name"]: each["table_columns"] for each in schema["db_schema_tables"]}
    assert (catalog["catalog_name"], schema["db_schema_name"]) == ("server", "demo")
    assert {"readings.csv", "events.jsonl", "log.bin"} <= tables.keys()
    assert [each["column_name"] for each in tables["readings.csv"]] == COLUMNS
    assert connection.adbc_get_table_types() == ["SYSTEM TABLE", "TABLE"]
    assert connection.adbc_get_table_schema("readings.csv", db_schema_filter="demo").names == COLUMNS
    assert connection.adbc_get_info()["vendor_name"] == "fastflight"


def test_adbc_gets_errors_with_their_status_and_their_text(connection: adbc.Connection) -> None:
    with connection.cursor() as cursor:
        with pytest.raises(adbc_driver_manager.ProgrammingError, match=WRITES):
            cursor.execute("create table t (a int)")
        with pytest.raises(adbc_driver_manager.ProgrammingError, match="NOT_FOUND.*no such file"):
            cursor.execute("select * from demo.nothing")
        with pytest.raises(adbc_driver_manager.NotSupportedError):
            cursor.adbc_ingest("t", pa.table({"a": [1]}))
        cursor.execute("select 1")
        assert cursor.fetchall() == [(1,)]


def test_pandas_and_polars_read_a_query(connection: adbc.Connection) -> None:
    query = f"select time, temperature from {READINGS} order by time limit 3"
    frame = pd.read_sql(query, connection)
    assert list(frame.columns) == ["time", "temperature"] and len(frame) == 3
    assert pl.read_database(query, connection)["temperature"].to_list() == frame["temperature"].to_list()


def test_the_page_about_adbc_does_what_it_shows(server: str) -> None:
    for block in blocks((DOCS / "sql" / "adbc.md").read_text()):
        if block.language == "python" and block.comment != "not run":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(block.content.replace(SERVER, server), {})
            assert "temperature" in printed.getvalue()


def test_jdbc_queries_and_shows_what_database_tools_ask_for(server: str, tmp_path: Path) -> None:
    missing("jdbc")
    jdbc = ForeignClient("jdbc", f"{server.removeprefix('grpc://')}/?useEncryption=false", tmp_path)
    statement, prepared, again, typed, cast, none, catalogs, schemas, tables, columns, types, properties, refused = (
        jdbc.errand(
            Step("statement", f"select temperature, 'x' as s from {READINGS} limit 2"),
            Step("prepared", [f"select count(*) as n from {READINGS} where temperature < ? and ? = 'x'", 18, "x"]),
            Step("prepared", ["select 1 as one"]),
            Step(
                "prepared",
                [
                    f"from {READINGS} select count(*) where temperature between ? and ? and time >= ? limit ?",
                    *(17.5, 18, {"time": "2026-03-01T00:01:00.5Z"}, 2**40),
                ],
            ),
            Step(
                "prepared",
                ["select ?::int + 1, ?::double, ?::timestamptz", 41, 1.5, {"time": "2026-03-01T00:00:00.25Z"}],
            ),
            Step("prepared", [f"select count(*) from {READINGS} where temperature < ?", None]),
            Step("catalogs"),
            Step("schemas", ["%"]),
            Step("tables", ["demo", "read%"]),
            Step("columns", ["demo", "readings.csv"]),
            Step("types"),
            Step("properties"),
            Step("statement", "create table t (a int)"),
        )
    )
    assert statement == {"columns": ["temperature", "s"], "rows": [["17.86", "x"], ["18.1", "x"]]}
    assert 0 < int(prepared["rows"][0][0]) < 10_000
    with FastFlightClient(server) as client:
        (count,) = client.sql(
            f"from {READINGS} select count(*) as n where temperature between 17.5 and 18 "
            "and time >= '2026-03-01 00:01:00.5+00'"
        ).to_arrow()["n"]
    assert typed["rows"] == [[str(count)]] and int(typed["rows"][0][0])
    assert cast["rows"][0][:2] == ["42", "1.5"] and cast["rows"][0][2].startswith("2026-03-01 00:00:00.25")
    assert none["rows"] == [["0"]]
    assert again == {"columns": ["one"], "rows": [["1"]]}
    assert catalogs["rows"] == [["server"]] and catalogs["columns"] == ["TABLE_CAT"]
    assert schemas["rows"] == [["demo", "server"], ["fastflight", "server"], ["fleet", "server"]]
    assert [row[:4] for row in tables["rows"]] == [["server", "demo", "readings.csv", "TABLE"]]
    assert [row[3] for row in columns["rows"]] == COLUMNS
    assert types["rows"] == [["SYSTEM TABLE"], ["TABLE"]]
    assert properties["getDatabaseProductName"] == "fastflight" and properties["isReadOnly"] is True
    assert properties["getIdentifierQuoteString"] == '"' and properties["supportsUnionAll"] is True
    assert [name for name, value in properties.items() if isinstance(value, dict)] == []
    assert WRITES in refused["error"]


def test_the_java_of_the_page_runs(server: str, tmp_path: Path) -> None:
    missing("jdbc")
    (snippet,) = [block.content for block in blocks((DOCS / "sql/jdbc.md").read_text()) if block.language == "java"]
    address = server.removeprefix("grpc://")
    source = f"import java.sql.*; class Page {{ public static void main(String[] a) throws Exception {{ {snippet} }} }}"
    (tmp_path / "Page.java").write_text(source.replace("127.0.0.1:8815", address))
    done = subprocess.run(
        [*JAVA[:-1], tmp_path / "Page.java"], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("20")]
    assert lines and all(float(line[-1]) > 24 for line in lines)


def test_grafana_sends_one_statement_with_a_token_and_gets_one_endpoint(tmp_path: Path) -> None:
    """Its InfluxDB source in SQL mode: GetFlightInfo, then DoGet; `select 1` checks the health."""
    entry, token = issued("grafana", scopes(["read:demo"]), datetime.now(UTC))
    book = tmp_path / "tokens"
    change(book, lambda known: Book((*known.tokens, entry)))
    with serving(auth={"tokens": book}) as guarded, flight.connect(guarded.location) as client:
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
        (panel,) = (block for block in blocks((DOCS / "sql" / "grafana.md").read_text()) if block.language == "sql")
        # What Grafana makes of its macro.
        hours = "time >= '2026-03-01T00:00:00Z' AND time <= '2026-03-01T06:00:00Z'"
        for query, columns in (
            ("select 1", ["1"]),
            (f"select time, temperature from {READINGS}", COLUMNS[:2]),
            (panel.content.replace("$__timeFilter(time)", hours), COLUMNS[:2]),
        ):
            descriptor = flight.FlightDescriptor.for_command(encode(CommandStatementQuery(query)))
            (endpoint,) = client.get_flight_info(descriptor, options).endpoints
            table = client.do_get(endpoint.ticket, options).read_all()
            assert table.column_names == columns and table.num_rows
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.get_flight_info(descriptor)


# What Grafana makes of its macros and variables: the last hour, in points of a second.
EXPANDED = {
    "$__timeFilter(time)": "time >= '2000-01-01T00:00:00Z' AND time <= '2100-01-01T00:00:00Z'",
    "$__timeFilter(from_time)": "from_time >= '2000-01-01T00:00:00Z' AND from_time <= '2100-01-01T00:00:00Z'",
    "$__interval_ms": "1000",
    "${device:raw}": "demo",
    "${column:raw}": "temperature",
}
# Panels that show nothing of a board that works.
EMPTY = {"What is missing, and why", "Crashes"}


@pytest.mark.parametrize("name", ["board.json", "fleet.json"])
def test_grafanas_dashboards_find_their_tables_and_metrics(name: str, tmp_path: Path) -> None:
    text = (DOCS.parent / "examples" / "grafana" / name).read_text()
    for macro, expanded in EXPANDED.items():
        text = text.replace(macro, expanded)
    assert "$__" not in text
    board = json.loads(text)
    recordings = RecordingSettings(folder=tmp_path, sync_ms=20)
    with serving(recordings=recordings, record=["demo"], http=("127.0.0.1", 0)) as running:
        with (
            FastFlightClient(running.location) as client,
            adbc.connect(running.location, autocommit=True) as connection,
        ):
            until(lambda: any(recorded.rows > 20 for recorded in client.recordings()))
            for variable in board["templating"]["list"]:
                with connection.cursor() as cursor:
                    cursor.execute(variable["query"]["rawSql"])
                    found = cursor.fetch_arrow_table()
                assert found.num_columns == 1 and {"demo", "temperature"} & set(found.column(0).to_pylist())
            for panel in board["panels"]:
                for target in panel["targets"]:
                    if "rawSql" in target:
                        with connection.cursor() as cursor:
                            cursor.execute(target["rawSql"])
                            found = cursor.fetch_arrow_table()
                        assert found.num_rows or panel["title"] in EMPTY, panel["title"]
                        if target["format"] == "time_series":
                            assert pa.types.is_timestamp(found.schema.field("time").type)
        with urllib.request.urlopen(f"{running.http}/metrics", timeout=PATIENCE_SECONDS) as answer:
            known = set(re.findall(r"^# HELP (\w+)", answer.read().decode(), re.MULTILINE))
    used = set(re.findall(r"fastflight_\w+", " ".join(re.findall(r'"expr": (".*")', text))))
    assert used <= known and bool(used) == (name == "fleet.json")
