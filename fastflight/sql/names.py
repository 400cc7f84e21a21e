"""Names of tables in SQL: `server.demo."readings.csv"`. The catalog is the server, a schema a device."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Queries keep their meaning when a server moves, so this is not the name of its computer.
CATALOG = "server"
# The schema of the tables about the server itself.
OWN_SCHEMA = "fastflight"
RECORDING = "recording"
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
# Words that would need quotes as well, of those that are likely names.
_RESERVED = frozenset(
    "all and any as case default end from group in limit not null on or order select table to".split()
)


def quoted(name: str) -> str:
    """Return a name as SQL takes it, always in quotes."""
    return '"' + name.replace('"', '""') + '"'


def shown(path: Iterable[str]) -> str:
    """Return a qualified name as people write it: in quotes only where these are needed."""
    plain = (part if _PLAIN.fullmatch(part) and part not in _RESERVED else quoted(part) for part in path)
    return ".".join(plain)


def table_of_path(path: str) -> str:
    """Return the name of a file's table: its path without the leading slash, except for `/recording`."""
    name = path.lstrip("/")
    return f"/{name}" if name.lower() == RECORDING else name
