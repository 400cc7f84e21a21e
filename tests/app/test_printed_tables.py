"""What boards print as tables, through a whole server: sessions, HTTP, SQL and the command line."""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from fastflight.errors import DataError, IncompleteWarning, RequestError
from fastflight.service.requests import LAYOUT_CHANGED
from tests.support.servers import config
from tests.support.waiting import SECONDS, until


class Board:
    """A TCP port that prints what a test says."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SECONDS)
        self._line: socket.socket | None = None
        self.url = f"socket://127.0.0.1:{self._listener.getsockname()[1]}"

    def says(self, *lines: str, end: str = "\n") -> None:
        if self._line is None:
            self._line, _ = self._listener.accept()
            self._line.sendall(b"\n")  # what comes first may have waited in the port, and so have no time
        self._line.sendall("".join(f"{line}{end}" for line in lines).encode())

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        self._listener.close()


class Lab:
    """A server with boards, and a client of it."""

    def __init__(self, boards: dict[str, Board], client: FastFlightClient, http: str) -> None:
        self.boards = boards
        self.client = client
        self.http = http

    def lines(self, device: str) -> list[str]:
        rows = self.client.session(device, format="lines", follow=False).to_arrow()
        return [text for text in rows["text"].to_pylist() if text]

    def printed(self, device: str, *lines: str) -> None:
        """Have a board print lines, and wait until the server has them."""
        self.boards[device].says(*lines)
        until(lambda: self.lines(device)[-len(lines) :] == [*lines])

    def sql(self, query: str) -> list[dict[str, Any]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncompleteWarning)  # the files of such boards cannot be listed
            rows: list[dict[str, Any]] = self.client.sql(query).to_arrow().to_pylist()
        return rows

    def values(self, device: str) -> list[dict[str, Any]]:
        """The rows in memory, without their places."""
        return self.client.live_table(device).drop_columns(["seq", "time"]).to_pylist()


@contextmanager
def lab(folder: Path, **tables: dict[str, Any]) -> Iterator[Lab]:
    """Boards with these keys of their entries."""
    with ExitStack() as parts:
        boards = {name: Board() for name in tables}
        devices = {name: {"url": boards[name].url, **keys} for name, keys in tables.items()}
        settings = config(devices, recordings={"folder": folder / "recordings"}, http=("127.0.0.1", 0))
        server = parts.enter_context(open_server(settings))
        for board in boards.values():
            parts.callback(board.close)
        assert server.http is not None
        yield Lab(boards, parts.enter_context(FastFlightClient(server.location)), server.http)


def test_rows_in_memory_without_a_recording_and_without_a_schema(tmp_path: Path) -> None:
    with lab(tmp_path, demo={}) as here:
        with pytest.raises(DataError, match="printed no whole line"):
            here.client.live_table("demo")
        here.printed("demo", '{"t": 20, "ok": true}', "noise", '{"t": 21.5}', '{"t": 22}')
        assert here.values("demo") == [{"t": 20, "ok": True}, {"t": 21.5, "ok": None}, {"t": 22, "ok": None}]
        assert here.client.live_table("demo", seconds=0).num_rows == 0
        with urlopen(f"{here.http}/devices/demo/rows?seconds=60&as=csv&columns=t,ok") as answer:
            assert answer.read().decode().splitlines() == ["t,ok", "20.0,true", "21.5,", "22.0,"]
        here.printed("demo", *["the program has ended"] * 30)
        with pytest.warns(IncompleteWarning, match="31 rows rejected"):
            assert [row["t"] for row in here.values("demo")] == [20, 21.5, 22]


def test_a_session_waits_for_lines_and_goes_on_with_new_columns(tmp_path: Path) -> None:
    with lab(tmp_path, demo={}) as here:
        here.printed("demo", "ready")

        def print_when_asked() -> None:
            until(lambda: here.client.stats()["open"])
            here.boards["demo"].says(*['{"t": 1}'] * 3)

        printing = threading.Thread(target=print_when_asked)
        printing.start()
        with here.client.session("demo", as_="rows", flush_ms=0) as stream:
            printing.join()
            assert stream.schema.names == ["seq", "time", "t"]
            here.boards["demo"].says('{"t": 2}', '{"t": 3, "p": 4}', '{"t": 5}')
            rows = [row for batch in stream for row in batch.to_pylist()]
        assert [row["t"] for row in rows] == [1, 1, 1, 2]
        ended = stream.summary
        assert (ended["ended"], ended["why"]) == (LAYOUT_CHANGED, "column p is new")
        with here.client.session("demo", as_="rows", since_seq=ended["next_seq"], limit_rows=2) as again:
            found = [(row["t"], row["p"]) for batch in again for row in batch.to_pylist()]
        assert set(found) <= {(2, None), (3, 4), (5, None)} and (3, 4) in found


def test_lines_that_are_no_table_are_refused_with_the_ways_out(tmp_path: Path) -> None:
    with lab(tmp_path, talk={}, text={"rows": {"format": "lines"}}) as here:
        here.printed("talk", *["hello, world"] * 20)
        with pytest.raises(RequestError, match=r"rows = \{ format.*read its lines"):
            here.client.session("talk", as_="rows")
        here.printed("text", *['{"t": 1}'] * 3)
        with pytest.raises(RequestError, match="are text"):
            here.client.session("text", as_="rows")
        with pytest.raises(RequestError, match="a layout of their own"):
            here.client.session("text", as_="rows", format="csv", schema={"t": "double"})


def test_a_layout_is_declared_once(tmp_path: Path) -> None:
    """Numbers without a header: only the entry knows the names. The line comes in pieces."""
    declared = {"format": "csv", "schema": {"ms": "int64", "celsius": "double"}, "delimiter": ";"}
    with lab(tmp_path, demo={"rows": declared}) as here:
        here.printed("demo", "1;2.5")
        here.boards["demo"].says("2;", end="")
        until(lambda: here.lines("demo")[-1] == "2;")
        here.boards["demo"].says("3.5")
        until(lambda: here.lines("demo")[-1] == "2;3.5")
        assert here.values("demo") == [{"ms": 1, "celsius": 2.5}, {"ms": 2, "celsius": 3.5}]


def test_tail_shows_columns_by_name_and_goes_on_when_they_change(tmp_path: Path) -> None:
    with lab(tmp_path, demo={}) as here:
        here.printed("demo", *['{"t": 1}'] * 3)
        found: list[Any] = []
        arguments = ["tail", "demo", "--as", "rows", "--since", "60", "-n", "5", "--server", here.client.location]
        tailing = threading.Thread(target=lambda: found.append(CliRunner().invoke(app, arguments)))
        tailing.start()
        until(lambda: here.client.stats()["open"])
        here.boards["demo"].says('{"t": 2.5}')
        until(lambda: found or here.boards["demo"].says('{"t": 3}'))
        tailing.join()
        (result,) = found
        assert result.exit_code == 0, result.output
        # Before it is the time, if that is known: what came while the line was opened has none.
        assert [line.split("  ")[-1] for line in result.stdout.splitlines()][:4] == ["t=1", "t=1", "t=1", "t=2.5"]
        assert "layout changed (column t is double, not int64): 3 rows" in result.stderr


def test_live_rows_and_lines_in_sql(tmp_path: Path) -> None:
    with lab(tmp_path, demo={}, talk={}) as here:
        here.printed("demo", '{"t": 20}', "noise", '{"t": 21.5}', '{"t": 22, "live": "x"}')
        here.printed("talk", "hello", "world")
        assert here.sql('select t, "live" from demo.live order by seq, t') == [
            {"t": 20, "live": None},
            {"t": 21.5, "live": None},
            {"t": 22, "live": "x"},
        ]
        assert here.sql("select text from demo.lines where text like 'n%'") == [{"text": "noise"}]
        assert here.sql("select count(*) as n from talk.lines where time > now() - interval '1 hour'") == [{"n": 3}]
        tables = {(row["schema"], row["name"]) for row in here.sql("show tables") if row["schema"] != "fastflight"}
        assert tables == {("demo", "live"), ("demo", "lines"), ("talk", "lines"), ("fleet", "live")}
        (explained,) = [row for row in here.sql("explain analyze from demo.live") if row["explain_key"] == "demo.live"]
        assert "rows: 3, rejected: 1" in explained["explain_value"]
        with pytest.raises(DataError, match="printed only 2 lines"):
            here.sql("from talk.live")


def test_lines_are_those_of_the_recording_if_there_is_one(tmp_path: Path) -> None:
    with lab(tmp_path, demo={"record": True}) as here:
        here.printed("demo", *['{"t": 1}'] * 3)
        query = "select (select count(*) from demo.rows) as r, (select count(*) from demo.lines) as l"
        until(lambda: here.sql(query) == [{"r": 3, "l": 4}])
        assert {"rows", "live", "lines"} <= {row["name"] for row in here.sql("show tables") if row["schema"] == "demo"}


def test_the_rows_of_all_boards_are_a_table_with_a_column_for_the_board(tmp_path: Path) -> None:
    with lab(tmp_path, **{"o'neil": {}, "b": {}, "quiet": {}, "talk": {}}) as here:
        here.printed("o'neil", *['{"Temp": 1, "device": "x"}'] * 3)
        here.printed("b", *['{"temp": 1.5, "flag": true}'] * 3)
        here.printed("talk", *["hello, all of you"] * 3)
        query = 'select distinct device, temp as t, device_2, flag from fleet.live order by "device"'
        assert here.sql(query) == [
            {"device": "b", "t": 1.5, "device_2": None, "flag": True},
            {"device": "o'neil", "t": 1, "device_2": "x", "flag": None},
        ]
        assert "boards: 2" in str(here.sql("explain analyze from fleet.live"))
        assert here.sql("select count(*) as n from fleet.rows") == [{"n": 0}]


def test_a_plot_shows_the_rows_until_its_column_is_gone(tmp_path: Path) -> None:
    with lab(tmp_path, demo={}) as here:
        here.printed("demo", *['{"t": 1}'] * 3)
        found: list[Any] = []
        path = tmp_path / "demo.png"
        arguments = ["plot", "demo", "--column", "t", "--since", "60", "--seconds", "600", "-o", str(path)]
        command = [*arguments, "--server", here.client.location]
        plotting = threading.Thread(target=lambda: found.append(CliRunner().invoke(app, command)))
        plotting.start()
        until(lambda: here.client.stats()["open"])
        here.boards["demo"].says('{"t": 2}', "1,2", "2,3", "3,4")
        plotting.join()
        assert found[0].exit_code == 0 and path.exists(), found[0].output
        assert "no column is named 't'" in found[0].stderr and "the plot shows the rows until then" in found[0].stderr
