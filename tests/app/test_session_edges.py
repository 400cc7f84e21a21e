"""Rows of sessions and recordings at every edge of a server, compared with the oracle (`session_oracle`).

Every request is drawn, always the same ones. The rows do not depend on the edge, on `mode`, or on the size of batches.
"""

from __future__ import annotations

import json
import socket
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fastflight.app.config import RecordingSettings
from fastflight.app.running import RunningServer
from fastflight.cli.main import app
from fastflight.gap import Gap
from fastflight.log import Store
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import log_batch
from tests.support.servers import serving
from tests.support.session_oracle import (
    FORMATS,
    SCHEMA,
    Item,
    as_stored,
    as_times,
    begins_line,
    check,
    expected,
    part,
    ranges,
    told_items,
    traffic,
    with_gaps,
)
from tests.support.waiting import until

SOON = 30.0
# `tests/sources` has far more of them. Here it is enough to see that each edge passes on all bounds and rows.
RECORDINGS = 2
REQUESTS = 5
T = TypeVar("T")


def drawn(strategy: st.SearchStrategy[T], count: int, label: str) -> list[T]:
    """Draw values, always the same ones for a label."""
    found: list[T] = []

    @seed(zlib.crc32(label.encode()))
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found


def longest(strategy: st.SearchStrategy[list[Chunk | Gap]], count: int, label: str) -> list[list[Chunk | Gap]]:
    """Draw some traffic, and return that with the most text."""
    return sorted(drawn(strategy, 5 * count, label), key=lambda items: len(str(items)))[-count:]


@dataclass
class Edges:
    """A server with recordings of drawn traffic, and one device that says what the test has it say."""

    running: RunningServer
    folder: Path
    recordings: Mapping[str, Sequence[Chunk | Gap]]
    line: socket.socket

    def flight(self, request: dict[str, Any]) -> list[Item]:
        with flight.connect(self.running.location) as client:
            reader = client.do_get(flight.Ticket(json.dumps(request)))
            items: list[Item] = []
            for message in reader:
                note = json.loads(message.app_metadata.to_pybytes()) if message.app_metadata else {}
                items += told_items(note, message.data)
            return items

    def sync_flight(self, request: dict[str, Any]) -> list[Item]:
        return self.flight({**request, "mode": "sync"})

    def by_http(self, request: dict[str, Any]) -> list[Item]:
        return self._post("/stream", json.dumps(request))

    def by_command(self, request: dict[str, Any]) -> list[Item]:
        file = self.folder / "saved.arrow"
        options = [request["name"], "--server", self.running.location, "-o", str(file), "--format", request["format"]]
        if "schema" in request:
            options += ["--schema", ",".join(f"{name}={kind}" for name, kind in SCHEMA.items())]
        if request.get("limit_rows"):
            options += ["-n", str(request["limit_rows"])]
        for bound in ("from", "to"):
            for key in (f"{bound}_seq", f"{bound}_time"):
                if key in request:
                    options += [f"--{bound}", str(request[key])]
        result = CliRunner().invoke(app, ["replay", *options])
        assert result.exit_code == 0, result.output
        return told_items({}, pa.ipc.open_stream(file.read_bytes()).read_all())

    def by_sql(self, request: dict[str, Any]) -> list[Item]:
        wheres = [
            f"seq {sign} {request[key]}" for key, sign in (("from_seq", ">="), ("to_seq", "<=")) if key in request
        ]
        wheres += [
            f"time {sign} '{request[key]}'" for key, sign in (("from_time", ">="), ("to_time", "<")) if key in request
        ]
        where = f"where {' and '.join(wheres)}" if wheres else ""
        limit = f"limit {request['limit_rows']}" if "limit_rows" in request else ""
        query = f"select * from {request['name']}.recording {where} order by seq {limit}"
        return self._post("/sql", query)

    def _post(self, path: str, content: str) -> list[Item]:
        with urllib.request.urlopen(f"{self.running.http}{path}?format=arrow", content.encode(), SOON) as answer:
            return told_items({}, pa.ipc.open_stream(answer.read()).read_all())


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edges]:
    folder = tmp_path_factory.mktemp("recordings")
    recordings: dict[str, list[Chunk | Gap]] = {}
    with Store(folder, sync_ms=0) as store:
        for format in FORMATS:
            for number, items in enumerate(longest(traffic(format, recorded=True).map(as_stored), RECORDINGS, format)):
                name = f"{format}{number}"
                recordings[name] = items = with_gaps(items)
                log = store.open(name)
                for before, chunk in pairwise([None, *items]):
                    if isinstance(chunk, Chunk):
                        cuts = {chunk.seq: chunk.cut} if chunk.cut else {}
                        gap = before if isinstance(before, Gap) else None
                        log.append(log_batch([chunk], cuts), first=chunk.seq, gap=gap).result()
    with ExitStack() as parts:
        listener = parts.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(SOON)
        settings = RecordingSettings(folder=folder)
        devices = {"demo": f"socket://127.0.0.1:{listener.getsockname()[1]}"}
        running = parts.enter_context(serving(devices, http=("127.0.0.1", 0), recordings=settings, record=["demo"]))
        line, _ = listener.accept()  # the recorder has opened it
        parts.callback(line.close)
        edges = Edges(running, folder, recordings, line)
        edges.by_sql(
            {"name": next(iter(recordings))}
        )  # the process of queries stays: no leak of the test that is first
        yield edges


