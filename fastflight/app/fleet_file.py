"""Reads a fleet file (`FleetFile`), and replaces keys. What is wrong is a `RequestError` that names file and key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fastflight.app.config import FleetFile
from fastflight.errors import RequestError, nearest
from fastflight.publish.address import ALERT_EXAMPLE
from fastflight.publish.address import EXAMPLE as PUBLISH_EXAMPLE
from fastflight.service.choices import DEVICE_NAME

# Schemas of SQL, of the server or of DuckDB, in lower case: tables of devices with these names could not be told apart.
RESERVED_NAMES = frozenset(("fastflight", "fleet", "information_schema", "pg_catalog"))
# Enough for thousands of boards; stops the reading of a disk image that was given by mistake.
MAX_FLEET_BYTES = 1024 * 1024
# What to write, by the name of a table, or of a key of a device.
EXAMPLES: Mapping[Any, str] = {
    "devices": 'As in [devices.weather] url = "serial:///dev/ttyACM0"',
    "bridge": "As in bridge = { rfc2217 = 2217, socket = 2218 }",
    "rows": 'As in rows = { format = "jsonl", schema = { temperature = "double" } }',
    "files": 'As in files = { "/log-*.csv" = { delimiter = ";", decimal = "," } }',
    "publish": PUBLISH_EXAMPLE,
    "limits": "As in [limits] streams = 1000",
    "recordings": 'As in [recordings] folder = "recordings", max_days = 30, max_bytes = "2GB"',
    "sql": 'As in [sql] memory = "512MB", seconds = 60',
    "relay": 'As in [relay] allow = ["127.0.0.1:2218"]',
    "auth": 'As in [auth] tokens = "tokens.json"',
    "tls": 'As in [tls] cert = "server.pem", key = "server.key", or --tls-cert and --tls-key together',
    "alerts": 'As in [[alerts]] device = "lab-*", silent = "60s", to = "https://hooks.example.org/lab"',
    "to": ALERT_EXAMPLE,
    "cluster": 'As in [cluster] fleet = "plant"',
}
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
# Values by table and key. Those that are None replace nothing.
Keys = Mapping[tuple[str, str], object]


def read_fleet_file(path: Path | None, keys: Keys) -> FleetFile:
    """Return the tables of a fleet file with these `keys`. Its paths are absolute if that of the file is.

    Without a file there are no devices.
    """
    tables = {"devices": {}} if path is None else _tables(path)
    for (table, key), value in keys.items():
        if value is not None and isinstance(content := tables.setdefault(table, {}), dict):
            content[key] = value
    try:
        fleet = FleetFile.model_validate(tables, context={"folder": folder_of(path)})
    except ValidationError as error:
        raise _refusal(error, "" if path is None else f"{path}: ") from error
    for name in fleet.devices:
        check_device_name(name, str(path))
    return fleet


def folder_of(path: Path | None) -> Path:
    """Return the folder for relative paths: that of the fleet file, or the present one without a file."""
    return Path() if path is None else path.parent


def _tables(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FLEET_BYTES + 1)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path)) from error
    if len(content) > MAX_FLEET_BYTES:
        raise RequestError(f"longer than {MAX_FLEET_BYTES} bytes: not a fleet file", where=str(path))
    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # not UTF-8, not TOML
        raise RequestError(f"not TOML: {error}", where=str(path)) from error
    except RecursionError:
        raise RequestError("nested too deep", where=str(path)) from None


def check_device_name(name: str, where: str) -> None:
    """Raise `RequestError` for a name that a device may not have."""
    if not DEVICE_NAME.fullmatch(name):
        raise RequestError(f"{name!r} is no name for a device", where=where, hint="Use letters, digits, _ . -")
    if name.lower() in RESERVED_NAMES:
        raise RequestError(f"{name!r} is the name of a schema in SQL", where=where, hint="Give the device another name")


def _refusal(error: ValidationError, before: str) -> RequestError:
    """Return the first error of a validation of `FleetFile`. Its `where` begins with `before`."""
    first = error.errors(include_url=False)[0]
    place = first["loc"]
    *tables, key = place
    where = f"{before}{'.'.join(map(str, place))}"
    if first["type"] in UNKNOWN:
        return RequestError("unknown key", where=where, hint=nearest(str(key), _keys(tables)))
    # Not the name of a device, which may be that of a table.
    named = (place[0], *place[2:]) if place[0] == "devices" else place
    example = next(EXAMPLES[part] for part in reversed(("devices", *named)) if part in EXAMPLES)
    return RequestError(first["msg"].removeprefix("Value error, "), where=where, hint=example)


def _keys(tables: Iterable[Any]) -> Iterable[str]:
    """Return the keys of the table that these names lead to, from the root of the file."""
    whole = FleetFile.model_json_schema()
    schema: Mapping[str, Any] = whole
    for part in tables:
        if isinstance(part, int):  # the place in a list
            continue
        below = schema["properties"][part] if "properties" in schema else schema["additionalProperties"]
        below = below.get("items", below)
        references = [each["$ref"] for each in (below, *below.get("anyOf", ())) if "$ref" in each]
        schema = whole["$defs"][references[0].rpartition("/")[2]] if references else below
    return list(schema["properties"])
