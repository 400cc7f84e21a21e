"""Sends messages of alerts to a webhook, an MQTT topic or a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any

from fastflight.concurrency import off_loop
from fastflight.errors import TransportError
from fastflight.publish.address import OWN_OPTIONS, OutputAddress

# A command that takes longer is stopped, and counts as failed.
COMMAND_SECONDS = 30.0
# How much of what a failed command says goes into the log.
MAX_SAID_CHARACTERS = 200
DEFAULT_TOPIC = "fastflight/alerts"
REFUSED = 0x80
# An alert that could not be delivered for so long says when it was.
LATE_SECONDS = 60.0
# Alerts that the text of a message names.
NAMED = 3


@dataclass(frozen=True, slots=True)
class AlertTarget:
    """A webhook or MQTT topic (`address`), or a command (`argv`)."""

    address: OutputAddress | None = None
    argv: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Identifies the target over restarts."""
        return "\n".join(self.argv) if self.address is None else self.address.url

    @property
    def label(self) -> str:
        """Names the target in logs and metrics."""
        return PurePath(self.argv[0]).name if self.address is None else self.address.label


def body_of(alerts: Sequence[Mapping[str, Any]], now: int) -> bytes:
    """Return the JSON of one message: the alerts, and a `text` for people, who get it at the time `now` (ns)."""
    text = "; ".join(_text(alert, now) for alert in alerts[:NAMED])
    if len(alerts) > 1:
        more = f"; and {len(alerts) - NAMED} more" if len(alerts) > NAMED else ""
        text = f"{len(alerts)} alerts: {text}{more}"
    return json.dumps({"text": text, "alerts": alerts}, ensure_ascii=False).encode()


def _text(alert: Mapping[str, Any], now: int) -> str:
    age = now / 1e9 - datetime.fromisoformat(alert["time"]).timestamp()
    return f"{alert['text']} (at {alert['time']})" if age > LATE_SECONDS else str(alert["text"])


async def deliver(target: AlertTarget, body: bytes) -> str:
    """Send one message, and return when the target has it. Return why, if it will never take this message.

    `TransportError` and `RequestError`: send it again later.
    """
    address = target.address
    if address is None:
        await off_loop(_run, target.argv, body)
        return ""
    if address.kind == "mqtt":
        return await _publish(address, body)
    from fastflight.publish.http import HttpOutput, quoted

    output = HttpOutput(address, "Bearer")
    await output.open()
    try:
        params = {name: value for name, value in address.options.items() if name not in OWN_OPTIONS}
        answer = await output.post(address.path or "/", body, "application/json", params)
    finally:
        await output.aclose()
    return "" if answer.acknowledges else f"it refuses the message: {quoted(answer.content.decode(errors='replace'))}"


async def _publish(address: OutputAddress, body: bytes) -> str:
    from fastflight.publish.mqtt_connection import MqttConnection

    connection = MqttConnection(address)
    try:
        await connection.open()
        code = await connection.publish(address.path.strip("/") or DEFAULT_TOPIC, body)
    finally:
        connection.close()
    return "" if code < REFUSED else "the broker refuses the topic"


def _run(argv: Sequence[str], body: bytes) -> None:
    """Run a command with `body` as its input. `TransportError` unless it ends with 0 in time."""
    # Files, not pipes: what the command leaves running in the background cannot keep this waiting.
    with tempfile.TemporaryFile() as input_, tempfile.TemporaryFile() as said:
        input_.write(body)
        input_.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603  # the command of the fleet file, no shell
                argv, stdin=input_, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise TransportError(f"the command cannot be started ({reason})", where=argv[0]) from error
        try:
            code = process.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired as error:
            if sys.platform == "win32":
                process.kill()
            else:
                os.killpg(process.pid, 9)
            process.wait()
            what = f"the command took longer than {COMMAND_SECONDS:g} s, and was stopped"
            raise TransportError(what, where=argv[0]) from error
        if code:
            said.seek(0)
            text = " ".join(said.read().decode(errors="replace").split())[-MAX_SAID_CHARACTERS:]
            raise TransportError(f"the command ended with {code}: {text}", where=argv[0])
