"""The settings of a server as one model: the tables of the fleet file, and what only options of `serve` set.

`FleetFile` is the file. `Config` adds the rest, and is what a server is made from; `fastflight.app.overlay` makes it
from a file and a command line. Unknown keys are errors, and relative paths are relative to the file::

    [devices.weather]
    url = "serial:///dev/ttyACM0"
    bridge = { rfc2217 = 2217, socket = 2218 }
    record = true
    agent = true
    collect = { path = "/log.csv", to = "collected", minutes = 10 }
    publish = ["mqtt://weather@broker.local?password_file=broker.password"]
    rows = { format = "jsonl", schema = { temperature = "double" }, units = { temperature = "°C" } }
    files = { "/log-*.csv" = { delimiter = ";", decimal = "," } }

    [[alerts]]
    crash = true
    to = "https://hooks.example.org/lab"

The docstrings below the keys are their texts in `docs/reference/settings.md`, which `docs/reference_pages.py` makes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, ValidationInfo, model_validator

from fastflight.bridge import Ports
from fastflight.client.answers import DEFAULT_LOCATION
from fastflight.cluster.lease import TTL_SECONDS
from fastflight.errors import RequestError
from fastflight.log import Retention
from fastflight.protocol.raw_repl import GRACE_SECONDS
from fastflight.publish import PublishSettings, RowFormat
from fastflight.publish.alert_targets import AlertTarget
from fastflight.publish.alerts import QUIET_SECONDS, AlertRule
from fastflight.runtime.admission import DEFAULT_LIMITS, Limits
from fastflight.service.choices import Decimal
from fastflight.service.requests import Character, TextKeys
from fastflight.sources import RowLayout
from fastflight.sources.file_cache import DEFAULT_BYTES
from fastflight.sources.recordings import SYNC_MS
from fastflight.sql.process import SqlLimits
from fastflight.tables import TextOptions

# All event loops share one interpreter lock. More of them do not make a server faster, they only isolate slow devices.
MAX_DEFAULT_SHARDS = 4
# Each shard has threads of its own.
MAX_SHARDS = 64
# What open streams get by default to end by themselves.
DRAIN_SECONDS = 5.0
# Enough for a large file to a slow board.
MAX_DRAIN_SECONDS = 3600.0
# A request waits for it.
MAX_GRACE_SECONDS = 60
MAX_COLLECT_MINUTES = 7 * 24 * 60
# Outputs of one device: each has its own connection.
MAX_OUTPUTS = 8
# Rules of alerts: each is looked at for each device, once a second.
MAX_ALERTS = 100
MAX_ALERT_SECONDS = 7 * 24 * 3600
# Each row waits for a sync, and each sync is work for the disk.
MIN_SYNC_MS, MAX_SYNC_MS = 10, 60_000
MAX_DAYS = 36_500
DAY_SECONDS = 86_400
# DuckDB needs some for its own tables.
MIN_MEMORY_BYTES = 32 << 20
# More threads than cores make no query faster, and each of them takes memory.
MAX_THREADS = 256
# A day: in effect no limit.
MAX_QUERY_SECONDS = 86_400
MAX_QUERIES = 1024
# A batch of many rows is as large, and larger batches than the maximum are refused on their way to the client.
MIN_ROW_BYTES, MAX_ROW_BYTES = 1 << 20, 48 << 20
SQL = SqlLimits()
# The tables whose keys a reload (SIGHUP) applies.
RELOADED = ("devices", "alerts")


def default_shards() -> int:
    """One event loop for each core that this process may use, at most `MAX_DEFAULT_SHARDS`."""
    affinity = getattr(os, "sched_getaffinity", None)  # on Linux only
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(cores, MAX_DEFAULT_SHARDS)


def resolve_path(folder: Path, path: str) -> Path:
    """Resolve a path of a fleet file: `~` is a home directory, and a relative path is relative to `folder`.

    `ValueError` for the home of an unknown user.
    """
    try:
        return folder / Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"no user here has the home of {path[:80]!r}: write the path in full") from None


def _path_of(value: object, info: ValidationInfo) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str):
        raise ValueError("Input should be a valid string")
    return resolve_path((info.context or {}).get("folder", Path()), value)


File = Annotated[Path, BeforeValidator(_path_of)]
TcpPort = Annotated[int, Field(ge=0, le=65535)]


class Table(BaseModel):
    """A table of the fleet file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class BridgeTable(Table):
    rfc2217: TcpPort | None = None
    """A port that speaks RFC 2217. 0 takes a free port."""
    socket: TcpPort | None = None
    """A port that carries the plain bytes. 0 takes a free port."""
    viewers: TcpPort | None = None
    """A port for any number of programs that only read."""
    takeover: bool = False
    """A new client takes the device over from the present one, instead of being refused."""

    @model_validator(mode="after")
    def _has_a_port(self) -> Self:
        if self.rfc2217 is None and self.socket is None:
            raise ValueError("a bridge needs a port: rfc2217, socket or both")
        return self

    @property
    def ports(self) -> Ports:
        return Ports(self.rfc2217, self.socket, self.viewers)


