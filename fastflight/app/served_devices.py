"""The devices of a running server, with their bridges and recorders: adds and removes them while it runs.

Clients change the devices by the actions `device.add` and `device.remove`. `serve` changes them when it reads the fleet
file again at SIGHUP (`ServedDevices.apply`). What clients change is kept in memory only; the fleet file is the lasting
way.

A client may not add a device that would run a program on the server's computer (`exec:`) or open its folders
(`sim:?files=DIR`): only those who can write the fleet file may do that, not every administrator of the server.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated

import structlog
from pydantic import Field

from fastflight.access.action import Action, Body, Result
from fastflight.app.fleet_file import check_device_name
from fastflight.app.settings import BridgeSettings, ServeSettings
from fastflight.bridge import Bridge, DeviceFront, Ports
from fastflight.concurrency import Shard, Shards
from fastflight.device import Device, Inventory
from fastflight.errors import FastFlightError, RequestError, Stopped
from fastflight.protocol.raw_repl import GRACE_SECONDS
from fastflight.publish import Publishers
from fastflight.runtime.stream import Stream
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service.choices import DEVICE_NAME
from fastflight.service.requests import DeviceName, DeviceSession, TextKeys
from fastflight.sources import DefaultRecordings, Recordings
from fastflight.sources.recordings import HINT
from fastflight.transport.sim import SimAddress
from fastflight.transport.tapped import Guard, unguarded
from fastflight.transport.url import MAX_URL_CHARACTERS, parse_url, public_url, scheme_of

log = structlog.get_logger(__name__)

# The kinds of devices that a client may add.
REMOTE_SCHEMES = ("serial:", "socket:", "rfc2217:", "sim:")
# A bridge closes its connections in about a second, unless its event loop is stuck.
BRIDGE_SECONDS = 5.0
# How long a removal waits for the line to be closed. An owner that is stopped leaves within a second or two; another
# one, such as a call that runs code, keeps the line until it is done.
RETIRE_SECONDS = 5.0
REMOVED = "the device was removed from this server, or replaced"
MOVED = "the device moves to another server of the cluster: ask again"


class NewDevice(Body):
    """`record`: also record the device."""

    name: Annotated[str, Field(pattern=f"^{DEVICE_NAME.pattern}$")]
    url: Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARACTERS)]
    record: bool = False


class RemovedDevice(Body):
    """The device to remove."""

    # Not `device`: to remove one takes the rights of an administrator of the server, as to add one does.
    name: DeviceName


class ServedDevices:
    """The devices of `inventory`. Any thread may change them between `open` and `close`."""

    def __init__(
        self,
        settings: ServeSettings,
        inventory: Inventory,
        shards: Shards,
        recordings: Recordings | DefaultRecordings | None,
        registry: StreamRegistry,
        publishers: Publishers,
    ) -> None:
        # What the server was started with, and what was applied last.
        self._started = self._settings = settings
        # The devices that are to be recorded by the settings.
        self._recorded = set(_recorded(settings))
        self._inventory = inventory
        self._shards = shards
        self._recordings = recordings
        self._registry = registry
        self._publishers = publishers
        # One change at a time, except for `take` and `give`: in a cluster, many devices come and go at the same time.
        self._changing = threading.Lock()
        # The URL of each device.
        self._urls = {} if settings.cluster else dict(settings.devices)
        # The names of the devices that clients added.
        self._added: set[str] = set()
        self._listening: dict[str, ExitStack] = {}
        # A change replaces the dict, so that metrics can be collected meanwhile. It is made under the lock.
        self._bridges: dict[str, Bridge] = {}
        self._replacing = threading.Lock()

    @property
    def bridges(self) -> Mapping[str, Bridge]:
        """The open bridges, by device."""
        return self._bridges

    @property
    def ports(self) -> dict[str, Ports]:
        """The open ports of all bridges, by device."""
        return {name: bridge.ports for name, bridge in self._bridges.items()}

    def bridges_on_shards(self) -> list[tuple[Bridge, Shard]]:
        """The open bridges, each with the event loop that it runs on."""
        return [(bridge, self._shards.of(name)) for name, bridge in self._bridges.items()]

    def open(self) -> None:
        """Record and read the devices of the settings. In a cluster, `take` does that for each."""
        if self._settings.cluster is not None:
            return
        for name in self._recorded:
            self._record(name)
        for name in self._settings.publish:
            self._publish(name)
        # After the recordings have started, so that they miss nothing.
        for name in self._urls:
            self._listen(name)

    def open_bridges(self) -> None:
        """Open the bridges of the settings. `TransportError` if a port is taken."""
        if self._settings.cluster is not None:
            return
        for name, settings in self._settings.bridges.items():
            self._open_bridge(name, settings)

    def close_bridges(self) -> None:
        """Close the bridges, while the event loops still run."""
        with self._changing:
            for name in list(self._bridges):
                self._close_bridge(name)

    def close(self) -> None:
        """End the reading of lines."""
        with self._changing:
            for listening in [*self._listening.values()]:
                listening.close()

    def take(self, device: str, first_seq: int, guard: Guard) -> None:
        """Begin to use a device of the settings, which this server now owns. See `fastflight.cluster.ownership`.

        Several devices may be taken and given up at the same time; not the same one.
        """
        settings, recorded = self._settings, self._recorded
        self._add(device, settings.devices[device], record=device in recorded, guard=guard, first=first_seq)
        if (bridge := settings.bridges.get(device)) is not None:
            with _logged(device):
                self._open_bridge(device, bridge)

    def disconnect(self, device: str) -> None:
        """Begin to close the line of a device, and return at once. `give` comes next."""
        if (found := self._inventory.find(device)) is not None:
            found.shard.submit(self._inventory.retire(found))

    def give(self, device: str, lost: bool = False) -> None:
        """End the use of a device. Its live sessions with `reconnect` go on at the next owner.

        `lost`: another server may own it already, so what was recorded is handed over in the background.
        """
        if self._inventory.find(device) is not None:
            self._remove(device, MOVED, lambda stream: not _follows(stream), drains=not lost)

    def is_idle(self, device: str) -> bool:
        """Whether nothing is transferred from or to a device. Live sessions do not count: they can go on elsewhere."""
        found = self._inventory.find(device)
        streams = self._registry.of_device(device)
        busy = [stream for stream in streams if not isinstance(stream.resolved.request, DeviceSession)]
        return found is None or (found.holder is None and not busy)

    def next_seq(self, device: str) -> int:
        """The number of the next chunk of a device's traffic."""
        found = self._inventory.find(device)
        return 0 if found is None else found.tap.next_seq

    def add(self, name: str, url: str, *, record: bool = False) -> None:
        """Add a device for a client. `RequestError` if the name is taken or the URL is not allowed."""
        check_device_name(name, "name")
        _check_remote(url)
        self._check_alone()
        if record and self._recordings is None:
            raise RequestError("this server keeps no recordings", where="record", hint=HINT)
        with self._changing:
            self._add(name, url, record=record)
            self._added.add(name)
        log.info("device added", device=name, url=public_url(url))

    def remove(self, name: str) -> bool:
        """Remove a device for a client: stop its streams, its recorder and its bridge, and close its line.

        Return False if the line is still in use; it is closed when that ends. `UnknownName` if there is no such device.
        """
        with self._changing:
            self._check_removable(name)
            closed = self._remove(name)
        log.info("device removed", device=name)
        return closed

    def keys_of(self, device: str, path: str) -> TextKeys | None:
        """Return how a text file is written, as the settings say for the first glob that matches; None if none does."""
        globs = self._settings.files.get(device, {})
        return next((keys for glob, keys in globs.items() if fnmatchcase(path, glob)), None)

    def apply(self, new: ServeSettings) -> None:
        """Change the devices to those of `new`, with their bridges and recorders. Devices that clients added stay.

        Unchanged devices are not touched. What fails for one device is logged, and the others are changed all the same.
        What cannot change while the server runs is logged.
        """
        fixed = _needing_restart(self._started, new)
        if new.cluster is not None:
            with self._changing:
                self._settings = new
                if "recordings" not in fixed:
                    self._recorded = set(_recorded(new))
            if fixed:
                log.warning("these changes need a restart of the server", changes=fixed)
            log.info("the fleet file was read again")
            return
        with self._changing:
            old, self._settings = self._settings, new
            if fixed:
                log.warning("these changes need a restart of the server", changes=fixed)
            urls = new.devices
            gone = [name for name in old.devices if name not in new.devices and name not in self._added]
            removed = [name for name in gone if name in self._urls]
            replaced = [name for name, url in urls.items() if self._urls.get(name) not in (None, url)]
            added = [name for name in urls if name not in self._urls]
            before = after = self._recorded
            if "recordings" not in fixed:
                after = self._recorded = set(_recorded(new))
            recorded = after | {name for name in replaced if self._inventory.device(name).recording}
            for name in (*removed, *replaced):
                with _logged(name):
                    self._remove(name)
            self._added -= urls.keys()
            # All before any is opened: a port may go from one device to another.
            for name in list(self._bridges):
                if old.bridges.get(name) != new.bridges.get(name):
                    self._close_bridge(name)
            for name in (*replaced, *added):
                with _logged(name):
                    self._add(name, urls[name], record=name in recorded)
            for name in (after - before) & urls.keys() - {*replaced, *added}:
                with _logged(name):
                    self._record(name)
            for name in before - after:
                with _logged(name):
                    self._forget(name)
            for name in urls.keys() - {*replaced, *added}:
                if old.publish.get(name) != new.publish.get(name):
                    with _logged(name):
                        self._publishers.stop(name)
                        self._publish(name)
            for name, settings in new.bridges.items():
                if name in self._urls and name not in self._bridges:
                    with _logged(name):
                        self._open_bridge(name, settings)
                        log.info("device shared", device=name, at=self._bridges[name].ports.urls("127.0.0.1"))
        log.info("the fleet file was read again", added=added, removed=removed, replaced=replaced)

    def actions(self) -> list[Action]:
        """Return the actions by which clients change the devices."""

        def add(body: NewDevice) -> Iterable[Result]:
            self.add(body.name, body.url, record=body.record)
            return [{"name": body.name, "url": public_url(body.url)}]

        def remove(body: RemovedDevice) -> Iterable[Result]:
            return [{"name": body.name, "closed": self.remove(body.name)}]

        return [
            Action(
                "device.add",
                "Add a device until the server ends: serial, socket, rfc2217, or sim without files. Needs admin:*.",
                NewDevice,
                add,
            ),
            Action(
                "device.remove",
                "Remove a device until the server starts again: its streams end with an error. closed: whether its line"
                " is closed already, or still in use. Needs admin:*.",
                RemovedDevice,
                remove,
            ),
        ]

    def _check_alone(self) -> None:
        """Raise `RequestError` if the devices belong to a cluster."""
        if self._settings.cluster is not None:
            raise RequestError(
                "the devices of a cluster come from the fleet file",
                hint="Change it on all servers, and send them SIGHUP",
            )

    def _check_removable(self, name: str) -> None:
        self._check_alone()
        self._inventory.device(name)

    def _add(self, name: str, url: str, *, record: bool, guard: Guard = unguarded, first: int = 0) -> None:
        def number(device: Device) -> None:
            if self._recordings is not None:
                self._recordings.number(device)
            if first > device.tap.next_seq:
                device.tap.begin_at(first)

        self._inventory.add(name, url, guard, number)
        self._urls[name] = url
        try:
            if record:
                self._record(name)
            self._publish(name)
            self._listen(name)
        except BaseException:
            self._remove(name)
            raise

    def _remove(
        self,
        name: str,
        why: str = REMOVED,
        stops: Callable[[Stream], bool] = lambda stream: True,
        drains: bool = True,
    ) -> bool:
        """Remove a device, and stop its streams that `stops` chooses. Return whether its line is closed already."""
        device = self._inventory.remove(name)
        self._added.discard(name)
        del self._urls[name]
        try:
            self._registry.stop_device(name, why, stops)
            self._close_bridge(name)
            # Before the recorder: publishers read from the recording.
            self._publishers.stop(name)
            self._forget(name, drains)
        finally:
            if (listening := self._listening.pop(name, None)) is not None:
                listening.close()
            retired = device.shard.submit(self._inventory.retire(device))
        return bool(concurrent.futures.wait([retired], RETIRE_SECONDS).done)

    def _listen(self, name: str) -> None:
        with ExitStack() as listening:
            listening.enter_context(self._inventory.device(name).listen())
            self._listening[name] = listening.pop_all()

    def _record(self, name: str) -> None:
        if self._recordings is not None:
            self._recordings.record(name)

    def _publish(self, name: str) -> None:
        """Publish the rows of a device as the settings say."""
        if name in self._settings.publish:
            self._publishers.start(self._inventory.device(name), self._settings.publish[name])

    def _forget(self, name: str, drains: bool = True) -> None:
        if self._recordings is not None:
            self._recordings.forget(name, drains)

    def _open_bridge(self, name: str, settings: BridgeSettings) -> None:
        bridge = Bridge(DeviceFront(self._inventory.device(name)), settings.ports, takeover=settings.takeover)
        self._shards.of(name).submit(bridge.start()).result()
        with self._replacing:
            self._bridges = {**self._bridges, name: bridge}

    def _close_bridge(self, name: str) -> None:
        """Close the bridge of a device if it has one, and give up after `BRIDGE_SECONDS`."""
        with self._replacing:
            bridge = self._bridges.get(name)
            if bridge is None:
                return
            self._bridges = {each: other for each, other in self._bridges.items() if each != name}
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError, Stopped):
            self._shards.of(name).submit(bridge.aclose()).result(BRIDGE_SECONDS)


