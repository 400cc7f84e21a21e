"""The fleet file: a TOML file with the devices of a server and its settings. Unknown keys are errors::

    [devices.weather]
    url = "serial:///dev/ttyACM0"
    bridge = { rfc2217 = 2217, socket = 2218 }
    record = true

    [limits]
    streams = 1000
    per_device = 64

    [relay]
    allow = ["127.0.0.1:2218"]

The tables of recordings are in `fastflight.app.recording_settings`, that of SQL is in `fastflight.app.sql_settings`,
and those of tokens and TLS are in `fastflight.app.access_settings`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fastflight.app.access_settings import AUTH_EXAMPLE, TLS_EXAMPLE, FleetAuth, FleetTls
from fastflight.app.cluster_settings import EXAMPLE as CLUSTER_EXAMPLE
from fastflight.app.cluster_settings import FleetCluster
from fastflight.app.collecting import FleetCollect
from fastflight.app.publish_settings import EXAMPLE as ROWS_EXAMPLE
from fastflight.app.publish_settings import FleetOutputs, FleetRows
from fastflight.app.recording_settings import EXAMPLE as RECORDINGS_EXAMPLE
from fastflight.app.recording_settings import FleetRecordings
from fastflight.app.sql_settings import EXAMPLE as SQL_EXAMPLE
from fastflight.app.sql_settings import FleetSql
from fastflight.errors import RequestError, nearest
from fastflight.protocol.raw_repl import GRACE_SECONDS
from fastflight.publish.address import EXAMPLE as PUBLISH_EXAMPLE
from fastflight.runtime.admission import DEFAULT_LIMITS
from fastflight.service.choices import DEVICE_NAME
from fastflight.service.requests import TextKeys

# Schemas of SQL, of the server or of DuckDB, in lower case: tables of devices with these names could not be told apart.
RESERVED_NAMES = frozenset(("fastflight", "information_schema", "pg_catalog"))
# Enough for thousands of boards; stops the reading of a disk image that was given by mistake.
MAX_FLEET_BYTES = 1024 * 1024
# A client that would wait longer for admission is refused, and can come back.
MAX_WAIT_SECONDS = 300
# A day: in effect no limit.
MAX_SILENT_SECONDS = 86_400
# A request waits for it.
MAX_GRACE_SECONDS = 60
EXAMPLE = 'As in [devices.weather] url = "serial:///dev/ttyACM0"'
LIMITS_EXAMPLE = "As in [limits] streams = 1000"
RELAY_EXAMPLE = 'As in [relay] allow = ["127.0.0.1:2218"]'
FILES_EXAMPLE = 'As in files = { "/log-*.csv" = { delimiter = ";", decimal = "," } }'
BRIDGE_EXAMPLE = "As in bridge = { rfc2217 = 2217, socket = 2218 }"

_TcpPort = Annotated[int, Field(ge=0, le=65535, strict=True)]


class FleetBridge(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rfc2217: _TcpPort | None = None
    socket: _TcpPort | None = None
    viewers: _TcpPort | None = None
    takeover: bool = False

    @model_validator(mode="after")
    def _has_a_port(self) -> Self:
        if self.rfc2217 is None and self.socket is None:
            raise ValueError("a bridge needs a port: rfc2217, socket or both")
        return self


class FleetDevice(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str
    bridge: FleetBridge | None = None
    record: Annotated[bool, Field(strict=True)] = False
    agent: Annotated[bool, Field(strict=True)] = False
    # What an interrupted program gets to clean up, in seconds.
    grace: Annotated[float, Field(gt=0, le=MAX_GRACE_SECONDS)] = GRACE_SECONDS
    collect: FleetCollect | None = None
    publish: FleetOutputs = []
    # The servers of a cluster that can own the device; all that can reach it if this is empty.
    servers: list[str] = []
    rows: FleetRows | None = None
    # How the text files whose paths match a glob are written.
    files: dict[str, TextKeys] = {}


class FleetLimits(BaseModel):
    model_config = ConfigDict(extra="forbid")

    streams: Annotated[int, Field(ge=1, strict=True)] = DEFAULT_LIMITS.streams
    per_identity: Annotated[int | None, Field(ge=1, strict=True)] = DEFAULT_LIMITS.per_identity
    per_device: Annotated[int, Field(ge=1, strict=True)] = DEFAULT_LIMITS.per_device
    calls: Annotated[int, Field(ge=1, strict=True)] = DEFAULT_LIMITS.calls
    waiting: Annotated[int, Field(ge=0, strict=True)] = DEFAULT_LIMITS.waiting
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = DEFAULT_LIMITS.wait_seconds
    silent_seconds: Annotated[float, Field(gt=0, le=MAX_SILENT_SECONDS)] = DEFAULT_LIMITS.silent_seconds
    stalled_seconds: Annotated[float, Field(gt=0, le=MAX_SILENT_SECONDS)] = DEFAULT_LIMITS.stalled_seconds
    idle_seconds: Annotated[float, Field(gt=0, le=MAX_SILENT_SECONDS)] = DEFAULT_LIMITS.idle_seconds


class FleetRelay(BaseModel):
    model_config = ConfigDict(extra="forbid")

    allow: list[str]


class FleetTables(BaseModel):
    model_config = ConfigDict(extra="forbid")

    devices: dict[str, FleetDevice]
    limits: FleetLimits = FleetLimits()
    recordings: FleetRecordings | None = None
    sql: FleetSql = FleetSql()
    relay: FleetRelay = FleetRelay(allow=[])
    auth: FleetAuth | None = None
    tls: FleetTls | None = None
    cluster: FleetCluster | None = None


# The tables of a fleet file that do not name devices.
TABLES: Mapping[int | str, type[BaseModel]] = {
    "limits": FleetLimits,
    "recordings": FleetRecordings,
    "sql": FleetSql,
    "relay": FleetRelay,
    "auth": FleetAuth,
    "tls": FleetTls,
    "cluster": FleetCluster,
}
TABLE_EXAMPLES: Mapping[int | str, str] = {
    "limits": LIMITS_EXAMPLE,
    "recordings": RECORDINGS_EXAMPLE,
    "sql": SQL_EXAMPLE,
    "relay": RELAY_EXAMPLE,
    "auth": AUTH_EXAMPLE,
    "tls": TLS_EXAMPLE,
    "cluster": CLUSTER_EXAMPLE,
}

# The models of the tables in a device's entry.
KEYS_OF: Mapping[str, type[BaseModel]] = {"rows": FleetRows, "files": TextKeys}


def read_fleet_file(path: Path) -> FleetTables:
    """Return the tables of a fleet file. `RequestError` names the file, and the key that is wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FLEET_BYTES + 1)
    except OSError as error:
        raise RequestError(error.strerror or "cannot be read", where=str(path)) from error
    if len(content) > MAX_FLEET_BYTES:
        raise RequestError(f"longer than {MAX_FLEET_BYTES} bytes: not a fleet file", where=str(path))
    try:
        fleet = FleetTables.model_validate(tomllib.loads(content.decode()))
    except ValidationError as error:
        raise _refusal(path, error) from error
    except ValueError as error:  # not UTF-8, not TOML
        raise RequestError(f"not TOML: {error}", where=str(path)) from error
    except RecursionError:
        raise RequestError("nested too deep", where=str(path)) from None
    for name in fleet.devices:
        check_device_name(name, str(path))
    return fleet


