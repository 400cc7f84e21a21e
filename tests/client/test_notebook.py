"""What clients show in a notebook: their devices, a bar for a long read, a moving plot."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from fastflight import AsyncFastFlightClient, DeviceFile, FastFlightClient, FleetFile
from fastflight.client import live, notebook
from fastflight.client.live import LivePlot, Numbers
from fastflight.client.notebook import BAR_AFTER_SECONDS, MAX_LISTED, Bar, client_html
from fastflight.errors import RequestError, TransportClosed, UnknownName
from fastflight.gap import Gap
from fastflight.sources.session_rows import BYTES_SCHEMA
from tests.support.servers import serving

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def client() -> Iterator[FastFlightClient]:
    with serving() as running, FastFlightClient(running.location) as client:
        client.info("demo")
        yield client


class Connection:
    """Answers for a server with these devices."""

    location = "grpc://127.0.0.1:8815"

    def __init__(self, *names: str) -> None:
        self._names = names

    def results(self, *_: object) -> list[dict[str, Any]]:
        return [{"name": name, "url": f"sim:{name}", "open": True, "holder": name} for name in self._names]


class Stream:
    """A session of a device that prints `pieces`: text, one chunk each second; a note; or the error that ends it."""

    summary = {"ended": "limit reached"}

    def __init__(self, *pieces: str | dict[str, Any] | Exception) -> None:
        self._pieces = pieces
        self.cancelled = False

    def pieces(self) -> Iterator[tuple[pa.RecordBatch, dict[str, Any] | None]]:
        for seq, piece in enumerate(self._pieces):
            if isinstance(piece, Exception):
                raise piece
            time = BEGAN + timedelta(seconds=seq)
            rows = [(seq, time, "rx", piece.encode())] if isinstance(piece, str) else []
            columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(BYTES_SCHEMA)]
            yield pa.record_batch(columns, schema=BYTES_SCHEMA), piece if isinstance(piece, dict) else None

    def cancel(self) -> None:
        self.cancelled = True


def plotted(stream: Stream, columns: list[str] | None = None, window: float = 60) -> Numbers:
    numbers = Numbers("demo", stream, columns, window)  # type: ignore[arg-type]
    numbers.read()
    return numbers


def test_a_client_shows_its_devices_and_what_to_type_next(client: FastFlightClient) -> None:
    shown = client._repr_html_()
    assert client.location in shown
    assert ">demo</td>" in shown and ">sim:</td>" in shown
    assert "<code>client.live(&#x27;demo&#x27;)</code>" in shown


def test_an_asynchronous_client_says_where_to_wait(client: FastFlightClient) -> None:
    async def shown() -> str:
        async with AsyncFastFlightClient(client.location) as asynchronous:
            return asynchronous._repr_html_()

    assert "(await client.read(&#x27;demo&#x27;" in asyncio.run(shown())


def test_what_to_type_next_can_be_typed(client: FastFlightClient) -> None:
    for code, _ in notebook.NEXT:
        here = code.replace("{device}", "'demo'").replace("/FILE", "/readings")
        assert eval(here, {"client": client}) is not None


def test_names_of_devices_are_text_in_html() -> None:
    shown = client_html(Connection("<script>alert(1)</script>", "a'\"\u202eb\x1b[2J\n"))  # type: ignore[arg-type]
    assert "<script" not in shown and "\u202e" not in shown and "\x1b" not in shown
    assert "&lt;script&gt;" in shown


def test_a_fleet_is_listed_in_part() -> None:
    shown = client_html(Connection(*(f"board-{n}" for n in range(300))))  # type: ignore[arg-type]
    assert shown.count(">sim:board-") == MAX_LISTED and "and 280 more" in shown


def test_a_server_without_devices_says_how_to_add_one() -> None:
    shown = client_html(Connection())  # type: ignore[arg-type]
    assert "No devices." in shown and "client.add_device(" in shown


def test_a_client_says_that_its_server_is_away() -> None:
    with FastFlightClient("grpc://127.0.0.1:1") as client:
        assert "no server answers" in client._repr_html_()
    assert "closed" in client._repr_html_()


def test_a_client_does_not_wait_for_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "DEVICES_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with FastFlightClient(f"grpc://127.0.0.1:{silent.getsockname()[1]}") as client:
            assert "did not answer in time" in client._repr_html_()


def test_a_bar_is_shown_for_a_read_that_takes_a_while() -> None:
    now, shown = [0.0], []
    bar = Bar(lambda content: shown.append(content["text/html"]), lambda: now[0])
    bar.report(1, 10, 100)
    assert not shown
    now[0] = BAR_AFTER_SECONDS
    bar.report(2, 20, 100)
    bar.report(3, 30, 100)  # too soon to draw again
    bar.end(complete=True)
    assert ['max="100" value="20"' in shown[0], 'max="1" value="1"' in shown[1]] == [True, True]
    assert "0.0 kB of 0.1 kB" in shown[0] and len(shown) == 2


def test_a_bar_says_that_a_read_was_stopped() -> None:
    now, shown = [0.0], []
    bar = Bar(lambda content: shown.append(content["text/plain"]), lambda: now[0])
    now[0] = BAR_AFTER_SECONDS
    bar.report(2, 20, None)
    bar.end(complete=False)
    assert shown[-1] == "stopped after 2 rows, 0.0 kB in 1 s"


READS: dict[str, Callable[[FastFlightClient], object]] = {
    "rows": lambda client: client.read("demo", "/events.jsonl").to_pandas(),
    "for another library": lambda client: pl.DataFrame(client.read("demo", "/events.jsonl")),
    "lazily": lambda client: client.scan(DeviceFile(device="demo", path="/events.jsonl")).collect(),
    "in parallel": lambda client: client.read_parallel(FleetFile(path="/events.jsonl")).to_arrow(),
}


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[notebook.Content]:
    """What a notebook displays, with a bar for each read."""
    displayed: list[notebook.Content] = []
    monkeypatch.setattr(notebook, "BAR_AFTER_SECONDS", 0)
    monkeypatch.setattr(notebook, "is_notebook", lambda: True)
    monkeypatch.setattr(notebook, "new_display", lambda: displayed.append)
    return displayed


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_each_way_to_read_has_a_bar(
    client: FastFlightClient,
    displayed: list[notebook.Content],
    read: Callable[[FastFlightClient], object],
) -> None:
    read(client)
    assert displayed[-1]["text/plain"].startswith("500 rows, ")


def test_a_copied_file_has_a_bar(client: FastFlightClient, displayed: list[notebook.Content], tmp_path: Path) -> None:
    client.get_file("demo", "/events.jsonl", tmp_path / "events.jsonl")
    assert displayed[-1]["text/plain"].startswith("41.0 kB of 41.0 kB in ")


def test_a_caller_with_a_progress_callback_gets_no_bar(
    client: FastFlightClient, displayed: list[notebook.Content]
) -> None:
    seen: list[int] = []
    client.read("demo", "/events.jsonl", progress=lambda rows, size, total: seen.append(rows)).to_arrow()
    assert seen[-1] == 500 and not displayed


def test_a_short_read_shows_no_bar() -> None:
    shown: list[object] = []
    Bar(shown.append).end(complete=True)
    assert not shown


def test_a_plot_has_a_picture_of_what_a_device_prints(client: FastFlightClient) -> None:
    pictures: list[notebook.Content] = []
    client.live("demo", seconds=0.5).draw(pictures.append, every=0.1)
    assert b64decode(pictures[-1]["image/png"]).startswith(b"\x89PNG")
    assert pictures[-1]["text/plain"].startswith("demo: ") and pictures[-1]["text/plain"].endswith("limit reached")


def test_other_tasks_run_while_an_awaited_plot_is_drawn(
    client: FastFlightClient, displayed: list[notebook.Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "is_notebook", lambda: True)
    monkeypatch.setattr(live, "new_display", lambda: displayed.append)

    async def main() -> None:
        async with AsyncFastFlightClient(client.location) as fastflight:
            plot = asyncio.ensure_future(fastflight.live("demo", seconds=None))
            while not displayed:
                await fastflight.devices()
            plot.cancel()
            with pytest.raises(asyncio.CancelledError):
                await plot

    asyncio.run(main())
    assert displayed[-1]["text/plain"].endswith("stopped")


def test_times_are_not_drawn() -> None:
    numbers = plotted(Stream("\n", '{"ms": 1, "celsius": 2}\n', '{"ms": 2, "celsius": 3}\n'))
    assert numbers.drawn() == ["celsius"]
    assert numbers.series("celsius")[1] == [2.0, 3.0]


def test_columns_can_be_chosen() -> None:
    assert plotted(Stream("\n", '{"ms": 1, "celsius": 2}\n'), ["ms"]).drawn() == ["ms"]


@pytest.mark.parametrize("note", [{"gap": Gap(2, 3).details()}, {"gap": Gap(2, 1, "line lost").details()}])
def test_a_gap_is_a_gap_in_the_line(note: dict[str, Any]) -> None:
    values = plotted(Stream("\n1\n", note, "\n4\n")).series("value")[1]
    assert [values[0], values[2]] == [1.0, 4.0] and math.isnan(values[1])


def test_a_line_that_a_gap_cuts_is_no_number() -> None:
    assert plotted(Stream("99\n1\n12", {"gap": Gap(2, 3).details()}, "34\n5\n")).series("value")[1][::2] == [1, 5]


def test_a_plot_shows_the_newest_part() -> None:
    assert plotted(Stream("\n0\n", "1\n", "2\n", "3\n"), window=1.5).series("value")[1] == [2, 3]


def test_columns_of_different_lines_are_both_lines() -> None:
    numbers = plotted(Stream("\n", '{"a": 1}\n', '{"b": 2}\n', '{"a": 3}\n'))
    assert numbers.series("a")[1] == [1, 3] and numbers.series("b")[1] == [2]


@pytest.mark.parametrize("name", ["$\\frac{$", "\x1b[2J", "温度", "x" * 1000])
def test_any_name_can_be_drawn(name: str) -> None:
    numbers = plotted(Stream("\n" + json.dumps({name: 1}) + "\n"))
    assert numbers.picture()["image/png"]


@pytest.mark.parametrize("printed", ["", "\n>>> $\\frac{$\n"])
def test_without_numbers_the_picture_says_so(printed: str) -> None:
    assert plotted(Stream(printed)).picture()["image/png"]


def test_an_interrupt_ends_a_plot() -> None:
    stream, shown = Stream("\n1\n"), []

    def show(content: notebook.Content) -> None:
        shown.append(content)
        if len(shown) == 1:
            raise KeyboardInterrupt

    stream.pieces = endless(stream)  # type: ignore[method-assign]
    LivePlot(lambda: nullcontext(stream), "demo", None, 60).draw(show, every=0)  # type: ignore[arg-type, return-value]
    assert stream.cancelled and len(shown) == 2


def endless(stream: Stream) -> Any:
    def pieces() -> Iterator[tuple[pa.RecordBatch, None]]:
        while not stream.cancelled:
            yield pa.RecordBatch.from_pylist([], BYTES_SCHEMA), None

    return pieces


def test_an_error_is_raised_after_the_last_picture() -> None:
    stream, shown = Stream("\n1\n", TransportClosed("the server went away")), []
    with pytest.raises(TransportClosed):
        LivePlot(lambda: nullcontext(stream), "demo", None, 60).draw(shown.append)  # type: ignore[arg-type, return-value]
    assert shown[-1]["text/plain"].endswith("failed")


def test_a_plot_of_no_device_and_of_no_list(client: FastFlightClient) -> None:
    with pytest.raises(UnknownName):
        client.live("nothing").draw(lambda content: None)
    with pytest.raises(RequestError, match="columns: must be a list of str"):
        client.live("demo", "celsius")
