"""Rows of a server reach real outputs: mosquitto, InfluxDB 1, and a receiver that decodes OTLP."""

from __future__ import annotations

import getpass
import json
import socket
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fastflight.app.recording_settings import RecordingSettings
from fastflight.client import FastFlightClient
from fastflight.publish import PublishSettings, RowFormat, parse_output
from tests.support.servers import serving
from tests.support.waiting import until

BOARD = {"demo": "sim:?telemetry=50"}
ROWS = RowFormat("jsonl", {"ms": "int64", "temperature": "double"}, {"temperature": "°C"})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def started(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port))
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def subscribed(port: int, messages: list[tuple[str, Any]] | None = None) -> Iterator[list[tuple[str, Any]]]:
    """All messages of a broker: topic and payload. They are added to `messages`.

    The broker stores them for this subscriber while it is away.
    """
    messages = [] if messages is None else messages
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "reader", clean_session=False)  # type: ignore[attr-defined]
    client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
    client.on_message = lambda client, data, message: messages.append((message.topic, message.payload))
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield messages
    finally:
        client.disconnect()
        client.loop_stop()


def publishing(url: str, rows: RowFormat = ROWS) -> dict[str, PublishSettings]:
    return {"demo": PublishSettings((parse_output(url),), rows)}


def states(client: FastFlightClient) -> dict[str, float]:
    figures = client.stats()["figures"]
    found = {labels["outcome"]: value for labels, value in figures["fastflight_publish_rows_total"]}
    for name in ("failing", "lost_total"):
        found[name] = figures[f"fastflight_publish_{name}"][0][1]
    return found


def published(messages: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(payload) for topic, payload in list(messages) if topic == "fastflight/demo/rows"]


def test_every_row_arrives_although_the_broker_and_the_server_start_again(mosquitto: str, tmp_path: Path) -> None:
    port = free_port()
    # A broker that keeps what it has acknowledged. As root it becomes a user who may not write to this folder.
    (tmp_path / "broker.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser {getpass.getuser()}\n"
        f"persistence true\npersistence_location {tmp_path}/\nmax_queued_messages 0\n"
    )
    broker = [mosquitto, "-c", str(tmp_path / "broker.conf")]
    settings = {
        "publish": publishing(f"mqtt://127.0.0.1:{port}?discovery=homeassistant"),
        "recordings": RecordingSettings(tmp_path / "kept", ("demo",), sync_ms=20),
        "drain_seconds": 5.0,
    }
    messages: list[tuple[str, Any]] = []
    with serving(BOARD, **settings) as server, FastFlightClient(server.location) as client:
        # The broker is away at first.
        until(lambda: client.recordings()[0].rows > 5)
        for _ in range(2):
            with started(broker, port), subscribed(port, messages):
                seen = len(published(messages))
                until(lambda: len(published(messages)) > seen + 20)  # noqa: B023
                sensor = "homeassistant/sensor/fastflight_demo/temperature/config"
                config = next(json.loads(payload) for topic, payload in messages if topic == sensor)
                assert config["unit_of_measurement"] == "°C" and config["state_topic"] == "fastflight/demo/rows"
            before = client.recordings()[0].rows
            until(lambda: client.recordings()[0].rows > before + 5)  # noqa: B023
        assert states(client)["failing"] == 1 and states(client)["lost_total"] == 0
    with started(broker, port), subscribed(port, messages), serving(BOARD, **settings) as server:
        with FastFlightClient(server.location) as client:
            kept = client.recording("demo", format="jsonl", schema=dict(ROWS.schema or {})).to_arrow()
            wanted = {(row["seq"], row["ms"]) for row in kept.to_pylist()}
            until(lambda: wanted <= {(row["seq"], row["ms"]) for row in published(messages)})


def test_rows_reach_influxdb(influxd: str, tmp_path: Path) -> None:
    port, rpc = free_port(), free_port()
    config = tmp_path / "influxdb.conf"
    config.write_text(
        f'bind-address = "127.0.0.1:{rpc}"\nreporting-disabled = true\n[meta]\ndir = "{tmp_path}/meta"\n'
        f'[data]\ndir = "{tmp_path}/data"\nwal-dir = "{tmp_path}/wal"\n[http]\nbind-address = "127.0.0.1:{port}"\n'
    )

    def query(text: str) -> Any:
        data = urllib.parse.urlencode({"q": text, "db": "boards"}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/query", data) as answer:
            return json.load(answer)["results"][0]

    with started([influxd, "-config", str(config)], port):
        url = f"influx://127.0.0.1:{port}?db=boards"
        with serving(BOARD, publish=publishing(url)) as server, FastFlightClient(server.location) as client:
            until(lambda: states(client)["failing"] == 1 and states(client)["sent"] == 0)  # no database yet
            query("create database boards")
            until(lambda: states(client)["sent"] > 10)
            values = query("select ms, temperature from demo")["series"][0]["values"]
            assert len(values) >= 10 and all(isinstance(ms, int) for _, ms, _ in values)
            assert len({time for time, *_ in values}) == len(values)


class Collector(BaseHTTPRequestHandler):
    """Decodes OTLP; each answer's status is taken from `statuses`, then 200."""

    statuses: list[int]
    points: list[Any]

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            for resource in ExportMetricsServiceRequest.FromString(content).resource_metrics:
                for metric in resource.scope_metrics[0].metrics:
                    self.points += [(metric.name, metric.unit, point) for point in metric.gauge.data_points]
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def collecting(statuses: list[int]) -> Iterator[tuple[int, list[Any]]]:
    points: list[Any] = []
    handler = type("Bound", (Collector,), {"statuses": statuses, "points": points})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], points
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("statuses", "counted"),
    [([503, 401], lambda found: found["refused"] == 0), ([400], lambda found: found["refused"] > 0)],
    ids=["tried again", "refused for ever"],
)
def test_rows_reach_a_collector(statuses: list[int], counted: Callable[[dict[str, float]], bool]) -> None:
    with collecting(statuses) as (port, points):
        with serving(BOARD, publish=publishing(f"otlp://127.0.0.1:{port}")) as server:
            with FastFlightClient(server.location) as client:
                until(lambda: len(points) > 20)
                assert counted(states(client))
                (shown,) = client.devices()[0].publishing
                assert shown.startswith(f"otlp://127.0.0.1:{port} publishing (")
        assert {(name, unit) for name, unit, _ in points} == {("ms", ""), ("temperature", "°C")}
        assert points[0][2].attributes[0].value.string_value == "demo" and points[0][2].time_unix_nano


def test_publishing_follows_the_fleet_file() -> None:
    from dataclasses import replace

    from fastflight.app.settings import ServeSettings

    settings = ServeSettings("grpc://127.0.0.1:0", BOARD)
    with collecting([]) as (port, points), serving(BOARD) as server:
        server.served.apply(replace(settings, publish=publishing(f"otlp://127.0.0.1:{port}")))
        until(lambda: len(points) > 4)
        server.served.apply(settings)
        with FastFlightClient(server.location) as client:
            assert not client.stats()["figures"].get("fastflight_publish_failing")
            server.served.apply(replace(settings, publish=publishing(f"otlp://127.0.0.1:{port}")))
            client.remove_device("demo")
            assert not client.stats()["figures"].get("fastflight_publish_failing")
