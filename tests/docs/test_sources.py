"""The page on own sources and the examples beside it do what they show."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import paho.mqtt.publish as publish
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastflight_benchmark
from fastflight import FastFlightClient, create_server
from fastflight.app.own_sources import load_sources
from fastflight.app.running import RunningServer
from fastflight.errors import DataError, RequestError
from tests.support.commands import FASTFLIGHT, Command
from tests.support.servers import FREE_PORT
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
BENCHMARK = Path(fastflight_benchmark.__file__).parent


def block(name: str) -> str:
    """Return the code after the comment `name` of the page, without its indentation."""
    _, _, rest = PAGE.partition(f"<!-- {name} -->")
    fence, _, rest = rest.partition("```python\n")
    indent = fence.rpartition("\n")[2]
    return "".join(line.removeprefix(indent) for line in rest.partition("```")[0].splitlines(keepends=True))


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks up annotations there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def in_benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in the folder that the page names."""
    monkeypatch.chdir(BENCHMARK)
    monkeypatch.syspath_prepend(str(BENCHMARK))
    yield
    sys.modules.pop("mock_data_service", None)


def test_the_first_example_is_the_file() -> None:
    text = (BENCHMARK / "mock_data_service.py").read_text(encoding="utf-8")
    assert block("mock-data-service") == text
    assert len(text.splitlines()) < 60


@pytest.mark.usefixtures("in_benchmark")
def test_numbers_are_served_and_read() -> None:
    out = io.StringIO()
    with (
        create_server(FREE_PORT, sources=load_sources(["mock_data_service:NUMBERS"])) as server,
        contextlib.redirect_stdout(out),
    ):
        exec(block("read-numbers").replace("grpc://127.0.0.1:8815", server.location), {})
        exec(block("create-server"), {})
    frame, location = out.getvalue().splitlines()
    assert frame == "(1000, 50)" and location.startswith("grpc://127.0.0.1:")


def test_the_command_that_serves_it() -> None:
    command = [*FASTFLIGHT, "serve", "--server", FREE_PORT]
    arguments = ["--source", "mock_data_service:NUMBERS"]
    with Command([*command, *arguments], cwd=BENCHMARK, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        said = serving.stdout.readline()
        serving.terminate()
    assert said.endswith("; devices: demo (sim:); sources: numbers\n")


def serving(*modules_and_names: Any, devices: dict[str, str] | None = None) -> RunningServer:
    return create_server(FREE_PORT, sources=modules_and_names, devices=devices)


def test_the_sqlite_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READINGS_DB", str(tmp_path / "readings.db"))
    module = example("sqlite_table")
    rows = pa.table({"day": ["2026-01-01", "2026-01-02", "2026-01-03"], "celsius": [1.5, None, 3.5]})
    with serving(module.READINGS) as server, FastFlightClient(server.location) as client:
        assert client.read_request(module.ReadingsRequest()).to_arrow().num_rows == 0
        assert client.write_request(module.ReadingsRequest(), rows).rows == 3
        assert client.read_request(module.ReadingsRequest(first="2026-01-02")).to_arrow() == rows.slice(1)


def test_the_parquet_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARQUET_FOLDER", str(tmp_path))
    for month in (1, 2):
        pq.write_table(pa.table({"month": [month] * 3, "eur": [1.0, 2.0, 3.0]}), tmp_path / f"{month}.parquet")
    module = example("parquet_folder")
    with serving(module.SALES) as server, FastFlightClient(server.location) as client:
        for table in (client.read_request(module.SalesRequest()), client.read_parallel(module.SalesRequest())):
            assert table.to_arrow().column("month").to_pylist() == [1, 1, 1, 2, 2, 2]
        one = client.read_request(module.SalesRequest(file="2.parquet", columns=("eur",))).to_arrow()
        assert one == pa.table({"eur": [1.0, 2.0, 3.0]})
        for wrong in ({"file": "3.parquet"}, {"columns": ("usd",)}):
            with pytest.raises(RequestError, match="no such"):
                client.read_request(module.SalesRequest(**wrong))


def test_the_mqtt_topic(mosquitto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "broker.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    monkeypatch.setenv("MQTT_BROKER", f"127.0.0.1:{port}")
    module = example("mqtt_topic")
    with subprocess.Popen([mosquitto, "-c", str(tmp_path / "broker.conf")], stderr=subprocess.DEVNULL) as broker:
        try:
            until(lambda: answers(port))
            for number in (1, 2):  # kept by the broker for those that subscribe later
                publish.single(f"lab/{number}", str(number), qos=1, retain=True, hostname="127.0.0.1", port=port)
            with serving(module.MESSAGES) as server, FastFlightClient(server.location) as client:
                got = client.read_request(module.MessagesRequest(topic="lab/#", limit=2)).to_arrow()
        finally:
            broker.terminate()
    assert sorted(zip(got["topic"].to_pylist(), got["payload"].to_pylist(), strict=True)) == [
        ("lab/1", b"1"),
        ("lab/2", b"2"),
    ]


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_the_boards_own_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("board_format")
    content = b"".join(
        (b"T\x04" + struct.pack("<f", 21.5), b"E\x04door", b"T\x04" + struct.pack("<f", 22.0)),
    )
    (tmp_path / "log.rec").write_bytes(content)
    with serving(module.BOARD_LOG, devices={"demo": "sim:"}) as server:
        monkeypatch.setenv("FASTFLIGHT_SERVER", server.location)
        with FastFlightClient() as client:
            client.put_file("demo", "/log.rec", tmp_path / "log.rec")
            assert client.read_request(module.BoardLogRequest(device="demo")).to_arrow().to_pydict() == {
                "offset": [0, 6, 12],
                "celsius": [21.5, None, 22.0],
                "event": [None, "door", None],
            }
            (tmp_path / "log.rec").write_bytes(content[:-1])
            client.put_file("demo", "/cut.rec", tmp_path / "log.rec")
            with pytest.raises(DataError, match="offset 12: the last record is cut off"):
                client.read_request(module.BoardLogRequest(device="demo", path="/cut.rec")).to_arrow()
