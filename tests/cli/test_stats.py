"""`stats`: what a server does, for a person and for a script; and whether it is ready, over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from click.testing import Result
from rich.console import Console

from fastflight.cli.stats import metrics_of, render
from fastflight.client import FastFlightClient
from fastflight.errors import ProtocolError
from fastflight.runtime.metrics import DEFINITIONS
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight_benchmark.mock import Mock
from tests.support.servers import serving
from tests.support.waiting import until

Run = Callable[..., Result]


def test_all_figures_are_told_as_json(run: Run, location: str) -> None:
    with FastFlightClient(location) as client:
        list(client.read_request(Mock(total_rows=10)))
    figures = json.loads(run("stats", "--json").stdout)["figures"]
    assert set(figures) <= set(DEFINITIONS)
    (rows,) = (value for labels, value in figures["fastflight_rows_total"] if labels == {"source": "mock"})
    assert rows >= 10
    assert figures["fastflight_device_open"] == [[{"device": "demo"}, 1]]


def test_a_person_sees_limits_streams_devices_and_loops(run: Run) -> None:
    run("ls", "demo")
    said = run("stats").stdout
    for heading in ("limit ", "streams ", "devices ", "event loops "):
        assert any(line.startswith(heading) for line in said.splitlines()), heading
    assert "of memory" in said.splitlines()[0]
    assert "device.listing" in said and "demo" in said and "shard-0" in said


def drawn(answer: Mapping[str, Any], metrics: Mapping[str, Any] = {}, width: int = 120) -> str:
    """What a person sees of an answer."""
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(render("grpc://127.0.0.1:8815", answer, metrics))
    return captured.get()


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_a_terminal(run: Run, width: int) -> None:
    answer = json.loads(run("stats", "--json").stdout)
    shown = drawn(answer, metrics_of(answer), width)
    assert "…" not in shown
    assert all(len(line) <= width for line in shown.splitlines())


def test_each_output_of_a_device_is_a_row() -> None:
    output = {"device": "demo", "output": "mqtt://broker.local:1883"}
    outcomes = [("sent", 1234), ("refused", 2), ("misfit", 3)]
    figures = {
        "fastflight_publish_failing": [[output, 1]],
        "fastflight_publish_rows_total": [[{**output, "outcome": outcome}, count] for outcome, count in outcomes],
        "fastflight_publish_waiting": [[output, 45]],
        "fastflight_publish_lost_total": [[output, 6]],
    }
    shown = drawn({"threads": {"all": 3}, "figures": figures}, width=80)
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("demo"))
    assert row == ["demo", "mqtt://broker.local:1883", "failing", "1,234", "5", "45", "6"]


def test_clients_that_the_server_did_not_wait_for_are_counted_once_there_are_any() -> None:
    assert "ended:" not in drawn({"threads": {"all": 3}, "figures": {}})
    overdue = [[{"client": "reader"}, 2], [{"client": "writer"}, 0]]
    cut = {"fastflight_overdue_total": overdue, "fastflight_connections_cut_total": [[{}, 1]]}
    assert "ended: 2 stalled readers, 1 connections cut\n" in drawn({"threads": {"all": 3}, "figures": cut})


def test_a_server_that_drains_is_alive_and_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({}, http=("127.0.0.1", 0)) as running:

        def asked(path: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"{running.http}{path}") as answer:
                    return answer.status, str(json.loads(answer.read())["status"])
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, str(json.loads(error.read())["what"])

        assert asked("/health") == asked("/health/ready") == (200, "serving")
        monkeypatch.setattr(StreamRegistry, "state", property(lambda _: "overloaded"))
        # Answers are cached for a moment.
        until(lambda: (200, "serving") not in (asked("/health"), asked("/health/ready")))
        assert asked("/health") == (200, "overloaded")
        assert asked("/health/ready") == (503, "the server is overloaded")
        with FastFlightClient(running.location) as client:
            assert client.health() == {"status": "overloaded"}


@pytest.mark.parametrize("label", [5, "\ud800"])
def test_labels_that_are_no_text_are_not_understood(label: object) -> None:
    told = {"threads": {"all": 5}, "figures": {"fastflight_limit": [[{"limit": label}, 5]]}}
    with pytest.raises(ProtocolError, match="the answer with the server's metrics is not understood"):
        render("grpc://127.0.0.1:1", told, {})
