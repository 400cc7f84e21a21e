"""What a publisher needs of an output, and how to open one. Each kind of output is a module."""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from fastflight.errors import RequestError
from fastflight.publish.address import OutputAddress
from fastflight.publish.rows import RowFormat

# How long an output may take to connect, or to acknowledge what it was sent.
ANSWER_SECONDS = 10.0


class Refusal(NamedTuple):
    """Rows that the output will never take, and why. They are not sent again."""

    rows: int
    reason: str


class Message(NamedTuple):
    """Rows in the form in which an output sends them, and how many they are."""

    rows: int
    content: Any


class Output(Protocol):
    """One output of one device. After an error of a method that waits, call `aclose` and then `open` again."""

    async def open(self) -> None:
        """Connect. `TransportError` if the output cannot be reached, `RequestError` if it refuses."""

    def encode(self, rows: pa.RecordBatch) -> Message:
        """Return rows in the form of this output. Any error is the fault of a row, and sending it again does not help.

        NaN and infinities are null, or left out.
        """

    async def send(self, message: Message) -> Refusal | None:
        """Send rows, and return when the output has acknowledged them. Errors as for `open`: send the rows again."""

    def check(self) -> None:
        """Raise `TransportError` if the connection is lost."""

    async def aclose(self) -> None:
        """Close the connection, if there is one."""


def open_output(device: str, address: OutputAddress, rows: RowFormat) -> Output:
    """Return the output at `address` for the rows of `device`. `ModuleNotFoundError` if its package is missing."""
    if address.kind == "mqtt":
        from fastflight.publish.mqtt import MqttOutput

        return MqttOutput(device, address, rows)
    if address.kind == "influx":
        from fastflight.publish.influx import InfluxOutput

        return InfluxOutput(device, address, rows)
    if address.kind == "plotjuggler":
        from fastflight.publish.plotjuggler import PlotJugglerOutput

        return PlotJugglerOutput(device, address)
    from fastflight.publish.otlp import OtlpOutput

    return OtlpOutput(device, address, rows)


def tls_context(address: OutputAddress) -> ssl.SSLContext:
    """Return the TLS settings for an encrypted output. `RequestError` if its `ca` cannot be read."""
    try:
        return ssl.create_default_context(cafile=address.options.get("ca"))
    except (OSError, ssl.SSLError) as error:
        raise RequestError(
            "the file of the CA cannot be read", where=address.label, hint="ca= names a PEM file"
        ) from error


def hint_for(reason: str) -> str:
    """Return what to do if an output cannot be reached for `reason`."""
    return "Name its CA with ca=FILE" if "CERTIFICATE_VERIFY_FAILED" in reason else "Is it running?"
