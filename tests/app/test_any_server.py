"""What a client gets through a server that does not own the device is what it gets at the owner, by every way in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from playwright.sync_api import expect
from websockets.sync.client import connect

from fastflight.app.config import ClusterSettings
from fastflight.app.running import RunningServer
from fastflight.client import FastFlightClient
from fastflight.client.connection import REUSE
from fastflight.client.failure import typed
from fastflight.errors import BusyError, FastFlightError, RequestError, Stopped, VersionConflict
from fastflight.server.actions import CANCELLING, NOT_CANCELLABLE
from fastflight.service.requests import DeviceFile
from fastflight_benchmark import mock
from fastflight_benchmark.mock import Mock
from tests.campaigns.fuzz.protobuf import field
from tests.gateway.browsing import launched, looking
from tests.support.clustered import TTL, clustered
from tests.support.refusals import refused
from tests.support.servers import serving
from tests.support.waiting import until

BOARDS = [f"board{number}" for number in range(4)]
# Whatever happens to be the owner, another board is at the other server.
BOARD = BOARDS[0]
# Differ between two answers to the same request.
VOLATILE = ("duration_seconds", "elapsed_seconds", "digests", "sha256_seconds")
FILE = {"type": "device.file", "device": BOARD, "interrupt": True}
GOOD: list[dict[str, Any]] = [
    {**FILE, "path": "/readings.csv"},
    {**FILE, "path": "/events.jsonl", "columns": ["kind"], "schema": {"kind": "string"}},
    {**FILE, "path": "/log.bin", "format": "raw"},
    {**FILE, "path": "/readings.csv", "mode": "sync"},
    {"type": "device.listing", "device": BOARD, "recursive": True, "interrupt": True},
    {"type": "device.exec", "device": BOARD, "code": "print(6 * 7)\nprint('x')", "interrupt": True},
    {"type": "device.session", "device": BOARD, "format": "lines", "since_seq": 0, "limit_rows": 0},
]
BAD: list[dict[str, Any]] = [
    {**FILE, "path": "/nothing.csv"},
    {**FILE, "path": "/readings.csv", "columns": ["temprature"]},
    {**FILE, "path": "/readings.csv", "schema": {"temperature": "int64"}, "on_error": "fail"},
    {"type": "device.exec", "device": BOARD, "code": "print(1)\n1/0", "interrupt": True},
    {"type": "device.session", "device": BOARD, "since_seq": 10**9, "since_seconds": 1},
    {"type": "device.session", "device": BOARD, "format": "csv"},
    {"type": "device.file", "device": "nobody", "path": "/a.csv"},
    {"type": "device.fil", "device": BOARD},
]


@dataclass
class Pair:
    """The owner of `BOARD`, and another server."""

    owner: RunningServer
    other: RunningServer

    def same(self, ask: Callable[[RunningServer], Any]) -> Any:
        """Return what both answer."""
        at_owner, at_other = ask(self.owner), ask(self.other)
        assert at_owner == at_other
        return at_other


@pytest.fixture(scope="module", autouse=True)
def _adbc_has_run() -> None:
    """Let Go's runtime, in which ADBC's driver runs, take the descriptors that it keeps for the life of the process."""
    with adbc.connect("grpc+tcp://127.0.0.1:1", autocommit=True) as connection, connection.cursor() as cursor:
        with pytest.raises(adbc_driver_manager.Error):
            cursor.execute("select 1")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with clustered(tmp_path_factory.mktemp("nats"), BOARDS, ("alpha", "beta")) as cluster:
        owner = cluster.owner(BOARD)
        found = Pair(cluster.servers[owner], cluster.other_than(owner))
        cluster.open_connections()
        yield found


def ticket(keys: dict[str, Any]) -> flight.Ticket:
    return flight.Ticket(json.dumps(keys).encode())


def answered(keys: dict[str, Any]) -> Callable[[RunningServer], Any]:
    """Ask for everything that a stream has: its schema, rows, notes and trailer; or all that its error says."""

    def ask(server: RunningServer) -> Any:
        rows: list[Any] = []
        beside: list[Any] = []
        schema = None
        with flight.connect(server.location) as client:
            try:
                reader = client.do_get(ticket(keys))
                schema = [*reader.schema, {**(reader.schema.metadata or {})}]
                while True:
                    chunk = reader.read_chunk()
                    rows += chunk.data.drop_columns(["time"] if keys["type"] == "device.exec" else []).to_pylist()
                    if chunk.app_metadata:
                        said = json.loads(chunk.app_metadata.to_pybytes())
                        beside.append({key: value for key, value in said.items() if key not in VOLATILE})
            except StopIteration:
                return schema, rows, beside
            except flight.FlightError as error:
                return everything(error, server)
            except pa.ArrowException as error:
                return everything(error, server)

    return ask


def everything(error: Exception, server: RunningServer) -> dict[str, Any]:
    found = typed(error, server.location)
    return {"class": type(error), "kind": type(found), "code": found.code, "text": str(found), "hint": found.hint}


def test_rows_notes_trailers_and_errors_are_the_same(pair: Pair) -> None:
    for keys in GOOD:
        schema, rows, beside = pair.same(answered(keys))
        assert schema and beside and (rows or keys.get("limit_rows") == 0), keys
    for keys in BAD:
        error = pair.same(answered(keys))
        assert issubclass(error["kind"], FastFlightError) and error["text"], keys


def test_writes_are_acknowledged_and_refused_the_same(pair: Pair) -> None:
    batches = [pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [3]})]

    def write(server: RunningServer) -> Any:
        command = json.dumps({**FILE, "path": "/written.csv"}).encode()
        acknowledged: list[Any] = []
        with flight.connect(server.location) as client:
            writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), batches[0].schema)
            with writer:
                for batch in batches:
                    writer.write_batch(batch)  # acknowledged before the next is sent
                    acknowledged.append(json.loads(reader.read().to_pybytes()))
                writer.done_writing()
                while (last := reader.read()) is not None:
                    acknowledged.append(json.loads(last.to_pybytes()))
        return [{key: value for key, value in each.items() if key not in VOLATILE} for each in acknowledged]

    *_, last = pair.same(write)
    assert (last["rows"], last["bytes"], last["done"]) == (3, len("a\n1\n2\n3\n"), True) and len(last["sha256"]) == 64
    assert pair.same(answered({**FILE, "path": "/written.csv"}))[1] == [{"a": 1}, {"a": 2}, {"a": 3}]

    def refusal(path: str, **keys: Any) -> Callable[[RunningServer], Any]:
        def ask(server: RunningServer) -> Any:
            with FastFlightClient(server.location) as client, pytest.raises(FastFlightError) as raised:
                client.write(BOARD, path, batches, interrupt=True, **keys)
            return type(raised.value), str(raised.value), raised.value.hint

        return ask

    for path, keys in (("/no/such/folder.csv", {}), ("/x.bin", {"format": "raw"}), ("/x.csv", {"format": "csw"})):
        assert pair.same(refusal(path, **keys))[1]

    def replaced(server: RunningServer) -> Any:
        request = DeviceFile(device=BOARD, path="/written.csv", interrupt=True, if_match='"another version"')
        with FastFlightClient(server.location) as client, refused(VersionConflict) as raised:
            client.write_request(request, batches)
        return str(raised.value)

    assert "not the version" in pair.same(replaced)


def test_actions_are_the_same(pair: Pair) -> None:
    def act(name: str, **body: Any) -> Callable[[RunningServer], Any]:
        def ask(server: RunningServer) -> Any:
            with flight.connect(server.location) as client:
                try:
                    action = flight.Action(name, json.dumps({"device": BOARD, **body}).encode())
                    return [json.loads(each.body.to_pybytes()) for each in client.do_action(action)]
                except (flight.FlightError, pa.ArrowException) as error:
                    return everything(error, server)

        return ask

    assert pair.same(act("file.stat", path="/readings.csv", interrupt=True))[0]["size"] > 0
    assert pair.same(act("file.hash", path="/readings.csv", interrupt=True))[0]["digest"]
    assert pair.same(act("device.exec", code="print(1)", interrupt=True))[0]
    assert pair.same(act("file.remove", path="/nothing", interrupt=True))["code"] == "device.file_missing"
    assert pair.same(act("file.stat"))["code"] == "request"


def test_http_and_the_page_are_the_same(pair: Pair) -> None:
    def post(path: str, keys: dict[str, Any] | str, **headers: str) -> Callable[[RunningServer], Any]:
        def ask(server: RunningServer) -> Any:
            content = keys if isinstance(keys, str) else json.dumps(keys)
            with httpx.Client(base_url=str(server.http), timeout=60) as client:
                answer = client.post(path, content=content, headers={"Content-Type": "application/json", **headers})
                if answer.is_error:
                    said = answer.json()
                    return answer.status_code, {key: said[key] for key in ("code", "text", "hint")}
                return answer.status_code, answer.text

        return ask

    status, text = pair.same(post("/stream", GOOD[0], Accept="text/csv"))
    assert status == 200 and "temperature" in text.splitlines()[0]
    # An error after the first row breaks the answer off, which HTTP has no words for.
    for keys in (each for each in BAD if each["type"] != "device.exec"):
        status, text = pair.same(post("/stream", keys, Accept="text/csv"))
        assert status >= 400 or "error" in str(text), (keys, status, text)
    query = f'select count(*) as n, max(temperature) as t from {BOARD}."readings.csv"'
    status, text = pair.same(post("/sql?format=jsonl", query))
    assert status == 200 and json.loads(text)["n"] > 0
    status, text = pair.same(post("/sql?format=jsonl", f"select * from {BOARD}.nothing"))
    assert status == 404 and "no such file" in text["text"]

    def listed(server: RunningServer) -> Any:
        with httpx.Client(base_url=str(server.http), timeout=60) as client:
            return client.get(f"/devices/{BOARD}/files/").json(), client.get(
                f"/devices/{BOARD}/files/readings.csv"
            ).text

    files, content = pair.same(listed)
    assert files and content.startswith("time,")


def test_websockets_and_the_feed_of_the_page_have_live_rows(pair: Pair) -> None:
    address = str(pair.other.http).replace("http", "ws", 1)
    with connect(f"{address}/ws/repl/{BOARD}") as socket:
        assert json.loads(socket.recv(60)) == {"ready": {"device": BOARD}}
        socket.send(b"\x03\x03print(6 * 7)\r")
        said = b""
        while b"\n42" not in said:
            message = socket.recv(60)
            said += message if isinstance(message, bytes) else b""
    with connect(f"{address}/ws/fleet") as socket:
        points: set[str] = set()
        while points < {*BOARDS}:
            devices = json.loads(socket.recv(60))["devices"]
            points |= {name for name, device in devices.items() if device.get("points")}


def test_a_flight_is_listed_with_the_address_of_its_owner_first(pair: Pair) -> None:
    def located(board: str, server: RunningServer) -> list[str]:
        with flight.connect(server.location) as client:
            info = client.get_flight_info(flight.FlightDescriptor.for_path(board, "/readings.csv"))
            listed = [each.descriptor.path for each in client.list_flights(f"{board}/*.csv".encode())]
            assert [board.encode(), b"/readings.csv"] in listed
        return [location.uri.decode() for location in info.endpoints[0].locations]

    with FastFlightClient(pair.owner.location) as client:
        owners = {each["name"]: each["owner"] for each in client.cluster()["devices"]}
    elsewhere = next(name for name, owner in owners.items() if owner != owners[BOARD])
    for board, first, second in ((BOARD, pair.owner, pair.other), (elsewhere, pair.other, pair.owner)):
        assert pair.same(partial(located, board)) == [first.location, second.location, REUSE]


def test_a_fleet_is_the_same_and_all_its_files_decide_the_types(pair: Pair) -> None:
    values = {board: [at] if at else [0.5] for at, board in enumerate(BOARDS)}

    def read(server: RunningServer) -> pa.Table:
        with FastFlightClient(server.location) as client:
            return client.read_fleet("*", "/unlike.csv", interrupt=True, ordered=True).to_arrow()

    with FastFlightClient(pair.other.location) as client:
        assert sorted(each.name for each in client.devices()) == BOARDS
        for board, own in values.items():
            client.write(board, "/unlike.csv", pa.table({"v": own, f"only_{board}": own}), interrupt=True)
    table = pair.same(read)
    assert table.schema.names == ["device", "v", *(f"only_{board}" for board in BOARDS)]
    assert table.schema.field("v").type == pa.float64()
    assert table["device"].to_pylist() == BOARDS
    assert table["v"].to_pylist() == [own[0] for own in values.values()]
    assert all(table[f"only_{board}"].null_count == len(BOARDS) - 1 for board in BOARDS)


def test_adbc_reads_tables_of_the_other_server(pair: Pair) -> None:
    def rows(server: RunningServer) -> Any:
        with adbc.connect(server.location, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f'select * from {BOARD}."readings.csv" order by time limit 3')
            found = cursor.fetch_arrow_table().to_pylist()
            with pytest.raises(adbc_driver_manager.Error) as refusal:
                cursor.execute(f"select * from {BOARD}.nothing")
            return found, str(refusal.value)

    found, refusal = pair.same(rows)
    assert len(found) == 3 and "no such file" in refusal


@pytest.mark.filterwarnings("ignore::fastflight.errors.IncompleteWarning")
def test_rows_in_memory_are_asked_from_the_owners_of_the_boards(pair: Pair, printing: None) -> None:
    for server in (pair.owner, pair.other):
        with FastFlightClient(server.location) as client:
            until(lambda: client.live_table(BOARD, seconds=60).num_rows)
            query = f"select count(*) > 0 as rows, max(temperature) > 0 as warm from {BOARD}.live"
            assert client.sql(query).to_arrow().to_pylist() == [{"rows": True, "warm": True}]
            assert BOARD in client.sql("select distinct device from fleet.live").to_arrow()["device"].to_pylist()
            with client.session(BOARD, as_="rows", limit_rows=2) as stream:
                assert stream.to_arrow().num_rows == 2


def test_a_crash_is_seen_at_every_server(pair: Pair, tmp_path: Path) -> None:
    def crashes(server: RunningServer) -> Any:
        with FastFlightClient(server.location) as client:
            crash = next(each.crash for each in client.devices() if each.name == BOARD)
            return crash, client.sql("select * from fastflight.crashes").to_arrow().to_pylist()

    (tmp_path / "main.py").write_text('raise ValueError("cable")\n')
    with FastFlightClient(pair.owner.location) as client:
        client.rename(BOARD, "/main.py", "/printing.py", interrupt=True)
        client.put_file(BOARD, "/main.py", tmp_path / "main.py", interrupt=True)
        client.reset(BOARD)
        until(lambda: crashes(pair.owner)[1])
        client.rename(BOARD, "/printing.py", "/main.py", interrupt=True)  # for the tests that need a board that prints
    crash, (row,) = pair.same(crashes)
    assert crash == "ValueError: cable at main.py:1" and row["device"] == BOARD


def test_the_status_has_the_copies_of_what_nats_stores(pair: Pair) -> None:
    def status(server: RunningServer) -> Any:
        with FastFlightClient(server.location) as client:
            known = client.cluster() | client.cluster_storage()
        assert known.pop("server") in ("alpha", "beta")
        return known

    known = pair.same(status)
    assert [each["name"] for each in known["replicas"]] == ["ff-owners"]
    assert all((each["current"], each["replicas"], each["behind"]) == (1, 1, []) for each in known["replicas"])
    assert {each["name"] for each in known["devices"]} == {*BOARDS}
    assert all(each["owner"] for each in known["devices"]) and known["waiting"] == known["oldest_waiting"] == {}
    by_http = pair.same(lambda server: httpx.get(f"{server.http}/cluster").json() | {"server": None})
    assert by_http == known | {"server": None}


def test_the_page_shows_servers_owners_and_what_is_wrong(pair: Pair, chromium: str) -> None:
    differs = "<b>board1</b>: other settings"

    def troubled(known: dict[str, Any]) -> dict[str, Any]:
        """The same cluster with a fleet file that differs, and 5,000 devices, of which one in five has no owner."""
        known["servers"][1]["differs"] = [differs]
        owners = ("alpha", "beta", "alpha", "beta", None)
        known["devices"] = [{"name": f"board{n:04}", "owner": owners[n % 5], "why": None} for n in range(5000)]
        return known

    with launched(chromium) as browser, looking(browser, f"{pair.other.http}/") as page:
        page.get_by_role("link", name="Cluster").click()
        expect(page.locator("#cluster-said")).to_contain_text("2 servers, 4 devices")
        expect(page.locator("#cluster-servers tbody td:first-child")).to_have_text(["alpha", "beta"])
        expect(page.locator("#cluster-copies tbody tr")).to_have_text(re.compile("^ff-owners1 of 1"))
        expect(page.locator("#cluster-wrong li")).to_have_count(0)
        page.locator("#cluster-search").fill("OARD0")
        owner = httpx.get(f"{pair.owner.http}/cluster").json()["server"]
        expect(page.locator("#cluster-devices tbody td")).to_have_text([BOARD, owner])
        # It is asked again by itself.
        page.route("**/cluster", lambda route: route.fulfill(json=troubled(route.fetch().json())))
        expect(page.locator("#cluster-wrong li").first).to_have_text(f"The fleet file of beta differs: {differs}")
        expect(page.locator("#cluster-wrong li").last).to_have_text("981 more")
        page.locator("#cluster-search").fill("")
        expect(page.locator("#cluster-shown")).to_contain_text("The first 200 of 5,000")
        expect(page.locator("#cluster-devices tbody tr").first).to_have_text("board0004none")
        page.locator("#cluster-devices a").first.click()
        expect(page.locator("#name")).to_have_text("board0004")


@pytest.fixture
def printing(pair: Pair) -> None:
    """The board prints, also if a test has interrupted its program: of a silent board, servers notice late who left."""
    with FastFlightClient(pair.owner.location) as client:
        client.reset(BOARD, interrupt=True)


def open_streams(server: RunningServer) -> int:
    with FastFlightClient(server.location) as client:
        return int(client.stats()["open"])


def test_cancelling_at_any_server_ends_a_stream_everywhere(pair: Pair, printing: None) -> None:
    """Also if the client has followed the location in the FlightInfo, and is at another server than it asked."""
    request = {"type": "device.session", "device": BOARD, "reconnect": True}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(request).encode())
    for reading, cancelling in ((pair.other, pair.other), (pair.other, pair.owner), (pair.owner, pair.other)):
        with flight.connect(reading.location) as client, flight.connect(cancelling.location) as canceller:
            info = canceller.get_flight_info(descriptor)
            reader = client.do_get(info.endpoints[0].ticket)
            reader.read_chunk()

            def cancel(canceller: flight.FlightClient = canceller, info: flight.FlightInfo = info) -> bytes:
                (result,) = canceller.do_action(("CancelFlightInfo", field(1, info.serialize())))
                return bytes(result.body.to_pybytes())

            assert cancel() == CANCELLING
            with refused(flight.FlightError, code=Stopped.code) as raised:
                while True:
                    reader.read_chunk()
            assert "cancelled by CancelFlightInfo" in str(raised.value)
            until(lambda: open_streams(pair.owner) + open_streams(pair.other) == 0)
            assert cancel() == NOT_CANCELLABLE


def test_a_client_that_leaves_ends_its_stream_at_the_owner(pair: Pair, printing: None) -> None:
    with flight.connect(pair.other.location) as client:
        for keys in ({"reconnect": True}, {"reconnect": False}, {"mode": "sync"}):
            reader = client.do_get(ticket({"type": "device.session", "device": BOARD, **keys}))
            reader.read_chunk()
            assert open_streams(pair.owner) == 1
            reader.cancel()
            until(lambda: open_streams(pair.owner) + open_streams(pair.other) == 0)


def test_a_server_without_nats_says_so_and_serves_what_it_can() -> None:
    alone = ClusterSettings(servers=("nats://127.0.0.1:1",), name="alpha", ttl=TTL)
    with (
        serving({"board": "sim:"}, cluster=alone, sources=(mock.SOURCE,)) as server,
        FastFlightClient(server.location) as client,
    ):
        until(lambda: "cannot be used" in str(client.cluster()["trouble"]))
        assert [each.name for each in client.devices()] == ["board"]
        assert client.read_request(Mock(total_rows=10)).to_arrow().num_rows == 10
        with refused(BusyError, where="board") as raised:
            client.read("board", "/readings.csv").to_arrow()
        assert "NATS cannot be used" in str(raised.value)
        with pytest.raises(RequestError, match="come from the fleet file"):
            client.add_device("more", "sim:")
