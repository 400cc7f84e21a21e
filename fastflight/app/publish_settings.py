"""Settings of outputs: where the rows of a device are published.

In a fleet file, where unknown keys are errors and paths are relative to the file::

    [devices.weather]
    url = "serial:///dev/ttyACM0"
    publish = ["mqtt://weather@broker.local?password_file=broker.password"]
    rows = { format = "jsonl", schema = { temperature = "double" }, units = { temperature = "°C" } }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fastflight.app.access_settings import resolve_path
from fastflight.app.device_address import read_password
from fastflight.errors import RequestError
from fastflight.extras import needs
from fastflight.publish import OutputAddress, PublishSettings, RowFormat, open_output, parse_output

# Outputs of one device: each has its own connection.
MAX_OUTPUTS = 8
EXAMPLE = 'As in rows = { format = "jsonl", schema = { temperature = "double" } }'

FleetOutputs = Annotated[list[str], Field(max_length=MAX_OUTPUTS)]


class FleetRows(BaseModel):
    """The key `rows` of a device."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal["lines", "jsonl", "csv"] = "lines"
    schema_: Annotated[dict[str, str] | None, Field(alias="schema")] = None
    units: dict[str, str] = {}


def publish_settings(
    device: str, urls: list[str], rows: FleetRows | None, folder: Path, environment: Mapping[str, str]
) -> PublishSettings:
    """Return what a device publishes, with its passwords. `RequestError` names the key that is wrong.

    `folder` is that of the fleet file.
    """
    where = f"devices.{device}"
    if not urls:
        raise RequestError("rows are published nowhere", where=f"{where}.rows", hint="Add publish, or leave rows out")
    if len(set(urls)) < len(urls):
        raise RequestError("an output is named twice", where=f"{where}.publish", hint="Name each once")
    rows = rows or FleetRows()
    try:
        row_format = RowFormat(rows.format, rows.schema_, rows.units)
    except RequestError as error:
        raise RequestError(error.what, where=f"{where}.rows.{error.where}", hint=error.hint) from error
    outputs = tuple(_with_password(parse_output(url), folder, environment) for url in urls)
    with needs("publish", f"{where}.publish"):
        for address in outputs:
            open_output(device, address, row_format)
    return PublishSettings(outputs, row_format)


def _with_password(address: OutputAddress, folder: Path, environment: Mapping[str, str]) -> OutputAddress:
    options = dict(address.options)
    if (ca := options.get("ca")) is not None:
        options["ca"] = str(resolve_path(folder, ca, "ca"))
        address = replace(address, options=options)
    if (name := options.get("password_env")) is not None:
        if not environment.get(name):
            raise RequestError(f"the variable {name} is not set", where=address.label, hint="Set it for the server")
        return replace(address, password=environment[name])
    if (file := options.get("password_file")) is None:
        return address
    return replace(address, password=read_password(resolve_path(folder, file, "password_file")))
