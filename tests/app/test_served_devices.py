"""Devices that are added, removed and replaced while the server runs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight
from structlog.testing import capture_logs

from fastflight.access.actions import Actions
from fastflight.access.authority import Authority
from fastflight.access.identity import Identity, scopes
from fastflight.app import served_devices
from fastflight.app.compose import open_server
from fastflight.app.config import ClusterSettings, Config, DeviceTable, FleetFile, RecordingSettings, is_reloaded
from fastflight.app.device_changes import device_changes
from fastflight.app.fleet_file import read_fleet_file
from fastflight.app.overlay import read_config
from fastflight.app.running import RunningServer
from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError, Forbidden, RequestError, Stopped, UnknownName
from fastflight.log import StoreReader
from fastflight.runtime.admission import Limits
from fastflight.sources.recording_status import status_of
from tests.support import servers
from tests.support.refusals import refused
from tests.support.servers import Devices
from tests.support.waiting import until

# For a board to start on a busy computer.
SECONDS = 60.0
FAST = "sim:?telemetry=20"
SLOW = "sim:?telemetry=50"
BOARDS: Devices = {"demo": FAST, "lab": FAST}


def config(devices: Devices = BOARDS, **keys: Any) -> Config:
    return servers.config(devices, **{"shards": 2, "drain_seconds": 0.0, **keys})


SETTINGS = config()


@contextmanager
def serving(settings: Config = SETTINGS) -> Iterator[tuple[RunningServer, FastFlightClient]]:
    with open_server(settings) as running, FastFlightClient(running.location) as client:
        yield running, client


def names(client: FastFlightClient) -> list[str]:
    return [device.name for device in client.devices()]


def read_again(logged: Sequence[MutableMapping[str, Any]]) -> MutableMapping[str, Any]:
    """Return the line of the log that says what a reload has applied."""
    return next(each for each in logged if each["event"] == "the fleet file was read again")


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
    settings = config(recordings=RecordingSettings(folder=tmp_path, sync_ms=20))
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
    settings = config(recordings=RecordingSettings(folder=tmp_path, on_demand=True))
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
            new = config({"demo": FAST, "lab": SLOW, "third": FAST})
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
        running.served.apply(config({"demo": FAST}))
        assert names(client) == ["demo", "mine"]
        # In the file now, and then no longer.
        running.served.apply(config({"demo": FAST, "mine": FAST}))
        running.served.apply(config({"demo": FAST}))
        assert names(client) == ["demo"]


def test_a_replaced_device_shows_its_own_files(tmp_path: Path) -> None:
    """Nothing that was cached of the first one is shown for the second."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    with serving() as (running, client):
        for name in ("first", "second"):
            url = f"sim:?telemetry=0&files={tmp_path / name}"
            running.served.apply(config({"demo": url}))
            assert f"/{name}.txt" in [entry.path for entry in client.ls("demo")]
        assert "/first.txt" not in [entry.path for entry in client.ls("demo")]


def test_only_an_administrator_of_the_server_changes_its_devices() -> None:
    with serving() as (running, client):
        actions = Actions(device_changes(running.served), Authority(lambda: names(client)))
        for name, body in (("device.add", b'{"name": "new", "url": "sim:"}'), ("device.remove", b'{"name": "demo"}')):
            with pytest.raises(Forbidden):
                actions.call(name, body, Identity("ada", scopes(["admin:demo", "exec,write:*"])))
            actions.call(name, body, Identity("ada", scopes(["admin:*"])))


def test_bridges_follow() -> None:
    def shared(port: int = 0) -> dict[str, object]:
        return {"url": FAST, "bridge": {"socket": port}}

    with serving(config({**BOARDS, "demo": shared()})) as (running, client):
        old = port_of(running, "demo")
        running.served.apply(config({"demo": shared(), "lab": FAST, "new": shared()}))
        assert port_of(running, "demo") == old
        socket.create_connection(("127.0.0.1", port_of(running, "new")), SECONDS).close()
        # The port goes from one device to the other.
        running.served.apply(config({"demo": FAST, "lab": shared(old)}))
        assert running.bridges.keys() == {"lab"} and port_of(running, "lab") == old
        with capture_logs() as logged:
            running.served.apply(config({"demo": shared(old), "lab": shared(old)}))
        assert [each["device"] for each in logged if each["log_level"] == "error"] == ["demo"]
        assert client.info("demo")["name"] == "demo"


def test_recorders_follow(tmp_path: Path) -> None:
    here = RecordingSettings(folder=tmp_path / "here", sync_ms=20)
    with serving(config(recordings=here, record=["demo"])) as (running, client):
        client.start_recording("lab")
        new = {"demo": FAST, "lab": SLOW, "new": FAST}
        running.served.apply(config(new, recordings=here, record=["new"]))
        # Of demo it is no longer wanted; of lab a client has asked for it, so it goes on with the new line.
        assert {each.name: each.recording for each in client.devices()} == {
            "demo": None,
            "lab": "recording",
            "new": "recording",
        }
        elsewhere = config(
            new,
            recordings=RecordingSettings(folder=tmp_path / "there", sync_ms=20),
            record=["demo"],
            limits=Limits(streams=7),
        )
        for _ in range(2):  # it is still so the second time
            with capture_logs() as logged:
                running.served.apply(elsewhere)
            assert logged[0]["changes"] == ["limits.streams", "recordings.folder"]
            assert client.devices()[0].recording is None and not (tmp_path / "there").exists()
        running.served.apply(config(new, recordings=here, record=["demo"]))
        assert client.devices()[0].recording == "recording"