class CollectTable(Table):
    path: str
    """The log on the device."""
    to: File
    """The folder in which the device gets a folder. A relative path is relative to the fleet file."""
    minutes: Annotated[float, Field(gt=0, le=MAX_COLLECT_MINUTES)]
    """How often."""
    parquet: bool = False
    """Convert each part to Parquet."""


class RowsTable(Table):
    format: Literal["lines", "jsonl", "csv", "keys"] = "lines"
    """What the lines are: plain text, JSON objects, CSV rows or `key=value` pairs."""
    schema_: Annotated[dict[str, str] | None, Field(alias="schema")] = None
    """The type of each column, for all formats but `lines`."""
    delimiter: Character | None = None
    """The character between the cells of CSV rows; a blank stands for any number of blanks. By default a comma."""
    decimal: Decimal | None = None
    """The character before the fraction of a number in CSV rows: `.` or `,`. By default a point."""
    comment: Character | None = None
    """The character that begins a line to skip."""
    null_values: list[str] | None = None
    """Texts that mean null, besides an empty cell."""
    units: dict[str, str] = {}
    """The unit of a column, for Home Assistant and OpenTelemetry."""

    @model_validator(mode="after")
    def _can_be_parsed(self) -> Self:
        try:
            self.row_format  # noqa: B018
        except RequestError as error:
            raise ValueError(f"{error.where}: {error.what}. {error.hint}") from error
        return self

    @property
    def row_format(self) -> RowFormat:
        """How lines become published rows."""
        return RowFormat(self.layout, self.units)

    @property
    def layout(self) -> RowLayout | None:
        """How lines become the columns of published rows; None for plain text."""
        return None if self.format == "lines" else self.declared

    @property
    def declared(self) -> RowLayout:
        """How lines become typed rows."""
        nulls = None if self.null_values is None else tuple(self.null_values)
        text = TextOptions(delimiter=self.delimiter, decimal=self.decimal, comment=self.comment, null_values=nulls)
        return RowLayout(self.format, self.schema_, text)