def check_device_name(name: str, where: str) -> None:
    """Raise `RequestError` for a name that a device may not have."""
    if not DEVICE_NAME.fullmatch(name):
        raise RequestError(f"{name!r} is no name for a device", where=where, hint="Use letters, digits, _ . -")
    if name.lower() in RESERVED_NAMES:
        raise RequestError(f"{name!r} is the name of a schema in SQL", where=where, hint="Give the device another name")


def _refusal(path: Path, error: ValidationError) -> RequestError:
    first = error.errors(include_url=False)[0]
    where = f"{path}: {'.'.join(str(part) for part in first['loc'])}"
    key = str(first["loc"][-1])
    table = first["loc"][0]
    if first["type"] != "extra_forbidden":
        examples = {"bridge": BRIDGE_EXAMPLE, "rows": ROWS_EXAMPLE, "files": FILES_EXAMPLE, "publish": PUBLISH_EXAMPLE}
        example = TABLE_EXAMPLES.get(table, next((examples[key] for key in first["loc"] if key in examples), EXAMPLE))
        return RequestError(first["msg"].removeprefix("Value error, "), where=where, hint=example)
    models: dict[int, type[BaseModel]] = {1: FleetTables, 3: FleetDevice}
    of_device = next((KEYS_OF[part] for part in KEYS_OF if part in first["loc"]), FleetBridge)
    model = TABLES[table] if table in TABLES and len(first["loc"]) > 1 else models.get(len(first["loc"]), of_device)
    return RequestError("unknown key", where=where, hint=nearest(key, model.model_fields))
