"""What `serve` is told: where to listen, and which devices there are.

Devices come from `--device NAME=URL` and from a fleet file, where unknown keys are refused::

    [devices.weather]
    url = "serial:///dev/ttyACM0"
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from fastflight.client import DEFAULT_LOCATION
from fastflight.errors import RequestError, nearest

# The embedded default: needs no hardware and nothing to install.
DEFAULT_DEVICES = {"demo": "sim:"}
# A name stands before the colon of DEVICE:PATH, and globs choose among names: neither may be part of one.
DEVICE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
# A fleet of thousands of boards fits; a disk image given by mistake is not read to its end.
MAX_FLEET_BYTES = 1024 * 1024
SCHEMES = ("grpc", "grpc+tcp")
# In fleet files of other versions: known, so that their absence is said rather than called a misspelling.
NOT_AVAILABLE = ("bridge", "record")


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """A server: its address (port 0 takes a free one), and its devices, name to URL."""

    location: str = DEFAULT_LOCATION
    devices: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_DEVICES))


class _FleetDevice(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str


class _Fleet(BaseModel):
    model_config = ConfigDict(extra="forbid")

    devices: dict[str, _FleetDevice]


def settings_of(location: str, devices: Sequence[str], fleet: Path | None) -> ServeSettings:
    """The settings that a command line means. `RequestError` names the option and what is wrong with it."""
    check_location(location)
    chosen = _from_fleet(fleet) if fleet is not None else {}
    for text in devices:
        name, url = _from_option(text)
        if name in chosen:
            raise RequestError("two devices have this name", where=name, hint="Give each a name of its own")
        chosen[name] = url
    return ServeSettings(location, chosen or dict(DEFAULT_DEVICES))


def check_location(location: str) -> None:
    """Refuse an address that cannot be listened on, or that others than this computer could reach."""
    hint = f"Give one as {DEFAULT_LOCATION}"
    try:
        parts = urlsplit(location)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise RequestError(f"not an address: {error}", where=location, hint=hint) from error
    if parts.scheme not in SCHEMES or not host or port is None or parts.path.strip("/"):
        raise RequestError("not an address of a server", where=location, hint=hint)
    if not _is_loopback(host):
        raise RequestError(
            "only this computer's own addresses can be served",
            where=location,
            hint="There is no encryption and no login yet: whoever reaches the port owns the boards. "
            "Use 127.0.0.1, and a tunnel (ssh -L) from elsewhere",
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _from_option(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals or not url or not DEVICE_NAME.fullmatch(name):
        raise RequestError("not NAME=URL", where=f"--device {text}", hint="As in weather=serial:///dev/ttyACM0")
    return name, url


def _from_fleet(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FLEET_BYTES + 1)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path)) from error
    if len(content) > MAX_FLEET_BYTES:
        raise RequestError(f"longer than {MAX_FLEET_BYTES} bytes: not a fleet file", where=str(path))
    try:
        fleet = _Fleet.model_validate(tomllib.loads(content.decode()))
    except ValidationError as error:
        raise _refusal(path, error) from error
    except ValueError as error:  # not UTF-8, not TOML
        raise RequestError(f"not TOML: {error}", where=str(path)) from error
    for name in fleet.devices:
        if not DEVICE_NAME.fullmatch(name):
            raise RequestError(f"{name!r} is no name for a device", where=str(path), hint="Use letters, digits, _ . -")
    return {name: device.url for name, device in fleet.devices.items()}


def _refusal(path: Path, error: ValidationError) -> RequestError:
    first = error.errors(include_url=False)[0]
    where = f"{path}: {'.'.join(str(part) for part in first['loc'])}"
    key = str(first["loc"][-1])
    if first["type"] != "extra_forbidden":
        return RequestError(first["msg"], where=where, hint='As in [devices.weather] url = "serial:///dev/ttyACM0"')
    if key in NOT_AVAILABLE:
        return RequestError("not available in this version", where=where, hint="Remove the key")
    known = _FleetDevice.model_fields if len(first["loc"]) > 1 else _Fleet.model_fields
    return RequestError("unknown key", where=where, hint=nearest(key, known))