class DeviceTable(Table):
    url: str
    """Where the device is: a [device URL](device-urls.md)."""
    bridge: BridgeTable | None = None
    """Network ports for other tools."""
    record: bool = False
    """Record the device from the start of the server."""
    agent: bool = False
    """The board's program runs [the agent](../agent.md): requests work while the program goes on."""
    grace: Annotated[float, Field(gt=0, le=MAX_GRACE_SECONDS)] = GRACE_SECONDS
    """Seconds that an interrupted program has to clean up (`finally:`), before it is interrupted again."""
    collect: CollectTable | None = None
    """[Collect a log](../agent.md#collect-a-log) of the device."""
    publish: Annotated[list[str], Field(max_length=MAX_OUTPUTS)] = []
    """URLs of up to 8 outputs to which the device's rows are sent. [Publish](../how-to/publish.md)"""
    servers: list[str] = []
    """The servers of a cluster that can own the device. By default all; a board on a cable needs the name of its
    server. [Cluster](../cluster.md)"""
    rows: RowsTable | None = None
    """How the device's lines are parsed, for published rows and for [typed rows](../recordings.md#typed-rows). Lines of
    format `lines` are text, and not recognised as a table."""
    # What the keys mean is in `docs/reference/keys.toml`, where requests have the same keys.
    files: dict[str, TextKeys] = {}

    @property
    def line(self) -> tuple[str, bool, float]:
        """What the device is made from: if it changes, the device is replaced."""
        return self.url, self.agent, self.grace


class RecordingsTable(Table):
    folder: File | None = None
    """The folder of the recordings, relative to the fleet file. By default `fastflight/recordings` in your data
    folder."""
    sync_ms: Annotated[int, Field(ge=MIN_SYNC_MS, le=MAX_SYNC_MS)] = SYNC_MS
    """How much traffic a power cut may cost, in milliseconds."""
    max_days: Annotated[float, Field(gt=0, le=MAX_DAYS)] | None = None
    """Rows that are older are deleted. By default none are."""
    max_bytes: Annotated[ByteSize, Field(gt=0)] | None = None
    """Above this size the oldest rows are deleted: a number, or text such as `"2GB"`. Not limited by default."""

    @property
    def retention(self) -> Retention:
        return Retention(None if self.max_days is None else self.max_days * DAY_SECONDS, self.max_bytes)


class SqlTable(Table):
    memory: Annotated[ByteSize, Field(ge=MIN_MEMORY_BYTES)] = ByteSize(SQL.memory_bytes)
    """The memory of one query: a number, or text such as `"512MB"`."""
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] = SQL.threads
    """The threads of one query."""
    seconds: Annotated[float, Field(gt=0, le=MAX_QUERY_SECONDS)] = SQL.seconds
    """How long the server may work on one query."""
    rows: Annotated[int, Field(ge=1)] = SQL.rows
    """The rows of one result."""
    row_bytes: Annotated[ByteSize, Field(ge=MIN_ROW_BYTES, le=MAX_ROW_BYTES)] = ByteSize(SQL.row_bytes)
    """The size of one row of a result: a number, or text such as `"16MB"`."""
    queries: Annotated[int, Field(ge=1, le=MAX_QUERIES)] = SQL.queries
    """Queries at a time. Each takes a process."""
    cache: File | None = None
    """The folder of the [cache](../sql.md#the-cache), relative to the fleet file. By default a temporary folder, until
    the server ends."""
    cache_bytes: Annotated[ByteSize, Field(ge=0)] = ByteSize(DEFAULT_BYTES)
    """The size of the cache: a number, or text such as `"1GB"`."""

    @property
    def limits(self) -> SqlLimits:
        return SqlLimits(self.memory, self.threads, self.seconds, self.rows, self.row_bytes, self.queries)


class RelayTable(Table):
    allow: list[str]
    """Targets to which clients of the gateway may open TCP streams, as `HOST:PORT`. [TCP relay](../relay.md)"""


class AuthTable(Table):
    tokens: File
    """The token file, made by `fastflight token`."""


class TlsTable(Table):
    cert: File
    """The server's certificate, PEM."""
    key: File
    """The key of the certificate, PEM."""
    client_ca: File | None = None
    """The CA that signs the clients' certificates, PEM. Without it, clients need no certificate."""


def _seconds_of(value: object) -> object:
    """Return a time such as `"90s"`, `"5m"`, `"2h"` or a number, in seconds."""
    if isinstance(value, str) and (found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", value)):
        return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]
    if isinstance(value, str):
        raise ValueError('Input should be a time, as in "90s", "5m" or "2h"')
    return value


