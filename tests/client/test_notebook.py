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


@pytest.mark.parametrize(
    ("names", "shown", "hidden"),
    [
        ([], ["No devices.", "client.add_device("], []),
        ([f"board-{n}" for n in range(300)], [f"board-{MAX_LISTED - 1}<", "and 280 more"], [f"board-{MAX_LISTED}<"]),
        (["<script>alert(1)</script>", "a'\"\u202eb\x1b[2J\n"], ["&lt;script&gt;"], ["<script", "\u202e", "\x1b"]),
    ],
    ids=["none", "a fleet", "hostile names"],
)
def test_devices_are_listed_in_part_and_as_text(names: list[str], shown: list[str], hidden: list[str]) -> None:
    html = client_html(Connection(*names))  # type: ignore[arg-type]
    assert all(text in html for text in shown) and not any(text in html for text in hidden)


def test_a_client_says_that_its_server_is_away() -> None:
    with FastFlightClient("grpc://127.0.0.1:1") as client:
        assert "no server answers" in client._repr_html_()
    assert "closed" in client._repr_html_()


def test_a_client_does_not_wait_for_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "DEVICES_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with FastFlightClient(f"grpc://127.0.0.1:{silent.getsockname()[1]}") as client:
            assert "did not answer in time" in client._repr_html_()


def bar(shown: list[notebook.Content], now: list[float]) -> Bar:
    return Bar(shown.append, lambda: now[0])


def test_a_bar_is_shown_for_a_read_that_takes_a_while() -> None:
    shown, now = [], [0.0]
    reading = bar(shown, now)
    reading.report(1, 10, 100)
    assert not shown
    now[0] = BAR_AFTER_SECONDS
    reading.report(2, 20, 100)
    reading.report(3, 30, 100)  # too soon to draw again
    reading.end(complete=True)
    first, last = (content["text/html"] for content in shown)
    assert 'max="100" value="20"' in first and "0.0 kB of 0.1 kB" in first
    assert 'max="1" value="1"' in last


def test_a_bar_says_that_a_read_was_stopped_and_a_short_one_has_none() -> None:
    shown, now = [], [0.0]
    bar(shown, now).end(complete=True)
    assert not shown
    stopped = bar(shown, now)
    now[0] = BAR_AFTER_SECONDS
    stopped.report(2, 20, None)
    stopped.end(complete=False)
    assert shown[-1]["text/plain"] == "stopped after 2 rows, 0.0 kB in 1 s"


READS: dict[str, Callable[[FastFlightClient], object]] = {
    "rows": lambda client: client.read("demo", "/events.jsonl").to_pandas(),
    "for another library": lambda client: pl.DataFrame(client.read("demo", "/events.jsonl")),
    "lazily": lambda client: client.scan(DeviceFile(device="demo", path="/events.jsonl")).collect(),
    "in parallel": lambda client: client.read_parallel(FleetFile(path="/events.jsonl")).to_arrow(),
    "a copy": lambda client: client.get_file("demo", "/events.jsonl", "events.jsonl"),
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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    read(client)
    assert displayed[-1]["text/plain"].startswith(("500 rows, ", "41.0 kB of 41.0 kB in "))


def test_a_caller_with_a_progress_callback_gets_no_bar(
    client: FastFlightClient, displayed: list[notebook.Content]
) -> None:
    seen: list[int] = []
    client.read("demo", "/events.jsonl", progress=lambda rows, size, total: seen.append(rows)).to_arrow()
    assert seen[-1] == 500 and not displayed


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


def test_all_columns_but_times_are_drawn_unless_some_are_chosen() -> None:
    printed = Stream("\n", '{"ms": 1, "celsius": 2}\n', '{"ms": 2, "celsius": 3}\n')
    numbers = plotted(printed)
    assert (numbers.drawn(), numbers.series("celsius")[1]) == (["celsius"], [2.0, 3.0])
    assert plotted(printed, ["ms"]).drawn() == ["ms"]


@pytest.mark.parametrize("gap", [Gap(2, 3), Gap(2, 1, "line lost")], ids=str)
def test_a_gap_is_a_gap_in_the_line(gap: Gap) -> None:
    values = plotted(Stream("\n1\n", {"gap": gap.details()}, "\n4\n")).series("value")[1]
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
    assert plotted(Stream("\n" + json.dumps({name: 1}) + "\n")).picture()["image/png"]
    assert plotted(Stream(f"\n{name}\n")).picture()["image/png"]  # without numbers


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
