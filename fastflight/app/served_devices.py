"""The devices of a running server, with their bridges and recorders: adds and removes them while it runs.

Clients change the devices by actions (`device_changes`). `serve` changes them when it reads the fleet
file again at SIGHUP (`ServedDevices.apply`). What clients change is kept in memory only; the fleet file is the lasting
way.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from fnmatch import fnmatchcase

import structlog

from fastflight.app.config import BridgeTable, Config, DeviceTable, needing_restart
from fastflight.app.fleet_file import check_device_name
from fastflight.bridge import Bridge, DeviceFront, Ports
from fastflight.concurrency import Shard, Shards
from fastflight.device import Device, Inventory
from fastflight.errors import FastFlightError, RequestError, Stopped
from fastflight.publish import Publishers
from fastflight.runtime.stream import Stream
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service.requests import DeviceSession, TextKeys
from fastflight.sources import Recordings, RowLayout
from fastflight.sources.recordings import HINT
from fastflight.transport.port_tap import Guard, unguarded
from fastflight.transport.url import public_url

log = structlog.get_logger(__name__)

# A bridge closes its connections in about a second, unless its event loop is stuck.
BRIDGE_SECONDS = 5.0
# How long a removal waits for the line to be closed. An owner that is stopped leaves within a second or two; another
# one, such as a call that runs code, keeps the line until it is done.
RETIRE_SECONDS = 5.0
REMOVED = "the device was removed from this server, or replaced"
MOVED = "the device moves to another server of the cluster: ask again"


class ServedDevices:
    """The devices of `inventory`. Any thread may change them between `open` and `close`."""

    def __init__(
        self,
        config: Config,
        inventory: Inventory,
        shards: Shards,
        recordings: Recordings | None,
        registry: StreamRegistry,
        publishers: Publishers,
    ) -> None:
        # What the server was started with, and what was applied last.
        self._started = self._config = config
        # The devices that are to be recorded by the settings.
        self._recorded = set(config.recorded)
        self._inventory = inventory
        self._shards = shards
        self._recordings = recordings
        self._registry = registry
        self._publishers = publishers
        # One change at a time, except for `take` and `give`: in a cluster, many devices come and go at the same time.
        self._changing = threading.Lock()
        # Each device that is here, as it was added.
        self._tables: dict[str, DeviceTable] = {}
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
        """Add the devices of the settings, with their recorders. In a cluster, `take` does that for each."""
        if self._config.cluster is None:
            for name, device in self._config.devices.items():
                self._add(name, device, record=device.record)

    def open_bridges(self) -> None:
        """Open the bridges of the settings. `TransportError` if a port is taken."""
        if self._config.cluster is None:
            for name, device in self._config.devices.items():
                if device.bridge is not None:
                    self._open_bridge(name, device.bridge)

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
        table = self._config.devices[device]
        self._add(device, table, record=device in self._recorded, guard=guard, first=first_seq)
        if table.bridge is not None:
            with _logged(device):
                self._open_bridge(device, table.bridge)

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
        """Add a device for a client. `RequestError` if the name is taken or not allowed, and in a cluster."""
        check_device_name(name, "name")
        self._check_alone()
        if record and self._recordings is None:
            raise RequestError("this server keeps no recordings", where="record", hint=HINT)
        with self._changing:
            self._add(name, DeviceTable(url=url), record=record)
            self._added.add(name)
        log.info("device added", device=name, url=public_url(url))

    def remove(self, name: str) -> bool:
        """Remove a device for a client: stop its streams, its recorder and its bridge, and close its line.

        Return False if the line is still in use; it is closed when that ends. `UnknownName` if there is no such device.
        """
        with self._changing:
            self._check_alone()
            closed = self._remove(name)
        log.info("device removed", device=name)
        return closed

    def keys_of(self, device: str, path: str) -> TextKeys | None:
        """Return how a text file is written, as the settings say for the first glob that matches; None if none does."""
        table = self._config.devices.get(device)
        globs = table.files if table is not None else {}
        return next((keys for glob, keys in globs.items() if fnmatchcase(path, glob)), None)

    def layout_of(self, device: str) -> RowLayout | None:
        """Return how the lines of a device become typed rows, as the settings say; None if they do not."""
        table = self._config.devices.get(device)
        return table.rows.declared if table is not None and table.rows is not None else None

    def apply(self, new: Config) -> None:
        """Change the devices to those of `new`, with their bridges and recorders. Devices that clients added stay.

        Unchanged devices are not touched. What fails for one device is logged, and the others are changed all the same.
        What cannot change while the server runs is logged. In a cluster, the devices that have changed are taken anew.
        """
        refused = needing_restart(self._started, new)
        if refused:
            log.warning("these changes need a restart of the server", changes=refused)
        with self._changing:
            old, self._config = self._config, new
            before = self._recorded
            if not any(key.startswith("recordings") for key in refused):
                self._recorded = set(new.recorded)
            present = old.devices if new.cluster is not None else self._tables
            gone = [name for name in old.devices if name not in new.devices and name not in self._added]
            removed = [name for name in gone if name in present]
            added = [name for name in new.devices if name not in present]
            kept = [name for name in new.devices if name in present]
            replaced = [name for name in kept if present[name].line != new.devices[name].line]
            changed = [name for name in kept if name not in replaced and _differs(name, old, new)]
            if new.cluster is None:
                self._change(old, new, added=added, removed=removed, replaced=replaced, recorded=before)
            for name in changed:
                if name in self._tables and old.outputs.get(name) != new.outputs.get(name):
                    with _logged(name):
                        self._publishers.stop(name)
                        self._publish(name)
        log.info(
            "the fleet file was read again",
            added=added,
            removed=removed,
            replaced=replaced,
            changed=changed,
            alerts=len(new.alert_rules),
        )

    def _change(
        self,
        old: Config,
        new: Config,
        *,
        added: Sequence[str],
        removed: Sequence[str],
        replaced: Sequence[str],
        recorded: Set[str],
    ) -> None:
        """Change the devices from `old`, of which the settings had `recorded`, to `new`."""
        is_recorded = self._recorded | {name for name in replaced if self._inventory.device(name).recording}
        for name in (*removed, *replaced):
            with _logged(name):
                self._remove(name)
        self._added -= new.devices.keys()
        # All before any is opened: a port may go from one device to another.
        for name in list(self._bridges):
            if _bridge_of(name, old) != _bridge_of(name, new):
                self._close_bridge(name)
        for name in (*replaced, *added):
            with _logged(name):
                self._add(name, new.devices[name], record=name in is_recorded)
        kept = new.devices.keys() - {*replaced, *added}
        self._tables.update((name, new.devices[name]) for name in kept)
        for name in (self._recorded - recorded) & kept:
            with _logged(name):
                self._record(name)
        for name in recorded - self._recorded:
            with _logged(name):
                self._forget(name)
        for name, device in new.devices.items():
            if device.bridge is not None and name in self._tables and name not in self._bridges:
                with _logged(name):
                    self._open_bridge(name, device.bridge)
                    log.info("device shared", device=name, at=self._bridges[name].ports.urls("127.0.0.1"))

    def _check_alone(self) -> None:
        """Raise `RequestError` if the devices belong to a cluster."""
        if self._config.cluster is not None:
            raise RequestError(
                "the devices of a cluster come from the fleet file",
                hint="Change it on all servers, and send them SIGHUP",
            )

    def _add(self, name: str, table: DeviceTable, *, record: bool, guard: Guard = unguarded, first: int = 0) -> None:
        def number(device: Device) -> None:
            if self._recordings is not None:
                self._recordings.number(device)
            if first > device.tap.next_seq:
                device.tap.begin_at(first)

        self._inventory.add(name, table.url, guard, number, agent=table.agent, grace=table.grace)
        self._tables[name] = table
        try:
            if record:
                self._record(name)
            self._publish(name)
            # After the recording has started, so that it misses nothing.
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
        del self._tables[name]
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
        if name in self._config.outputs:
            self._publishers.start(self._inventory.device(name), self._config.outputs[name])

    def _forget(self, name: str, drains: bool = True) -> None:
        if self._recordings is not None:
            self._recordings.forget(name, drains)

    def _open_bridge(self, name: str, table: BridgeTable) -> None:
        bridge = Bridge(DeviceFront(self._inventory.device(name)), table.ports, takeover=table.takeover)
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


def _follows(stream: Stream) -> bool:
    request = stream.resolved.request
    return isinstance(request, DeviceSession) and request.reconnect


def _bridge_of(name: str, config: Config) -> BridgeTable | None:
    return config.devices[name].bridge if name in config.devices else None


def _differs(name: str, old: Config, new: Config) -> bool:
    """Whether a device has other keys, or other passwords for its outputs."""
    return old.devices.get(name) != new.devices[name] or old.outputs.get(name) != new.outputs.get(name)


@contextlib.contextmanager
def _logged(device: str) -> Iterator[None]:
    """Log an error of the block, so that the other devices are changed all the same."""
    try:
        yield
    except FastFlightError as error:
        log.error("the device was not changed as the fleet file says", device=device, error=str(error))
