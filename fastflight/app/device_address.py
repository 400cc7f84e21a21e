"""Addresses of devices with their passwords, which are read here: from a file, or from the environment."""

from __future__ import annotations

import os
from pathlib import Path

from fastflight.app.key_files import read_password
from fastflight.errors import RequestError
from fastflight.service.choices import DEVICE_NAME
from fastflight.transport import Address, parse_url
from fastflight.transport.port import LockedAddress

# The password of WebREPL devices whose URL does not say where it is.
PASSWORD_VARIABLE = "FASTFLIGHT_WEBREPL_PASSWORD"  # noqa: S105  # the name of a variable


def name_and_url(text: str, name: str) -> tuple[str, str]:
    """Split `NAME=URL`, the value of `--device`. A URL alone gets the default `name`."""
    given, equals, url = text.partition("=")
    return (given, url) if equals and DEVICE_NAME.fullmatch(given) else (name, text)


def device_address(url: str) -> Address:
    """Return the address for a device URL. `RequestError` if the URL is wrong or its password cannot be read."""
    address = parse_url(url)
    if not isinstance(address, LockedAddress):
        return address
    if address.password_file is not None:
        return address.unlocked(read_password(Path(address.password_file)))
    name = address.password_env or PASSWORD_VARIABLE
    password = os.environ.get(name, "")
    if address.password_env and not password:
        raise RequestError(f"the variable {name} is not set", where=address.url, hint="It holds the board's password")
    return address.unlocked(password)
