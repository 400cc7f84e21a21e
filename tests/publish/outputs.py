"""Outputs for tests: programs that listen on loopback, and a receiver that decodes OTLP."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from websockets.sync.server import ServerConnection, serve

from fastflight.app.local_cluster import free_ports
from fastflight.client import FastFlightClient
from fastflight.publish import OutputAddress, PublishSettings, RowFormat, parse_output
from fastflight.sources import RowLayout
from tests.support.waiting import until

BOARD = {"demo": "sim:?telemetry=50"}
ROWS = RowFormat(RowLayout("jsonl", {"ms": "int64", "temperature": "double"}), {"temperature": "°C"})


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


def publishing(output: str | OutputAddress, rows: RowFormat = ROWS) -> dict[str, PublishSettings]:
    """The settings of a server whose device `demo` publishes to one output."""
    address = parse_output(output) if isinstance(output, str) else output
    return {"demo": PublishSettings((address,), rows)}


def states(client: FastFlightClient) -> dict[str, float]:
    figures = client.stats()["figures"]
    found = {labels["outcome"]: value for labels, value in figures["fastflight_publish_rows_total"]}
    for name in ("failing", "lost_total"):
        found[name] = figures[f"fastflight_publish_{name}"][0][1]
    return found


@contextmanager
def influxdb(influxd: str, folder: Path, settings: str = "", ca: str = "") -> Iterator[tuple[int, Callable[..., Any]]]:
    """Run InfluxDB 1. Gives its port, and a function that runs a query. `settings` are lines for its section `http`."""
    port, rpc = free_ports(2)
    (folder / "influxdb.conf").write_text(
        f'bind-address = "127.0.0.1:{rpc}"\nreporting-disabled = true\n[meta]\ndir = "{folder}/meta"\n'
        f'[data]\ndir = "{folder}/data"\nwal-dir = "{folder}/wal"\n'
        f'[http]\nbind-address = "127.0.0.1:{port}"\n{settings}'
    )
    context = ssl.create_default_context(cafile=ca) if ca else None

    def query(text: str, **credentials: str) -> Any:
        data = urllib.parse.urlencode({"q": text, "db": "boards"}).encode()
        url = f"{'https' if ca else 'http'}://127.0.0.1:{port}/query?{urllib.parse.urlencode(credentials)}"
        with urllib.request.urlopen(url, data, context=context) as answer:
            return json.load(answer)["results"][0]

    with started([influxd, "-config", str(folder / "influxdb.conf")], port):
        yield port, query


@contextmanager
def plotjuggler(messages: list[dict[str, Any]], port: int = 0) -> Iterator[int]:
    """A WebSocket server that reads as PlotJuggler does: text messages, which are JSON. Gives its port."""

    def receive(connection: ServerConnection) -> None:
        for text in connection:
            assert isinstance(text, str)
            messages.append(json.loads(text))

    with serve(receive, "127.0.0.1", port, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.socket.getsockname()[1]
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Collector:
    """What a receiver of OTLP got, and the statuses of its next answers; then it answers 200."""

    statuses: list[int] = field(default_factory=list)
    # The answer's status while `statuses` is empty.
    status: int = 200
    requests: int = 0
    points: list[Any] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)
    port: int = 0
    # The value that the header Authorization must have; empty: any.
    authorization: str = ""

    def receive(self, path: str, content: bytes, authorization: str) -> int:
        """Take a request, and return the status of its answer."""
        self.requests += 1
        if self.authorization not in ("", authorization):
            return 401
        status = self.statuses.pop(0) if self.statuses else self.status
        if status != 200:
            return status
        if path == "/v1/logs":
            for each in ExportLogsServiceRequest.FromString(content).resource_logs:
                self.logs += each.scope_logs[0].log_records
            return 200
        for resource in ExportMetricsServiceRequest.FromString(content).resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                self.points += [(metric.name, metric.unit, point) for point in metric.gauge.data_points]
        return 200


@contextmanager
def collecting(collector: Collector, context: ssl.SSLContext | None = None) -> Iterator[Collector]:
    """Run `collector` as a server, with TLS if there is a `context`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            status = collector.receive(self.path, content, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = False

        def get_request(self) -> tuple[Any, Any]:
            connection, peer = super().get_request()
            if context is not None:
                # The handshake is done by the first read, in the thread of the connection.
                connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            return connection, peer

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that refuses the certificate is no problem of the server."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        collector.port = server.server_address[1]
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