def test_removing_a_device_that_is_recorded_loses_nothing(tmp_path: Path) -> None:
    settings = config(recordings=RecordingSettings(folder=tmp_path, sync_ms=20), record=["demo"])
    with serving(settings) as (_, client):
        with client.session("demo", format="bytes", limit_rows=5) as rows:
            last = max(max(batch.column("seq").to_pylist()) for batch in rows)
        client.remove_device("demo")
        (status,) = client.recordings()
        assert status.next_seq > last and status.lost == 0 and status.state == "kept"
        assert client.recording("demo").to_arrow().num_rows >= 5
        with pytest.raises(FastFlightError):
            client.start_recording("demo")


def test_what_needs_a_restart_is_listed(tmp_path: Path) -> None:
    with serving(SETTINGS) as (running, _):
        changed = config(
            limits=Limits(streams=7, calls=8),
            sql={"cache_bytes": 1},
            auth={"tokens": tmp_path},
            relay={"allow": ["a:1"]},
        )
        with capture_logs() as logged:
            running.apply(changed)
        assert logged[0]["changes"] == ["limits.streams", "limits.calls", "sql.cache_bytes", "relay.allow", "auth"]
        with capture_logs() as logged:
            running.apply(SETTINGS)
        assert [each["event"] for each in logged] == ["the fleet file was read again"]


def test_what_needs_a_restart_is_listed_in_a_cluster_too() -> None:
    cluster = ClusterSettings(servers=("nats://127.0.0.1:1",), name="alpha")
    changed = config(
        cluster=cluster, limits=Limits(streams=7), sql={"cache_bytes": 1}, relay={"allow": ["host:1"]}, record=["demo"]
    )
    with serving(config(cluster=cluster)) as (running, _), capture_logs() as logged:
        running.apply(changed)
    assert [each["changes"] for each in logged if "changes" in each] == [
        ["limits.streams", "sql.cache_bytes", "relay.allow"]
    ]
    assert {"changed": ["demo"]}.items() <= read_again(logged).items()


@pytest.mark.parametrize("key", [{"agent": True}, {"grace": 10.0}])
def test_a_device_is_replaced_if_what_is_made_of_its_keys_has_changed(key: dict[str, object]) -> None:
    with serving() as (running, client):
        with capture_logs() as logged:
            running.apply(config({"demo": {"url": FAST, **key}, "lab": FAST}))
        assert {"replaced": ["demo"], "changed": []}.items() <= read_again(logged).items()
        assert client.info("demo")["name"] == "demo"
        with capture_logs() as logged:
            running.apply(config({"demo": {"url": FAST, **key}, "lab": FAST}))
        assert {"replaced": [], "changed": []}.items() <= read_again(logged).items()


def test_a_log_is_collected_that_the_fleet_file_names_later(tmp_path: Path) -> None:
    board = tmp_path / "board"
    board.mkdir()
    url = f"sim:?files={board}&telemetry=0"

    def collecting(to: str) -> Config:
        collect = {"path": "/log.csv", "to": tmp_path / to, "minutes": 0.001}
        return config({"demo": {"url": url, "collect": collect}})

    with serving(config({"demo": url})) as (running, _):
        for to in ("here", "there"):
            with capture_logs() as logged:
                running.apply(collecting(to))
            assert {"replaced": [], "changed": ["demo"]}.items() <= read_again(logged).items()
            (board / "log.csv").write_text("1,21.5\n")
            until((tmp_path / to / "demo/log.csv/0000001.csv").exists)
        running.apply(config({"demo": url}))
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("collect-")]


def test_each_key_of_a_fleet_file_is_applied_or_needs_a_restart() -> None:
    """A new key of a device is applied by `ServedDevices`, or by `Collectors`; `needing_restart` names all others."""
    assert set(DeviceTable.model_fields) == {
        *("url", "agent", "grace"),
        *("bridge", "record", "publish", "rows", "servers", "files", "collect"),
    }
    assert [table for table in FleetFile.model_fields if is_reloaded(f"{table}.key")] == [
        "devices",
        "alerts",
    ]


def test_a_line_is_closed_before_its_device_is_given_up(tmp_path: Path) -> None:
    settings = config(recordings=RecordingSettings(folder=tmp_path, sync_ms=20), record=["demo"])
    with serving(settings) as (running, client):
        device = running.served._inventory.device("demo")
        wait_until(lambda: device.is_open)
        running.served.disconnect("demo")
        wait_until(lambda: not device.is_open)
        running.served.give("demo", lost=True)
        running.served.disconnect("demo")  # it is gone, and that is no error
        assert names(client) == ["lab"]


@pytest.mark.parametrize("name", ["fastflight", "fleet", "Information_Schema", "pg_catalog"])
def test_a_device_is_not_named_as_a_schema_of_sql(tmp_path: Path, name: str) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(f'[devices.{name}]\nurl = "sim:"\n')
    with refused(RequestError, where=str(fleet)):
        read_fleet_file(fleet, {})
    with refused(RequestError, where="--device"):
        read_config("grpc://127.0.0.1:0", [f"{name}=sim:"], None)
    with serving(SETTINGS) as (running, _), refused(RequestError, where="name"):
        running.served.add(name, "sim:")


@pytest.mark.parametrize(
    "request_", [{"type": "device.session"}, {"type": "device.listing"}, {"type": "device.exec", "code": ""}], ids=str
)
def test_a_device_that_was_removed_is_not_described(request_: dict[str, str]) -> None:
    asked = flight.FlightDescriptor.for_command(json.dumps({"device": "demo", **request_}))
    with servers.serving() as server, flight.connect(server.location) as client:
        described = (client.get_flight_info, client.get_schema)
        for describe in described:
            describe(asked)
        with FastFlightClient(server.location) as changing:
            changing.remove_device("demo")
        for describe in described:
            with refused(KeyError, code=UnknownName.code):
                describe(asked)