def _check_remote(url: str) -> None:
    """Raise `RequestError` unless a client may add a device with this URL."""
    address = parse_url(url)
    if scheme_of(url) not in REMOTE_SCHEMES or (isinstance(address, SimAddress) and address.files is not None):
        raise RequestError(
            "clients may not add this kind of device: it uses the server's computer",
            where=f"device URL {public_url(url)!r}",
            hint=f"Allowed are {', '.join(REMOTE_SCHEMES)} without files=. Put others into the server's fleet file, and"
            " send it SIGHUP",
        )


def _follows(stream: Stream) -> bool:
    request = stream.resolved.request
    return isinstance(request, DeviceSession) and request.reconnect


def _recorded(settings: ServeSettings) -> tuple[str, ...]:
    return () if settings.recordings is None else settings.recordings.devices


def _needing_restart(old: ServeSettings, new: ServeSettings) -> list[str]:
    """The tables of the fleet file that differ, and the keys of devices that are used only when the server starts."""
    tables: Mapping[str, Callable[[ServeSettings], object]] = {
        "limits": lambda settings: settings.limits,
        "relay": lambda settings: settings.relay,
        "auth, tls": lambda settings: settings.access,
        "sql": lambda settings: settings.sql,
        "recordings": lambda settings: (kept := settings.recordings) and (kept.folder, kept.sync_ms, kept.retention),
        # Which servers can own a device follows the file.
        "cluster": lambda settings: (
            settings.cluster and replace(settings.cluster, unreachable=frozenset(), local=frozenset())
        ),
    }
    changed = [table for table, value in tables.items() if value(old) != value(new)]
    for name in new.devices:
        if (name in old.agents) != (name in new.agents):
            changed.append(f"devices.{name}.agent")
        if old.graces.get(name, GRACE_SECONDS) != new.graces.get(name, GRACE_SECONDS):
            changed.append(f"devices.{name}.grace")
        if old.collect.get(name) != new.collect.get(name):
            changed.append(f"devices.{name}.collect")
    return changed


@contextlib.contextmanager
def _logged(device: str) -> Iterator[None]:
    """Log an error of the block, so that the other devices are changed all the same."""
    try:
        yield
    except FastFlightError as error:
        log.error("the device was not changed as the fleet file says", device=device, error=str(error))
