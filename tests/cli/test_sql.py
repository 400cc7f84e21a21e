"""`fastflight sql`: a table on a terminal, CSV in a pipe, JSON lines, files, and a query from standard input."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.app.overlay import read_config
from fastflight.cli.main import app
from fastflight.client import FastFlightClient, IncompleteWarning
from tests.support.printing_board import HOST, BufferingBoard
from tests.support.servers import FREE_PORT, serving

if sys.platform != "win32":
    from tests.support.terminal import terminal

QUERY = 'select temperature as t, time from demo."readings.csv" order by time limit 2'


@pytest.fixture(scope="module")
def location() -> Iterator[str]:
    with serving() as server, FastFlightClient(server.location) as client:
        client.sql(QUERY).to_arrow()  # starts what stays
        yield server.location


@pytest.fixture
def sql(location: str) -> Callable[..., Result]:
    def run(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(app, ["sql", *arguments], env={"FASTFLIGHT_SERVER": location}, input=input)

    return run


def test_rows_go_to_a_pipe_as_csv_or_json_and_to_a_file_by_its_ending(
    sql: Callable[..., Result], tmp_path: Path
) -> None:
    assert sql(QUERY).stdout.splitlines()[:2] == ["t,time", "17.86,2026-03-01T00:00:00.000000Z"]
    assert [json.loads(line)["t"] for line in sql("--json", input=QUERY).stdout.splitlines()] == [17.86, 18.1]
    file = tmp_path / "out.parquet"
    assert sql(QUERY, "-o", str(file)).stdout.startswith(f"{file}: ")
    assert pq.read_table(file)["t"].to_pylist() == [17.86, 18.1]
    said = json.loads(sql(QUERY, "-o", str(file), "--json").stdout)
    assert (said["output"], said["rows"]) == (str(file), 2)
    assert sql("select ?::int + ?::int as n", "-v", "40", "-v", "2").stdout == "n\n42\n"


def test_tables_that_are_not_listed_are_told_on_standard_error_and_to_python() -> None:
    said = "the files of demo are not listed ("
    with BufferingBoard() as board, serving({"demo": f"socket://{HOST}:{board.port}"}) as server:
        shown = CliRunner().invoke(app, ["sql", "show tables"], env={"FASTFLIGHT_SERVER": server.location})
        assert shown.exit_code == 0 and shown.stdout.startswith("schema,name") and said in shown.stderr
        with FastFlightClient(server.location) as client, pytest.warns(IncompleteWarning, match=re.escape(said)):
            client.sql("from fastflight.files").to_arrow()


FLEET = """
[devices.yard]
url = "sim:?files={folder}&telemetry=0"

[devices.yard.files]
"/log-*.csv" = {{ delimiter = "|", decimal = ",", skip_rows = 1, null_values = ["9999"] }}
"/typed.csv" = {{ schema = {{ n = "int64" }} }}
"""


def test_the_settings_of_a_device_say_how_its_files_are_written(tmp_path: Path) -> None:
    board = tmp_path / "board"
    board.mkdir()
    (board / "log-1.csv").write_text("logger 7\ntime|celsius\n1|21,5\n2|9999\n3|22,5\n")
    (board / "typed.csv").write_text("n\n1\ntwo\n3\n")
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(FLEET.format(folder=board))
    with open_server(read_config(FREE_PORT, [], fleet)) as server:

        def sql(query: str) -> Result:
            return CliRunner().invoke(app, ["sql", query], env={"FASTFLIGHT_SERVER": server.location})

        found = sql('select avg(celsius) as mean, count(*) as rows from yard."log-1.csv"')
        assert (found.stdout, found.stderr) == ("mean,rows\n22.0,3\n", "")
        assert sql('select typeof(celsius) as t from yard."log-1.csv" limit 1').stdout == "t\nDOUBLE\n"
        typed = sql('select sum(n) as n from yard."typed.csv"')
        assert typed.stdout == "n\n4\n"
        assert "values that do not fit became null: 1 in n" in typed.stderr


def test_what_is_wrong_is_said_with_an_exit_code(sql: Callable[..., Result]) -> None:
    refused = sql("delete from demo.x")
    assert refused.exit_code == 1 and "SQL only reads" in refused.stderr and refused.stdout == ""
    empty = sql(input="\n")
    assert empty.exit_code == 2 and "there is no query" in empty.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of POSIX")
def test_a_terminal_shows_a_table(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FASTFLIGHT_SERVER", location), ("TERM", "dumb"), ("COLUMNS", "120")):
        monkeypatch.setenv(name, value)
    with terminal() as ended:
        app(["sql", "select n from range(60) t(n)"], standalone_mode=False)
        shown = ended()
    lines = [line.strip() for line in shown.splitlines()]
    assert "60 rows, 1 column" in shown
    assert {"0", "39", "...", "59"} <= set(lines) and "45" not in lines
