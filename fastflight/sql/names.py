"""Names of tables in SQL: `server.demo."readings.csv"`. The catalog is the server, a schema a device."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from fastflight.errors import RequestError
from fastflight.service.requests import MAX_GLOB_CHARACTERS

# Queries keep their meaning when a server moves, so this is not the name of its computer.
CATALOG = "server"
# The schema of the tables about the server itself.
OWN_SCHEMA = "fastflight"
# The schema with the standard's views of all tables.
STANDARD = "information_schema"
# The schema of the tables of all boards together.
FLEET = "fleet"
# The tables of a recording: its traffic, the typed rows that the device prints, and what is missing.
RECORDING, ROWS, GAPS = "recording", "rows", "gaps"
# The typed rows that are in memory, and the lines of the recording, or in memory.
LIVE, LINES = "live", "lines"
# Files of these names are written with their leading slash.
TAKEN = (RECORDING, ROWS, GAPS, LIVE, LINES)
# DuckDB's databases, in lower case. It takes `temp.t` for a table of the database, and not of the schema.
DATABASES = frozenset((CATALOG, "memory", "system", "temp"))
# In a pattern of SQL: an escaped character, a wildcard, or a character that is special in a glob.
_PART = re.compile(r"\\([%_\\])|([%_])|([*?\[])")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
# Reserved words that are likely names of files or devices. SQL takes them as names only in quotes.
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
    """Return the name of a file's table: its path without the leading slash, unless it is one of `TAKEN`."""
    name = path.lstrip("/")
    return f"/{name}" if name.lower() in TAKEN else name


def like(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern of SQL: `%` is any text, `_` any character, and `\\` makes them plain.

    `RequestError` if the pattern is too long. The time for a name is at most the product of both lengths.
    """
    if len(pattern) > MAX_GLOB_CHARACTERS:
        raise RequestError(f"a pattern has at most {MAX_GLOB_CHARACTERS} characters", where="pattern")
    return fnmatchcase(name, _PART.sub(_as_glob, pattern))


def _as_glob(part: re.Match[str]) -> str:
    escaped, wildcard, special = part.groups()
    if wildcard:
        return "*" if wildcard == "%" else "?"
    return f"[{special}]" if special else str(escaped)
