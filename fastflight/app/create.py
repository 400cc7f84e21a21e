"""`create_server`: a server in the process of its caller, with the caller's own sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastflight.app.addresses import http_address
from fastflight.app.compose import open_server
from fastflight.app.config import Config, DeviceTable
from fastflight.app.own_sources import sources_of
from fastflight.app.running import RunningServer
from fastflight.client import DEFAULT_LOCATION


def create_server(
    location: str = DEFAULT_LOCATION,
    *,
    sources: Iterable[Any] = (),
    devices: Mapping[str, str] | None = None,
    http: str | None = None,
) -> RunningServer:
    """Start a server, which answers until its `close`. It is a context manager; `location` of it has the real port.

    `sources` are `Source` objects, or classes as for `Source.of`. `devices` are URLs by name. `http` is the port of the
    gateway, perhaps with a host. Raises `RequestError` for a wrong argument, and `TransportError` if an address cannot
    be listened on. The other settings of a server are options of `fastflight serve`.
    """
    return open_server(
        Config(
            location=location,
            devices={name: DeviceTable(url=url) for name, url in (devices or {}).items()},
            http=None if http is None else http_address(http),
            sources=sources_of((f"sources[{number}]", source) for number, source in enumerate(sources)),
        )
    )