Seconds = Annotated[float, BeforeValidator(_seconds_of), Field(ge=0, le=MAX_ALERT_SECONDS, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class AlertTable(Table):
    device: str = "*"
    """The devices to watch: a name, or a glob such as `"lab-*"`."""
    crash: bool = False
    """Report crashes."""
    silent: Annotated[Seconds, Field(ge=1)] | None = None
    """Report a device that has printed nothing for so long: `"60s"`, `"5m"`, `"2h"`, or a number of seconds."""
    column: str | None = None
    """Report this column of what the device prints, if it is `above` or `below` a number."""
    above: Number | None = None
    """The highest good value of the column."""
    below: Number | None = None
    """The lowest good value of the column."""
    for_: Annotated[Seconds, Field(alias="for")] = 0.0
    """How long the column must be beyond the limit. By default one row is enough."""
    quiet: Annotated[Seconds, Field(ge=1)] = QUIET_SECONDS
    """How long after a message about a device repeats are only counted."""
    to: str | list[str]
    """Where the message goes: `http://`, `https://`, `mqtt://` or `mqtts://`, or the words of a command."""

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        if (self.crash, self.silent is not None, self.column is not None).count(True) != 1:
            raise ValueError("an alert needs one of crash = true, silent and column")
        has_limit = self.above is not None or self.below is not None
        if (self.column is not None) != has_limit:
            raise ValueError("column needs above or below, or both" if self.column else "above and below need column")
        if self.for_ and self.column is None:
            raise ValueError("for needs column")
        if self.to in ("", []) or isinstance(self.to, list) and not self.to[0]:
            raise ValueError("to names no target")
        return self

    def rule(self, target: AlertTarget) -> AlertRule:
        """Return the rule, whose messages go to `target`."""
        return AlertRule(
            target,
            self.device,
            self.silent,
            self.crash,
            self.column or "",
            self.above,
            self.below,
            self.for_,
            self.quiet,
        )


class ClusterTable(Table):
    fleet: str = "fleet"
    """A name for the fleet: servers with another one are refused. [Cluster](../cluster.md)"""
    credentials: File | None = None
    """The credentials file for NATS, as `nsc` makes it. `FASTFLIGHT_NATS_CREDENTIALS` replaces it."""
    nkey: File | None = None
    """A file with the seed of an nkey for NATS. `FASTFLIGHT_NATS_NKEY` replaces it."""
    user: str | None = None
    """The user's name for NATS, together with `password_file`. `FASTFLIGHT_NATS_USER` replaces it."""
    password_file: File | None = None
    """A file with the password for NATS. `FASTFLIGHT_NATS_PASSWORD_FILE` replaces it."""
    nats_token_file: File | None = None
    """A file with the token for NATS, if it has `authorization { token }`. `FASTFLIGHT_NATS_TOKEN_FILE` replaces it."""
    ca: File | None = None
    """The CA of the NATS servers' certificates, PEM. `FASTFLIGHT_NATS_CA` replaces it."""
    cert: File | None = None
    """A certificate for NATS, PEM, if NATS wants one of its clients. `FASTFLIGHT_NATS_CERT` replaces it."""
    key: File | None = None
    """The key of that certificate, PEM. `FASTFLIGHT_NATS_KEY` replaces it."""
    token_file: File | None = None
    """A file with a token that has `admin:*`: servers with `[auth]` ask each other with it.
    `FASTFLIGHT_CLUSTER_TOKEN_FILE` replaces it."""
    server_ca: File | None = None
    """The CA of the servers' own certificates, PEM, for `[tls]`."""


class FleetFile(Table):
    """The fleet file."""

    # In strict mode pydantic makes no data class, as `Limits` is one, of a table.
    model_config = ConfigDict(strict=False, arbitrary_types_allowed=True)

    devices: dict[str, DeviceTable]
    limits: Limits = DEFAULT_LIMITS
    recordings: RecordingsTable | None = None
    sql: SqlTable = SqlTable()
    relay: RelayTable = RelayTable(allow=[])
    auth: AuthTable | None = None
    tls: TlsTable | None = None
    cluster: ClusterTable | None = None
    alerts: Annotated[list[AlertTable], Field(max_length=MAX_ALERTS)] = []


class RecordingSettings(RecordingsTable):
    """Where recordings are kept. `on_demand`: no setting names recordings, so the first `record` makes the folder."""

    folder: File
    on_demand: bool = False


class ClusterSettings(ClusterTable):
    """A server's place in a cluster. `name` is its own, `servers` are URLs of NATS, and `token` is for other servers.

    `location` is the address at which other servers reach this one; empty for the one that it listens on. `unreachable`
    are the devices that only other servers have, `local` those that only this one has. `ttl`, how long a lease lives
    without being renewed, is the same on all servers. The secrets were read from their files.
    """

    servers: tuple[str, ...]
    name: str
    location: str = ""
    password: Annotated[str | None, Field(repr=False)] = None
    nats_token: Annotated[str | None, Field(repr=False)] = None
    token: Annotated[str | None, Field(repr=False)] = None
    server_ca_pem: bytes | None = None
    unreachable: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()
    ttl: float = TTL_SECONDS


class Config(FleetFile):
    """A server: its address `location` (port 0 takes a free one), its devices, and all the rest.

    Without any device given, the device is a simulated board, which needs no hardware. `recordings` is None where
    nothing can be recorded, `cluster` for a server on its own. Without `auth`, everybody who reaches the port may do
    everything. `shards` is the number of event loops that read devices.
    """

    location: str = DEFAULT_LOCATION
    devices: dict[str, DeviceTable] = {"demo": DeviceTable(url="sim:")}
    recordings: RecordingSettings | None = None
    cluster: ClusterSettings | None = None
    shards: int = Field(default_factory=default_shards)
    # Host and port of the gateway; None for no gateway.
    http: tuple[str, int] | None = None
    # Host names by which other computers reach the gateway.
    http_hosts: tuple[str, ...] = ()
    # Origins of pages elsewhere that may send requests to the gateway.
    origins: tuple[str, ...] = ()
    # The user's own sources (`fastflight.service.own_source.Source`).
    sources: tuple[Any, ...] = ()
    # What devices publish, by name, with the passwords of the outputs.
    outputs: Mapping[str, PublishSettings] = {}
    # The rules of alerts, with the passwords of their targets.
    alert_rules: tuple[AlertRule, ...] = ()
    # Open streams get this long to end by themselves when the server shuts down.
    drain_seconds: float = DRAIN_SECONDS
    log_debug: bool = False
    # Accept request ids and trace context from unauthenticated clients, too.
    trace: bool = False

    @property
    def urls(self) -> dict[str, str]:
        """The URL of each device."""
        return {name: device.url for name, device in self.devices.items()}

    @property
    def recorded(self) -> list[str]:
        """The devices that are recorded from the start, if recordings are kept."""
        return [] if self.recordings is None else [name for name, device in self.devices.items() if device.record]


def is_reloaded(key: str) -> bool:
    """Whether a reload applies a key of the fleet file, as `devices.weather.url`. Others need a restart."""
    return key.partition(".")[0] in RELOADED


def needing_restart(old: Config, new: Config) -> list[str]:
    """Return the keys of the fleet file that differ and that a reload does not apply, as `limits.streams`."""
    # These follow the devices.
    exclude: Any = {**dict.fromkeys(RELOADED, True), "recordings": {"on_demand"}, "cluster": {"unreachable", "local"}}
    before, after = (each.model_dump(include={*FleetFile.model_fields}, exclude=exclude) for each in (old, new))
    changed: list[str] = []
    for table, values in before.items():
        if values is None or after[table] is None:
            changed += [table] if values is not after[table] else []
        else:
            changed += [f"{table}.{key}" for key, value in values.items() if value != after[table][key]]
    return changed
