"""Devices that are added, removed and replaced while the server runs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import flight
from structlog.testing import capture_logs

from fastflight.access.actions import Actions
from fastflight.access.authority import Authority
from fastflight.access.identity import Identity, scopes
from fastflight.app import served_devices
from fastflight.app.cluster_settings import ClusterSettings
from fastflight.app.collecting import CollectSettings
from fastflight.app.compose import open_server
from fastflight.app.fleet_file import FleetDevice, FleetTables, read_fleet_file
from fastflight.app.recording_settings import RecordingSettings
from fastflight.app.running import RunningServer
from fastflight.app.settings import BridgeSettings, ServeSettings, settings_of
from fastflight.app.sql_settings import SqlSettings
from fastflight.bridge import Ports
from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError, Forbidden, RequestError, Stopped, UnknownName
from fastflight.log import StoreReader
from fastflight.runtime.admission import Limits
from fastflight.sources.recordings import status_of
from tests.support.refusals import refused

# For a board to start on a busy computer.
SECONDS = 60.0
FAST = "sim:?telemetry=20"
SLOW = "sim:?telemetry=50"
SETTINGS = ServeSettings("grpc://127.0.0.1:0", {"demo": FAST, "lab": FAST}, shards=2, drain_seconds=0.0)


@contextmanager
def serving(settings: ServeSettings = SETTINGS) -> Iterator[tuple[RunningServer, FastFlightClient]]:
    with open_server(settings) as running, FastFlightClient(running.location) as client:
        yield running, client


def names(client: FastFlightClient) -> list[str]:
    return [device.name for device in client.devices()]


def port_of(running: RunningServer, name: str) -> int:
    port = running.bridges[name].socket
    assert port is not None
    return port


def wait_until(holds: Callable[[], bool]) -> None:
    """Ask again and again: the test's own time limit ends it."""
    while not holds():
        pass


def test_a_device_is_added_and_removed() -> None:
    with serving() as (_, client):
        client.add_device("new", SLOW)
        assert names(client) == ["demo", "lab", "new"]
        assert client.read("new", "/readings.csv").to_arrow().num_rows > 0
        with client.session("new", limit_rows=2) as rows:
            assert sum(batch.num_rows for batch in rows) == 2
        assert client.remove_device("new")
        assert names(client) == ["demo", "lab"]
        for ask in (client.info, client.remove_device):
            with pytest.raises(UnknownName):
                ask("new")


@pytest.mark.parametrize(
    ("name", "url", "says"),
    [
        ("demo", "sim:", "demo: there is a device of this name"),
        ("a:b", "sim:", "name"),
        ("new", "serail:///dev/x", "Did you mean 'serial'"),
        ("new", "exec:micropython", "exec:micropython.*fleet file"),
        ("new", "sim:?files=/home", "clients may not add"),
    ],
)
def test_what_clients_may_not_add(name: str, url: str, says: str) -> None:
    with serving() as (_, client):
        with pytest.raises(RequestError, match=says):
            client.add_device(name, url)
        with pytest.raises(RequestError, match="keeps no recordings"):
            client.add_device("new", "sim:", record=True)
        assert names(client) == ["demo", "lab"]


def test_the_actions_are_described() -> None:
    with serving() as (running, _), flight.FlightClient(running.location) as client:
        described = {action.type: action.description for action in client.list_actions()}
    assert '"pattern"' in described["device.add"] and "admin:*" in described["device.remove"]


def test_removing_ends_the_streams_of_that_device_only() -> None:
    with serving() as (_, client):
        with (
            client.session("lab") as other,
            client.session("demo") as session,
            client.session("demo", mode="sync") as sync,
        ):
            for stream in (other, session, sync):
                next(iter(stream))
            assert client.remove_device("demo")
            for stream in (session, sync):
                with pytest.raises(Stopped, match="the device was removed from this server"):
                    list(stream)
            next(iter(other))
        assert client.info("lab")["name"] == "lab"


def test_the_line_is_closed_when_its_owner_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """An action is not a stream: it goes on to its end."""
    monkeypatch.setattr(served_devices, "RETIRE_SECONDS", 0.1)
    with serving() as (running, client), flight.FlightClient(running.location) as caller:
        outputs: list[str] = []
        code = "import time\nfor i in range(10):\n    time.sleep(0.1)\nprint('done')"
        body = json.dumps({"device": "demo", "code": code}).encode()

        def execute() -> None:
            outputs.extend(
                json.loads(result.body.to_pybytes())["stdout"] for result in caller.do_action(("device.exec", body))
            )

        thread = threading.Thread(target=execute)
        thread.start()
        wait_until(lambda: client.devices()[0].holder is not None)
        client.remove_device("demo")
        assert names(client) == ["lab"]
        thread.join(SECONDS)
        assert [output.endswith("done\n") for output in outputs] == [True]


