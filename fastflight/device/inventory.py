"""The devices of a process, by name: made from URLs at the start, closed together at the end."""

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
        """`urls`: name to device URL. Raises `RequestError` for a URL that cannot be understood.

        `lease_seconds`: how long a lease waits for another owner, where it does not say. `shards`: where devices are
        listened to, each on the one of its name.
        """
        self._devices = {
            name: Device(name, parse_url(url), lease_seconds, shards.of(name) if shards is not None else None)
            for name, url in urls.items()
        }

    def names(self) -> list[str]:
        """The names, in the order given."""
        return list(self._devices)

    def devices(self) -> list[Device]:
        """All devices, in the order given."""
        return list(self._devices.values())

    def device(self, name: str) -> Device:
        """One device; `UnknownName` when there is none of that name."""
        try:
            return self._devices[name]
        except KeyError:
            raise UnknownName("no such device", where=name, hint=nearest(name, self._devices)) from None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Read all lines for a `with` block, so that what a board says has the time at which it said it.

        A line that cannot be opened is tried again.
        """
        with contextlib.ExitStack() as lines:
            for device in self._devices.values():
                lines.enter_context(device.listen())
            yield

    def close(self) -> None:
        """Close all lines."""
        for device in self._devices.values():
            device.close()

    def __enter__(self) -> Inventory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
