"""Addresses of devices with their passwords, which are read here: from a file, or from the environment."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from fastflight.errors import RequestError
from fastflight.transport import Address, parse_url
from fastflight.transport.port import LockedAddress

# The password of WebREPL devices whose URL does not say where it is.
PASSWORD_VARIABLE = "FASTFLIGHT_WEBREPL_PASSWORD"  # noqa: S105  # the name of a variable
MAX_PASSWORD_BYTES = 64 * 1024


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


def read_password(path: Path) -> str:
    """Return the password in a file. `RequestError` if it cannot be read, is empty, or other users may read it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_PASSWORD_BYTES)
        password = content.decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise RequestError(reason, where=str(path), hint="password_file names a file with the password") from error
    if sys.platform != "win32" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise RequestError("other users may read or write it", where=str(path), hint=f"chmod 600 {path}")
    if not password:
        raise RequestError("it is empty", where=str(path), hint="Write the password into it")
    return password
