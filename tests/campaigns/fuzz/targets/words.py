"""What people write on the command line: it is understood, or refused in words of its own. Nothing is opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from fastflight.access.identity import scopes
from fastflight.app.overlay import read_config
from fastflight.cli.arguments import last_name, schema_of, target
from fastflight.cli.replay import _bound
from fastflight.cli.token import period
from fastflight.client.credentials import Credentials
from fastflight.errors import RequestError
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target

HERE = "grpc://127.0.0.1:0"


def credentials(text: str) -> object:
    """What may be shown where, and whether it may go on to a location that a server tells of."""
    shown = Credentials(token="token")
    return shown.options(text), shown.may_follow("grpc+tls://a:1", text), shown.may_follow(text, "grpc://a:1")


READ: tuple[Callable[[str], Any], ...] = (
    lambda text: target(text),
    lambda text: target(text, folder=True).under("x"),
    schema_of,
    last_name,
    lambda text: _bound("--from", "from", text),
    period,
    lambda text: read_config(text, [], None),
    lambda text: read_config(HERE, [text], None),
    lambda text: read_config(HERE, [], None, http=text),
    lambda text: read_config(HERE, [], None, http="0", origins=[text]),
    lambda text: scopes(text.split(",")),
    credentials,
)


def run(data: bytes) -> None:
    material = Material(data)
    read, text = material.pick(READ), material.stretched().decode("utf-8", "surrogateescape")
    try:
        read(text)
    except (RequestError, typer.BadParameter) as error:
        assert str(error)


TARGET = Target(
    run,
    seeds=(
        b"\x00\x00demo:/readings.csv",
        b"\x01\x00demo:",
        b"\x02\x00time=timestamp[us],celsius=double",
        b'\x02\x00{"a": "decimal128(9, 2)"}',
        b"\x02\xff{\"a\":[",
        b"\x03\x00../a/b\\c",
        b"\x04\x002026-11-20 08:00",
        b"\x04\x008:00:01.5",
        b"\x04\xff1",
        b"\x05\x0090d",
        b"\x06\x00grpc+tls://[::1]:8815",
        b"\x07\x00weather=serial:///dev/ttyACM0?baud=9600",
        b"\x08\x00[::1]:8000",
        b"\x09\x00https://page.example:8443",
        b"\x0a\x00read:*,write:weather-*",
        b"\x0b\x00grpc+tls://board.local:8815",
    ),
    past=(b'\x02\xff{"a":[', b"\x04\xff1"),
)  # fmt: skip
