"""The devices of a process, by name: created from URLs, added and removed while it runs, closed together at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from fastflight.concurrency import Shard, Shards
from fastflight.device.device import LEASE_SECONDS, Device
from fastflight.errors import RequestError, UnknownName, nearest
from fastflight.protocol.raw_repl import GRACE_SECONDS
from fastflight.transport import Address, parse_url
from fastflight.transport.port_tap import Guard, unguarded


class Inventory:
    """Devices by name. Any thread may look them up, also while another one adds or removes a device."""

    def __init__(
        self,
        urls: Mapping[str, str],
        lease_seconds: float = LEASE_SECONDS,
        shards: Shards | None = None,
        parse: Callable[[str], Address] = parse_url,
        agents: Collection[str] = (),
    ) -> None:
        """`urls` maps names to device URLs. Raises `RequestError` for a URL that cannot be parsed.

        `lease_seconds`: how long a lease waits for another owner if it gives no timeout. `shards`: the event loops on
        which devices are read; each device uses the shard of its name. `parse` returns the address for a URL. `agents`:
        the devices whose program runs the agent or aiorepl.
        """
        self._parse = parse
        self._lease_seconds = lease_seconds
        self.shards = shards
        # Held while a device is added or removed. A change replaces the dict, so readers need no lock.
        self._changing = threading.Lock()
        self._devices = {name: self._new(name, url, agent=name in agents) for name, url in urls.items()}
        # Removed devices whose line is not closed yet.
        self._removed: set[Device] = set()

    def names(self) -> list[str]:
        """The names, in the order in which the devices were added."""
        return list(self._devices)

    def devices(self) -> list[Device]:
        """All devices, in the same order."""
        return list(self._devices.values())

    def device(self, name: str) -> Device:
        """Return the device of that name. `UnknownName` if there is none."""
        devices = self._devices
        try:
            return devices[name]
        except KeyError:
            raise UnknownName("no such device", where=name, hint=nearest(name, devices)) from None

    def find(self, name: str) -> Device | None:
        """Return the device of that name; None if there is none."""
        return self._devices.get(name)

    def shard_of(self, name: str) -> Shard:
        """The event loop for a device of that name, whether there is one or not. `RuntimeError` without event loops."""
        if self.shards is None:
            raise RuntimeError("the inventory has no event loops")
        return self.shards.of(name)

    def add(
        self,
        name: str,
        url: str,
        guard: Guard = unguarded,
        prepare: Callable[[Device], object] = lambda device: None,
        *,
        agent: bool = False,
        grace: float = GRACE_SECONDS,
    ) -> Device:
        """Add a device and return it. Its line is opened when it is first needed.

        `guard`, `agent` and `grace` are those of `Device`. `prepare` gets the device before anybody can find and open
        it. Raises `RequestError` if the name is taken, or the URL cannot be parsed.
        """
        self._check_free(name)
        device = self._new(name, url, guard, agent=agent, grace=grace)
        prepare(device)
        with self._changing:
            self._check_free(name)
            self._devices = {**self._devices, name: device}
            return device

    def _check_free(self, name: str) -> None:
        if name in self._devices:
            raise RequestError(
                "there is a device of this name", where=name, hint="Choose another name, or remove that one first"
            )

    def remove(self, name: str) -> Device:
        """Take a device out, so that nobody finds it any more, and return it. Await `retire` next."""
        with self._changing:
            device = self.device(name)
            self._removed.add(device)
            self._devices = {each: other for each, other in self._devices.items() if each != name}
            return device

    async def retire(self, device: Device) -> None:
        """Close a removed device as soon as nobody owns it. Await it on the device's shard."""
        await device.aretire()
        with self._changing:
            self._removed.discard(device)

    def close(self) -> None:
        """Close all devices. Nobody may hold a lease."""
        for device in (*self._devices.values(), *self._removed):
            device.close()

    def _new(
        self, name: str, url: str, guard: Guard = unguarded, *, agent: bool, grace: float = GRACE_SECONDS
    ) -> Device:
        shard = None if self.shards is None else self.shards.of(name)
        return Device(name, self._parse(url), self._lease_seconds, shard, guard, agent=agent, grace=grace)

    def __enter__(self) -> Inventory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
