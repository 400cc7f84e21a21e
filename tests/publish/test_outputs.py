"""Rows of a server reach real outputs: mosquitto, InfluxDB 1, and a receiver that decodes OTLP."""

from __future__ import annotations

import asyncio
import getpass
import json
import math
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pyarrow as pa
import pytest

from fastflight.app.config import RecordingSettings
from fastflight.app.local_cluster import free_ports
from fastflight.client import FastFlightClient
from fastflight.publish import RowFormat, open_output, parse_output
from fastflight.publish.output import Output, Refusal
from fastflight.publish.rows import PLACE, TEXT
from fastflight.sources import RowLayout
from tests.publish.outputs import (
    BOARD,
    ROWS,
    Collector,
    collecting,
    influxdb,
    plotjuggler,
    publishing,
    started,
    states,
)
from tests.support.servers import config, serving
from tests.support.waiting import until

DAY_SECONDS = 86_400.0


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


def published(messages: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(payload) for topic, payload in list(messages) if topic == "fastflight/demo/rows"]


def test_every_row_arrives_although_the_broker_and_the_server_start_again(mosquitto: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    # A broker that keeps what it has acknowledged. As root it becomes a user who may not write to this folder.
    (tmp_path / "broker.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser {getpass.getuser()}\n"
        f"persistence true\npersistence_location {tmp_path}/\nmax_queued_messages 0\n"
    )
    broker = [mosquitto, "-c", str(tmp_path / "broker.conf")]
    settings = {
        "outputs": publishing(f"mqtt://127.0.0.1:{port}?discovery=homeassistant"),
        "recordings": RecordingSettings(folder=tmp_path / "kept", sync_ms=20),
        "record": ["demo"],
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
            kept = client.recording("demo", format="jsonl", schema={"ms": "int64", "temperature": "double"}).to_arrow()
            wanted = {(row["seq"], row["ms"]) for row in kept.to_pylist()}
            until(lambda: wanted <= {(row["seq"], row["ms"]) for row in published(messages)})


async def send(output: Output, rows: pa.RecordBatch) -> Refusal | None:
    await output.open()
    try:
        return await output.send(output.encode(rows))
    finally:
        await output.aclose()


def test_numbers_that_json_does_not_have_and_truth_values_reach_a_broker(mosquitto: str) -> None:
    (port,) = free_ports(1)
    rows = RowFormat(RowLayout("csv", {"celsius": "double", "open": "bool"}), {"celsius": "°C"})
    url = f"mqtt://127.0.0.1:{port}?discovery=homeassistant"
    with ExitStack() as stack:
        board = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(started([mosquitto, "-p", str(port)], port))
        messages = stack.enter_context(subscribed(port))
        devices = {"demo": f"socket://127.0.0.1:{board.getsockname()[1]}"}
        client = stack.enter_context(
            FastFlightClient(stack.enter_context(serving(devices, outputs=publishing(url, rows))).location)
        )
        line = stack.enter_context(board.accept()[0])
        line.sendall(b"\nnan,true\ninf,false\n1.5,true\n")
        until(lambda: len(published(messages)) == 3)
        assert [(row["celsius"], row["open"]) for row in published(messages)] == [
            (None, True), (None, False), (1.5, True)
        ]  # fmt: skip
        until(lambda: states(client)["sent"] == 3)  # a subscriber may have a row before its publisher has the answer
        assert (states(client)["refused"], states(client)["failing"]) == (0, 0)
        configs = {topic: json.loads(payload) for topic, payload in messages if topic.startswith("homeassistant/")}
        door = configs["homeassistant/binary_sensor/fastflight_demo/open/config"]
        assert (door["payload_on"], door["payload_off"], "state_class" in door) == ("True", "False", False)
        celsius = configs["homeassistant/sensor/fastflight_demo/celsius/config"]
        assert (celsius["state_class"], "payload_on" in celsius) == ("measurement", False)


def test_messages_that_a_broker_never_takes_are_refused(mosquitto: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "topics").write_text("topic write fastflight/+/status\ntopic write fastflight/allowed/rows\n")
    (tmp_path / "broker.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser {getpass.getuser()}\nacl_file {tmp_path}/topics\n"
        "max_packet_size 500\nmax_inflight_messages 5\n"
    )
    texts = [f"{number:3}" for number in range(30)] + ["long" * 200]
    rows = [{"seq": 1, "line": line, "text": text} for line, text in enumerate(texts)]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([*PLACE, *TEXT]))
    with started([mosquitto, "-c", str(tmp_path / "broker.conf")], port):
        address = parse_output(f"mqtt://127.0.0.1:{port}")
        refusal = asyncio.run(send(open_output("allowed", address, RowFormat()), batch))
        assert refusal is not None and refusal.rows == 1 and "takes at most 46" in refusal.reason
        refusal = asyncio.run(send(open_output("denied", address, RowFormat()), batch))
        assert refusal is not None and refusal.rows == 31 and "fastflight/denied/rows" in refusal.reason


def test_rows_reach_influxdb(influxd: str, tmp_path: Path) -> None:
    with influxdb(influxd, tmp_path) as (port, query):
        url = f"influx://127.0.0.1:{port}?db=boards"
        with serving(BOARD, outputs=publishing(url)) as server, FastFlightClient(server.location) as client:
            until(lambda: states(client)["failing"] == 1 and states(client)["sent"] == 0)  # no database yet
            query("create database boards")
            until(lambda: states(client)["sent"] > 10)
            values = query("select ms, temperature from demo")["series"][0]["values"]
            assert len(values) >= 10 and all(isinstance(ms, int) for _, ms, _ in values)
            assert len({time for time, *_ in values}) == len(values)


def test_influxdb_says_which_rows_it_left_out(influxd: str, tmp_path: Path) -> None:
    schema = pa.schema([*PLACE, *ROWS.columns])
    # The first two have no known time, and the third is older than all that the database keeps.
    rows = [{"seq": 1, "line": line, "time": None, "ms": line} for line in range(2)]
    rows += [{"seq": 2, "line": 0, "time": 0, "ms": 2}, {"seq": 3, "line": 0, "time": None, "temperature": math.nan}]

    with influxdb(influxd, tmp_path) as (port, query):
        query("create database boards with duration 1h")
        output = open_output("demo", parse_output(f"influx://127.0.0.1:{port}?db=boards"), ROWS)
        refusal = asyncio.run(send(output, pa.RecordBatch.from_pylist(rows, schema)))
        assert refusal is not None and refusal.rows == 1 and "beyond retention" in refusal.reason
        assert [ms for _, ms in query("select ms from demo")["series"][0]["values"]] == [0, 1]


@pytest.mark.parametrize(
    ("statuses", "counted"),
    [([503, 401], lambda found: found["refused"] == 0), ([400], lambda found: found["refused"] > 0)],
    ids=["tried again", "refused for ever"],
)
def test_rows_reach_a_collector(statuses: list[int], counted: Callable[[dict[str, float]], bool]) -> None:
    with collecting(Collector(statuses)) as collector:
        with serving(BOARD, outputs=publishing(f"otlp://127.0.0.1:{collector.port}")) as server:
            with FastFlightClient(server.location) as client:
                until(lambda: len(collector.points) > 20)
                assert counted(states(client))
                (shown,) = client.devices()[0].publishing
                assert shown.startswith(f"otlp://127.0.0.1:{collector.port} publishing (")
        assert {(name, unit) for name, unit, _ in collector.points} == {("ms", ""), ("temperature", "°C")}
        point = collector.points[0][2]
        assert point.attributes[0].value.string_value == "demo" and point.time_unix_nano


def test_lines_are_log_records() -> None:
    with collecting(Collector()) as collector:
        with serving(BOARD, outputs=publishing(f"otlp://127.0.0.1:{collector.port}", RowFormat())):
            until(lambda: len(collector.logs) > 2)
    record = collector.logs[-1]
    assert '"temperature": ' in record.body.string_value and record.observed_time_unix_nano
    assert record.time_unix_nano and record.attributes[0].value.string_value == "demo" and not collector.points


def test_rows_reach_plotjuggler_also_after_it_was_closed() -> None:
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    with ExitStack() as stack:
        with plotjuggler(before) as port:
            server = stack.enter_context(serving(BOARD, outputs=publishing(f"plotjuggler://127.0.0.1:{port}")))
            client = stack.enter_context(FastFlightClient(server.location))
            until(lambda: len(before) > 5)
        until(lambda: states(client)["failing"] == 1)
        with plotjuggler(after, port):
            until(lambda: len(after) > 5)
    for messages in (before, after):
        times = [message.pop("timestamp") for message in messages]
        assert times == sorted(times) and abs(times[-1] - time.time()) < DAY_SECONDS
        assert all(message.keys() == {"demo"} for message in messages)
        assert all(message["demo"].keys() == {"ms", "temperature"} for message in messages)
    values = [message["demo"]["ms"] for message in (*before, *after)]
    assert values == sorted(values)


def test_a_row_without_a_time_is_no_point_of_a_plot() -> None:
    schema = pa.schema([*PLACE, pa.field("celsius", pa.float64()), pa.field("name", pa.string())])
    rows = [
        {"seq": 1, "line": 0, "time": None, "celsius": 1.0, "name": "a"},
        {"seq": 2, "line": 0, "time": 1_500_000, "celsius": math.nan, "name": 'b"\n'},
    ]
    messages: list[dict[str, Any]] = []
    with plotjuggler(messages) as port:
        output = open_output('lab "1"', parse_output(f"plotjuggler://127.0.0.1:{port}"), ROWS)
        refusal = asyncio.run(send(output, pa.RecordBatch.from_pylist(rows, schema)))
        until(lambda: bool(messages))
    assert refusal == Refusal(1, "their time is not known")
    assert messages == [{"timestamp": 1.5, 'lab "1"': {"celsius": None, "name": 'b"\n'}}]


def test_publishing_follows_the_fleet_file() -> None:
    settings = config(BOARD)
    with collecting(Collector()) as collector, serving(BOARD) as server:
        url = f"otlp://127.0.0.1:{collector.port}"
        server.served.apply(config(BOARD, outputs=publishing(url)))
        until(lambda: len(collector.points) > 4)
        server.served.apply(settings)
        with FastFlightClient(server.location) as client:
            assert not client.stats()["figures"].get("fastflight_publish_failing")
            server.served.apply(config(BOARD, outputs=publishing(url)))
            client.remove_device("demo")
            assert not client.stats()["figures"].get("fastflight_publish_failing")
