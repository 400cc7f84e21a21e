"""The devices of a process, by name: created from URLs at the start, closed together at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from fastflight.concurrency import Shards
from fastflight.device.device import LEASE_SECONDS, Device
from fastflight.errors import UnknownName, nearest
from fastflight.transport import parse_url


class Inventory:
    """Devices by name."""

    def __init__(
        self, urls: Mapping[str, str], lease_seconds: float = LEASE_SECONDS, shards: Shards | None = None
    ) -> None:
        """`urls` maps names to device URLs. Raises `RequestError` for a URL that cannot be parsed.

        `lease_seconds`: how long a lease waits for another owner if it gives no timeout. `shards`: the event loops on
        which devices are read; each device uses the shard of its name.
        """
        self._devices = {
            name: Device(name, parse_url(url), lease_seconds, shards.of(name) if shards is not None else None)
            for name, url in urls.items()
        }

    def names(self) -> list[str]:
        """The names, in the order of `urls`."""
        return list(self._devices)

    def devices(self) -> list[Device]:
        """All devices, in the order of `urls`."""
        return list(self._devices.values())

    def device(self, name: str) -> Device:
        """Return the device of that name. `UnknownName` if there is none."""
        try:
            return self._devices[name]
        except KeyError:
            raise UnknownName("no such device", where=name, hint=nearest(name, self._devices)) from None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Read all lines during a `with` block, so that output has the time at which the board sent it.

        A line that cannot be opened is tried again.
        """
        with contextlib.ExitStack() as lines:
            for device in self._devices.values():
                lines.enter_context(device.listen())
            yield

    def close(self) -> None:
        """Close all devices. Nobody may hold a lease."""
        for device in self._devices.values():
            device.close()

    def __enter__(self) -> Inventory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