def requested(format: str) -> dict[str, Any]:
    return {"format": format, **({"schema": SCHEMA} if format in ("jsonl", "csv") else {})}


KEYS = st.fixed_dictionaries({"batch_rows": st.integers(1, 4)}, optional={"limit_rows": st.integers(0, 12)})

Ask = Callable[[Edges, dict[str, Any]], list[Item]]


@pytest.mark.parametrize(
    ("ask", "notes", "formats"),
    [
        pytest.param(Edges.flight, True, FORMATS, id="flight"),
        pytest.param(Edges.sync_flight, True, FORMATS, id="flight, sync"),
        pytest.param(Edges.by_http, False, FORMATS, id="http"),
        pytest.param(Edges.by_command, False, FORMATS, id="command line"),
        pytest.param(Edges.by_sql, False, ("bytes",), id="sql"),
    ],
)
def test_a_recording_has_the_rows_of_its_traffic(edges: Edges, ask: Ask, notes: bool, formats: Sequence[str]) -> None:
    checked = 0
    for format in formats:
        for number in range(RECORDINGS):
            items = edges.recordings[name := f"{format}{number}"]
            for keys, bounds in drawn(st.tuples(KEYS, ranges(items)), REQUESTS, name):
                if (
                    ask is Edges.by_sql
                    and {"from_us", "to_us"} & bounds.keys()
                    and any(chunk.waited for chunk in items if isinstance(chunk, Chunk))
                ):
                    continue  # SQL compares the time that it shows, and that of such rows is not known
                if ask is Edges.by_command and keys.get("limit_rows") == 0:
                    continue  # the option has no 0
                wanted = part(items, **bounds)
                first = next((item.seq for item in wanted if isinstance(item, Chunk)), 0)
                answer = expected(wanted, format, begins_line=begins_line(items, first))
                request = {"type": "recording", "name": name, **requested(format), **keys, **as_times(bounds)}
                got = ask(edges, request)
                check(got, answer if notes else answer.rows_only(), keys.get("limit_rows"))
                checked += 1
    assert checked >= len(formats) * RECORDINGS * REQUESTS // 2


@pytest.mark.parametrize(
    "ask", [Edges.flight, Edges.sync_flight, Edges.by_http], ids=["flight", "flight, sync", "http"]
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_session_has_the_rows_of_its_traffic(edges: Edges, ask: Ask, format: str) -> None:
    """What the device says is read as chunks that nobody chooses: the answer in `bytes` shows them."""
    live = {"type": "device.session", "device": "demo", "limit_seconds": 0}
    size = sum(len(chunk.data) for chunk in heard(edges, live))
    for text in longest(traffic(format, gaps=False), 1, format)[0]:
        if isinstance(text, Chunk) and text.data:
            edges.line.sendall(text.data)
            size += len(text.data)
            until(partial(has_said, edges, live, size))
    items = heard(edges, live)
    for keys, since in drawn(st.tuples(KEYS, st.none() | st.integers(0, len(items))), REQUESTS, format):
        place = {"since_seconds": 3600} if since is None else {"since_seq": since}
        answer = expected(items[since or 0 :], format, begins_line=begins_line(items, since or 0))
        got = ask(edges, {**live, **requested(format), **keys, **place})
        check(got, answer, keys.get("limit_rows"))


def has_said(edges: Edges, live: dict[str, Any], size: int) -> bool:
    return sum(len(chunk.data) for chunk in heard(edges, live)) == size


def heard(edges: Edges, live: dict[str, Any]) -> list[Chunk]:
    """The chunks of the device, from its first."""
    rows = edges.flight({**live, "since_seq": 0})
    return [
        Chunk(row["seq"], 1000 * (row["time"] or 0), row["direction"], row["data"], waited=row["time"] is None)
        for row in rows
    ]
