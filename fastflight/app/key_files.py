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


def read_password(path: Path) -> str:
    """Return the password in a file that other users may not read."""
    hint = "password_file names a file with the password"
    content, mode = _read(path, MAX_SECRET_BYTES, hint)
    try:
        password = content.decode().strip()
    except UnicodeDecodeError as error:
        raise RequestError("not text", where=str(path), hint=hint) from error
    if sys.platform != "win32" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise RequestError("other users may read or write it", where=str(path), hint=f"chmod 600 {path}")
    if not password:
        raise RequestError("it is empty", where=str(path), hint="Write the password into it")
    return password


def read_secret(path: Path, example: str) -> str:
    """Return the secret in a file. `example` is the hint if there is no such file."""
    secret = _read(path, MAX_SECRET_BYTES, example)[0].decode(errors="replace").strip()
    if not secret:
        raise RequestError("it is empty", where=str(path), hint="Write the secret into it, in a line of its own")
    return secret


def _read(path: Path, max_bytes: int, hint: str) -> tuple[bytes, int]:
    """Return the first bytes of a file, and its mode."""
    try:
        with path.open("rb") as file:
            return file.read(max_bytes), os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path), hint=hint) from error
