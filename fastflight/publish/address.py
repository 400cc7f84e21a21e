"""URLs of outputs: where the rows of a device are published.

============================================  ==================================  ====================================
URL                                           goes to                             options
============================================  ==================================  ====================================
`mqtt://[USER@]HOST[:1883][/TOPIC]`           an MQTT broker                      `discovery`
`influx://[USER@]HOST[:8086]?bucket=B&org=O`  InfluxDB 2, or 1.8 and newer        `bucket` and `org`
`influx://[USER@]HOST[:8086]?db=NAME`         InfluxDB 1                          `db`
`otlp://[USER@]HOST[:4318][/PATH]`            an OpenTelemetry collector, HTTP
`plotjuggler://HOST[:9871]`                   PlotJuggler's WebSocket server
============================================  ==================================  ====================================

Alerts go to `mqtt` URLs, whose path is the topic, and to webhooks: `http://[USER@]HOST[/PATH][?OPTIONS]`, whose other
options belong to the receiver.

With `https`, `mqtts`, `influxs` and `otlps` the connection is encrypted; `ca=FILE` names the CA if it is not a public
one. A URL has no password: `password_file=FILE` or `password_env=NAME` say where it is. The caller reads these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from fastflight.errors import RequestError, nearest

Kind = Literal["mqtt", "influx", "otlp", "plotjuggler", "http"]
# The default port of each scheme.
PORTS = {
    "mqtt": 1883,
    "mqtts": 8883,
    "influx": 8086,
    "influxs": 8086,
    "otlp": 4318,
    "otlps": 4318,
    "plotjuggler": 9871,
}
ALERT_PORTS = {"http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883}
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "mqtt": ("discovery",),
    "influx": ("bucket", "org", "db"),
    "otlp": (),
    "plotjuggler": (),
}
SECRET_OPTIONS = ("password_file", "password_env")
OWN_OPTIONS = ("ca", *SECRET_OPTIONS)
# Longer URLs are not addresses but mistakes.
MAX_URL_CHARACTERS = 2048
EXAMPLE = 'As in publish = ["mqtt://broker.local", "influx://127.0.0.1:8086?db=boards"]'
ALERT_EXAMPLE = 'As in to = "https://hooks.example.org/lab", "mqtt://broker.local/alerts" or ["/usr/local/bin/page-me"]'


@dataclass(frozen=True, slots=True)
class OutputAddress:
    """A parsed URL. `label` names the output in messages and metrics."""

    url: str
    kind: Kind
    encrypted: bool
    host: str
    port: int
    user: str = ""
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    password: str = field(default="", repr=False)

    @property
    def label(self) -> str:
        """The URL without its user and options, and without the path of a webhook, which is often a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = self.path if self.kind != "http" else ""
        return f"{self.url.partition(':')[0]}://{host}:{self.port}{path}"


def parse_output(url: str) -> OutputAddress:
    """Parse the URL of an output. `RequestError` says what is wrong and never quotes a password."""
    return _parse(url, "publish", PORTS, EXAMPLE, OPTIONS)


def parse_alert_target(url: str) -> OutputAddress:
    """As `parse_output`, for the URL to which alerts go."""
    return _parse(url, "to", ALERT_PORTS, ALERT_EXAMPLE, {})


def _parse(
    url: str, key: str, ports: Mapping[str, int], example: str, options: Mapping[str, tuple[str, ...]]
) -> OutputAddress:
    try:
        parts = urlsplit(url)
        host, port, password = parts.hostname, parts.port, parts.password
    except ValueError as error:
        raise RequestError(f"not a URL: {error}", where=key, hint=example) from error
    where = f"{key} {parts.scheme}://{host or ''}"
    if parts.scheme not in ports:
        raise RequestError("unknown kind of output", where=where, hint=nearest(parts.scheme, ports))
    if password is not None:
        raise RequestError(
            "a URL may not hold a password", where=where, hint="Put it into a file: ?password_file=FILE, chmod 600"
        )
    if not host or len(url) > MAX_URL_CHARACTERS or not url.isprintable() or " " in url:
        raise RequestError("not the URL of an output", where=where, hint=example)
    if "#" in url:
        raise RequestError("text after # is not part of a URL", where=where, hint="Write %23 for the character")
    kind: Kind = parts.scheme.removesuffix("s")  # type: ignore[assignment]
    address = OutputAddress(
        url,
        kind,
        parts.scheme != kind,
        host,
        port or ports[parts.scheme],
        unquote(parts.username or ""),
        parts.path if kind == "http" else unquote(parts.path.rstrip("/")),
        _options(parts.query, kind, where, options.get(kind, ())),
    )
    _check(address, where)
    return address


def _options(query: str, kind: Kind, where: str, of_kind: tuple[str, ...]) -> dict[str, str]:
    known = () if kind == "plotjuggler" else (*of_kind, *OWN_OPTIONS)
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known and kind != "http":
            raise RequestError(f"unknown option {name!r}", where=where, hint=nearest(name, known))
        if name in options or not value:
            problem = "is given twice" if name in options else "has no value"
            raise RequestError(f"the option {name} {problem}", where=where, hint=f"Write {name}=VALUE once")
        options[name] = value
    return options


def _check(address: OutputAddress, where: str) -> None:
    options = address.options
    if all(name in options for name in SECRET_OPTIONS):
        raise RequestError("password_file and password_env exclude each other", where=where, hint="Give one of them")
    if address.kind == "influx" and ("db" in options) == ("bucket" in options):
        hint = "Give db=NAME for InfluxDB 1, or bucket=NAME&org=NAME for InfluxDB 2"
        raise RequestError("it does not say where to write", where=where, hint=hint)
    if address.kind == "influx" and address.path:
        raise RequestError("an influx URL has no path", where=where, hint="As in influx://127.0.0.1:8086?db=boards")
    if address.kind == "plotjuggler" and (address.path or address.user):
        raise RequestError("it has a host and a port only", where=where, hint="As in plotjuggler://127.0.0.1:9871")
    if address.kind == "mqtt":
        if not address.user and any(name in options for name in SECRET_OPTIONS):
            raise RequestError("a password needs a user", where=where, hint="As in mqtt://weather@broker.local?...")
        for text in (address.path, options.get("discovery", "")):
            if any(character in "#+\0" for character in text) or "//" in text:
                raise RequestError(
                    f"{text!r} is no beginning of a topic: it has +, # or an empty level",
                    where=where,
                    hint="As in mqtt://broker.local/lab/boards",
                )
