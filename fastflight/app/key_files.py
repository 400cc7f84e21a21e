"""Reads files that hold a secret or a certificate. `RequestError` names the file that cannot be used, and what to do.

Imports neither Arrow nor pydantic: commands that need no server read such files, too.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from fastflight.errors import RequestError

# A certificate chain has some kilobytes, a bundle of CAs some hundred.
MAX_PEM_BYTES = 1024 * 1024
MAX_SECRET_BYTES = 64 * 1024


def read_pem(path: Path) -> bytes:
    """Return the content of a PEM file."""
    content, _ = _read(path, MAX_PEM_BYTES + 1, "")
    if len(content) > MAX_PEM_BYTES or b"-----BEGIN " not in content:
        raise RequestError("not a PEM file", where=str(path), hint="It begins with -----BEGIN")
    return content


def read_secret(path: Path, hint: str, *, private: bool = False) -> str:
    """Return the secret in a file. `private`: other users may not read the file. `hint` is for a file without one."""
    content, mode = _read(path, MAX_SECRET_BYTES, hint)
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError as error:
        raise RequestError("not text", where=str(path), hint=hint) from error
    if private and sys.platform != "win32" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise RequestError("other users may read or write it", where=str(path), hint=f"chmod 600 {path}")
    if not secret:
        raise RequestError("it is empty", where=str(path), hint="Write the secret into it, in a line of its own")
    return secret


def read_password(path: Path) -> str:
    """Return the password in a file that other users may not read."""
    return read_secret(path, "password_file names a file with the password", private=True)


def _read(path: Path, max_bytes: int, hint: str) -> tuple[bytes, int]:
    """Return the first bytes of a file, and its mode."""
    try:
        with path.open("rb") as file:
            return file.read(max_bytes), os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path), hint=hint) from error
