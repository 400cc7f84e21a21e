"""A whole server in front of a board, asked with nothing but `pyarrow.flight`."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.server import FlightServer
from fastflight.service import Catalog
from fastflight.simulator import samples
from fastflight.sources import DeviceFiles, FileCache, device_actions, device_sources
from fastflight_benchmark import mock

# For waits that end as soon as something happens; reached only when it does not.
SOON = 60.0


@dataclass
class Got:
    """What a do_get gave: the rows, the schema's metadata, the trailer, and the error that ended it, if one did."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    schema: pa.Schema | None = None
    # Of a tree, what is said of its files among the rows.
    digests: list[str] = field(default_factory=list)
    trailer: dict[str, Any] | None = None
    error: Exception | None = None

    @property
    def table(self) -> pa.Table:
        assert self.schema is not None
        return pa.Table.from_batches(self.batches, self.schema).replace_schema_metadata(None)


@dataclass
class Put:
    """What a do_put was answered: the acknowledgements in order, and the error that ended it, if one did."""

    acks: list[dict[str, Any]] = field(default_factory=list)
    error: Exception | None = None

    @property
    def last(self) -> dict[str, Any]:
        return self.acks[-1]


class BoardServer:
    """A server with one device, named `demo`, and a plain client. `folder` holds the files of a simulated one."""

    def __init__(self, location: str, inventory: Inventory, folder: Path) -> None:
        self.location = location
        self.inventory = inventory
        self.folder = folder
        self.client = flight.connect(location)

    def get(self, **request: Any) -> Got:
        """Read all there is of a request; its failure is part of the answer."""
        got = Got()
        try:
            reader = self.client.do_get(ticket(**request))
            got.schema = reader.schema
            while True:
                chunk = reader.read_chunk()
                if chunk.data is not None and chunk.data.num_rows:
                    got.batches.append(chunk.data)
                if chunk.app_metadata is not None:
                    told = json.loads(chunk.app_metadata.to_pybytes())
                    assert got.trailer is None, "a message after the trailer"
                    got.digests += told.get("digests", [])
                    got.trailer = None if "digests" in told or "gap" in told else told
        except StopIteration:
            pass
        except (pa.ArrowException, KeyError) as error:
            got.error = error
        return got

    def table(self, **request: Any) -> pa.Table:
        """The rows of a request that must not fail."""
        got = self.get(**request)
        assert got.error is None, got.error
        return got.table

    def put(self, table: pa.Table, request: Mapping[str, Any], *, chunk: int | None = None) -> Put:
        """Write a table in batches of `chunk` rows, reading every acknowledgement."""
        put = Put()
        try:
            writer, reader = self.client.do_put(command(**request), table.schema)
            try:
                for batch in table.to_batches(max_chunksize=chunk):
                    writer.write_batch(batch)
                writer.done_writing()
                while (ack := reader.read()) is not None:
                    put.acks.append(json.loads(ack.to_pybytes()))
            finally:
                writer.close()
        except (pa.ArrowException, KeyError) as error:
            put.error = error
        return put

    def act(self, name: str, **body: Any) -> list[dict[str, Any]]:
        """The results of an action."""
        action = flight.Action(name, json.dumps(body).encode())
        return [json.loads(result.body.to_pybytes()) for result in self.client.do_action(action)]

    def exec(self, code: str) -> str:
        """What a piece of code prints."""
        return str(self.act("device.exec", device="demo", code=code)[0]["stdout"])


def ticket(**request: Any) -> flight.Ticket:
    return flight.Ticket(json.dumps(request).encode())


def command(**request: Any) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(request).encode())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def board_server(
    devices: Mapping[str, str], folder: Path, cache: FileCache | None = None, **limits: float
) -> Iterator[BoardServer]:
    """A server as the command line puts it together; without a `cache`, it keeps no files."""
    with ExitStack() as parts:
        shards = Shards(2)
        parts.callback(shards.close)
        inventory = parts.enter_context(Inventory(devices, shards=shards, **limits))
        parts.enter_context(shards)
        catalog = Catalog()
        for source in (*device_sources(inventory, device_files=DeviceFiles(inventory, cache)), mock.SOURCE):
            catalog.add(source)
        server = FlightServer(catalog, device_actions(inventory), shards=shards, location="grpc://127.0.0.1:0")
        parts.callback(server.close)
        board = BoardServer(f"grpc://127.0.0.1:{server.port}", inventory, folder)
        parts.callback(board.client.close)
        yield board


Serve = Callable[..., BoardServer]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a server in front of a device URL; all end with the test."""
    with ExitStack() as stack:

        def start(url: str, **limits: float) -> BoardServer:
            return stack.enter_context(board_server({"demo": url}, tmp_path / "board", **limits))

        yield start


@pytest.fixture(scope="module")
def shared_board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardServer]:
    """The board of all tests of a file: what one does to its server is seen by the next."""
    folder = tmp_path_factory.mktemp("shared")
    with board_server({"demo": simulated(folder)}, folder / "board") as board:
        board.act("device.info", device="demo")  # opens its line, which stays open: no leak of the first test
        yield board


@pytest.fixture
def board(shared_board: BoardServer) -> BoardServer:
    """The simulated board with its samples and no other file, which prints nothing by itself."""
    for path in shared_board.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    samples.write_samples(str(shared_board.folder))
    return shared_board


class HandmadeDevice:
    """A device made by hand: says what it is told to, and keeps what it is sent."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"socket://127.0.0.1:{self.listener.getsockname()[1]}"

    def answer(self) -> socket.socket:
        self.listener.settimeout(SOON)
        stream, _ = self.listener.accept()
        stream.settimeout(SOON)
        return stream


@pytest.fixture
def peer() -> Iterator[HandmadeDevice]:
    peer = HandmadeDevice()
    with peer.listener:
        yield peer


@pytest.fixture
def talking(serve: Serve, tmp_path: Path) -> BoardServer:
    """The simulated board, printing telemetry."""
    samples.write_samples(str(tmp_path / "board"))
    return serve(f"sim:?files={tmp_path / 'board'}&telemetry=50")


def simulated(folder: Path, options: str = "") -> str:
    """The URL of a simulated board with its files in a folder that the test can look into."""
    return f"sim:?files={folder / 'board'}&telemetry=0" + (f"&{options}" if options else "")
