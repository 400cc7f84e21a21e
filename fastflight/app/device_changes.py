"""The actions by which clients change the devices of a server: `device.add` and `device.remove`.

A client may not add a device that would run a program on the server's computer (`exec:`) or open its folders
(`sim:?files=DIR`): only those who can write the fleet file may do that, not every administrator of the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from fastflight.access.action import Action, Body, Result
from fastflight.app.served_devices import ServedDevices
from fastflight.errors import RequestError
from fastflight.service.choices import DEVICE_NAME
from fastflight.service.requests import DeviceName
from fastflight.transport.sim import SimAddress
from fastflight.transport.url import MAX_URL_CHARACTERS, parse_url, public_url, scheme_of

# The kinds of devices that a client may add.
REMOTE_SCHEMES = ("serial:", "socket:", "rfc2217:", "sim:")


class NewDevice(Body):
    """`record`: also record the device."""

    name: Annotated[str, Field(pattern=f"^{DEVICE_NAME.pattern}$")]
    url: Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARACTERS)]
    record: bool = False


class RemovedDevice(Body):
    """The device to remove."""

    # Not `device`: to remove one takes the rights of an administrator of the server, as to add one does.
    name: DeviceName


def device_changes(served: ServedDevices) -> list[Action]:
    """Return the actions that change `served`."""

    def add(body: NewDevice) -> Iterable[Result]:
        _check_remote(body.url)
        served.add(body.name, body.url, record=body.record)
        return [{"name": body.name, "url": public_url(body.url)}]

    def remove(body: RemovedDevice) -> Iterable[Result]:
        return [{"name": body.name, "closed": served.remove(body.name)}]

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