def test_a_removed_device_can_be_added_again_with_its_recording(tmp_path: Path) -> None:
    settings = replace(SETTINGS, recordings=RecordingSettings(tmp_path, sync_ms=20))
    with serving(settings) as (_, client):
        for _ in range(2):
            client.add_device("new", FAST, record=True)
            with client.session("new", limit_rows=5) as rows:
                assert sum(batch.num_rows for batch in rows) == 5
            assert client.remove_device("new")
        (status,) = client.recordings()
        assert (status.name, status.state, status.lost) == ("new", "kept", 0)
        assert status.rows >= 2 and status.next_seq > 1_000_000  # the second device is numbered after the first
    assert StoreReader(tmp_path).names() == ["new"]


def test_a_device_goes_on_with_its_recording_in_the_default_folder(tmp_path: Path) -> None:
    settings = replace(SETTINGS, recordings=RecordingSettings(tmp_path, on_demand=True))
    for _ in range(2):
        with serving(settings) as (_running, client):
            client.add_device("new", FAST)
            client.start_recording("new")
            with client.session("new", limit_rows=5) as rows:
                assert sum(batch.num_rows for batch in rows) == 5
    (status,) = (
        status_of(name, StoreReader(tmp_path).log(name).statistics()) for name in StoreReader(tmp_path).names()
    )
    assert (status.name, status.lost, status.next_seq > 1_000_000) == ("new", 0, True)


def test_unchanged_devices_are_not_touched() -> None:
    with serving() as (running, client):
        wait_until(lambda: all(device.open for device in client.devices()))
        with client.session("demo") as session:
            next(iter(session))
            client.add_device("mine", FAST)
            new = replace(SETTINGS, devices={"demo": FAST, "lab": SLOW, "third": FAST})
            with capture_logs() as logged:
                running.served.apply(new)
            assert {"added": ["third"], "removed": [], "replaced": ["lab"]}.items() <= logged[-1].items()
            assert [(device.name, device.url) for device in client.devices()] == [
                ("demo", FAST),
                ("mine", FAST),
                ("lab", SLOW),
                ("third", FAST),
            ]
            next(iter(session))
        assert client.info("third")["name"] == "third"
        running.served.apply(replace(SETTINGS, devices={"demo": FAST}))
        assert names(client) == ["demo", "mine"]
        # In the file now, and then no longer.
        running.served.apply(replace(SETTINGS, devices={"demo": FAST, "mine": FAST}))
        running.served.apply(replace(SETTINGS, devices={"demo": FAST}))
        assert names(client) == ["demo"]


def test_a_replaced_device_shows_its_own_files(tmp_path: Path) -> None:
    """Nothing that was cached of the first one is shown for the second."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    with serving() as (running, client):
        for name in ("first", "second"):
            url = f"sim:?telemetry=0&files={tmp_path / name}"
            running.served.apply(replace(SETTINGS, devices={"demo": url}))
            assert f"/{name}.txt" in [entry.path for entry in client.ls("demo")]
        assert "/first.txt" not in [entry.path for entry in client.ls("demo")]


def test_only_an_administrator_of_the_server_changes_its_devices() -> None:
    with serving() as (running, client):
        actions = Actions(running.served.actions(), Authority(lambda: names(client)))
        for name, body in (("device.add", b'{"name": "new", "url": "sim:"}'), ("device.remove", b'{"name": "demo"}')):
            with pytest.raises(Forbidden):
                actions.call(name, body, Identity("ada", scopes(["admin:demo", "exec,write:*"])))
            actions.call(name, body, Identity("ada", scopes(["admin:*"])))


def test_bridges_follow() -> None:
    shared = BridgeSettings(Ports(socket=0))
    with serving(replace(SETTINGS, bridges={"demo": shared})) as (running, client):
        old = port_of(running, "demo")
        new = replace(SETTINGS, devices={**SETTINGS.devices, "new": FAST}, bridges={"new": shared, "demo": shared})
        running.served.apply(new)
        assert port_of(running, "demo") == old
        socket.create_connection(("127.0.0.1", port_of(running, "new")), SECONDS).close()
        # The port goes from one device to the other.
        running.served.apply(replace(SETTINGS, bridges={"lab": BridgeSettings(Ports(socket=old))}))
        assert running.bridges.keys() == {"lab"} and port_of(running, "lab") == old
        with capture_logs() as logged:
            taken = {"demo": BridgeSettings(Ports(socket=old)), "lab": BridgeSettings(Ports(socket=old))}
            running.served.apply(replace(SETTINGS, bridges=taken))
        assert [each["device"] for each in logged if each["log_level"] == "error"] == ["demo"]
        assert client.info("demo")["name"] == "demo"


def test_recorders_follow(tmp_path: Path) -> None:
    def recording(*devices: str) -> RecordingSettings:
        return RecordingSettings(tmp_path / "here", devices, sync_ms=20)

    with serving(replace(SETTINGS, recordings=recording("demo"))) as (running, client):
        client.start_recording("lab")
        new = {"demo": FAST, "lab": SLOW, "new": FAST}
        running.served.apply(replace(SETTINGS, devices=new, recordings=recording("new")))
        # Of demo it is no longer wanted; of lab a client has asked for it, so it goes on with the new line.
        assert {each.name: each.recording for each in client.devices()} == {
            "demo": None,
            "lab": "recording",
            "new": "recording",
        }
        elsewhere = RecordingSettings(tmp_path / "there", ("demo",))
        for _ in range(2):  # it is still so the second time
            with capture_logs() as logged:
                running.served.apply(replace(SETTINGS, devices=new, recordings=elsewhere, limits=Limits(streams=7)))
            assert logged[0]["changes"] == ["limits", "recordings"]
            assert client.devices()[0].recording is None and not (tmp_path / "there").exists()
        running.served.apply(replace(SETTINGS, devices=new, recordings=recording("demo")))
        assert client.devices()[0].recording == "recording"


def test_removing_a_device_that_is_recorded_loses_nothing(tmp_path: Path) -> None:
    settings = replace(SETTINGS, recordings=RecordingSettings(tmp_path, ("demo",), sync_ms=20))
    with serving(settings) as (_, client):
        with client.session("demo", format="bytes", limit_rows=5) as rows:
            last = max(max(batch.column("seq").to_pylist()) for batch in rows)
        client.remove_device("demo")
        (status,) = client.recordings()
        assert status.next_seq > last and status.lost == 0 and status.state == "kept"
        assert client.recording("demo").to_arrow().num_rows >= 5
        with pytest.raises(FastFlightError):
            client.start_recording("demo")


def test_what_needs_a_restart_is_listed() -> None:
    with serving(SETTINGS) as (running, _):
        collecting = {"demo": CollectSettings("/log.csv", Path("logs"), 60.0)}
        changed = replace(
            SETTINGS,
            agents=frozenset(["demo", "gone"]),
            graces={"demo": 10.0},
            collect=collecting,
            sql=SqlSettings(cache_bytes=1),
        )
        with capture_logs() as logged:
            running.apply(changed)
        assert logged[0]["changes"] == ["sql", "devices.demo.agent", "devices.demo.grace", "devices.demo.collect"]
        with capture_logs() as logged:
            running.apply(SETTINGS)
        assert [each["event"] for each in logged] == ["the fleet file was read again"]


def test_what_needs_a_restart_is_listed_in_a_cluster_too() -> None:
    settings = replace(SETTINGS, cluster=ClusterSettings(("nats://127.0.0.1:1",), "alpha"))
    changed = replace(settings, limits=Limits(streams=7), sql=SqlSettings(cache_bytes=1), relay=("host:1",))
    with serving(settings) as (running, _), capture_logs() as logged:
        running.apply(changed)
    assert [each["changes"] for each in logged if "changes" in each] == [["limits", "relay", "sql"]]


def test_each_key_of_a_fleet_file_is_applied_or_needs_a_restart() -> None:
    """A new key belongs to one of these, and where it needs a restart to `_needing_restart`."""
    applied = {"url", "bridge", "record", "publish", "rows", "servers", "files"}
    assert set(FleetDevice.model_fields) == applied | {"agent", "grace", "collect"}
    assert set(FleetTables.model_fields) == {
        "devices",
        "limits",
        "recordings",
        "sql",
        "relay",
        "auth",
        "tls",
        "cluster",
    }


def test_a_line_is_closed_before_its_device_is_given_up(tmp_path: Path) -> None:
    settings = replace(SETTINGS, recordings=RecordingSettings(tmp_path, ("demo",), sync_ms=20))
    with serving(settings) as (running, client):
        device = running.served._inventory.device("demo")
        wait_until(lambda: device.is_open)
        running.served.disconnect("demo")
        wait_until(lambda: not device.is_open)
        running.served.give("demo", lost=True)
        running.served.disconnect("demo")  # it is gone, and that is no error
        assert names(client) == ["lab"]


@pytest.mark.parametrize("name", ["fastflight", "Information_Schema", "pg_catalog"])
def test_a_device_is_not_named_as_a_schema_of_sql(tmp_path: Path, name: str) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(f'[devices.{name}]\nurl = "sim:"\n')
    with refused(RequestError, where=str(fleet)):
        read_fleet_file(fleet)
    with refused(RequestError, where="--device"):
        settings_of("grpc://127.0.0.1:0", [f"{name}=sim:"], None)
    with serving(SETTINGS) as (running, _), refused(RequestError, where="name"):
        running.served.add(name, "sim:")


@pytest.mark.parametrize(
    "request_", [{"type": "device.session"}, {"type": "device.listing"}, {"type": "device.exec", "code": ""}], ids=str
)
def test_a_device_that_was_removed_is_not_described(request_: dict[str, str]) -> None:
    asked = flight.FlightDescriptor.for_command(json.dumps({"device": "demo", **request_}))
    with open_server(ServeSettings("grpc://127.0.0.1:0")) as server, flight.connect(server.location) as client:
        described = (client.get_flight_info, client.get_schema)
        for describe in described:
            describe(asked)
        with FastFlightClient(server.location) as changing:
            changing.remove_device("demo")
        for describe in described:
            with refused(KeyError, code=UnknownName.code):
                describe(asked)
