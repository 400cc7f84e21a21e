"""Lays the options of `fastflight serve` over a fleet file: `read_config`. An option wins over the key of the file.

`RequestError` names the option or the key that is wrong. Passwords of outputs and secrets of a cluster are read here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from fastflight import user_folders
from fastflight.app.addresses import check_location, http_address, http_hosts, http_origins
from fastflight.app.cluster_config import VARIABLES, cluster_settings
from fastflight.app.config import (
    DRAIN_SECONDS,
    AlertTable,
    Config,
    DeviceTable,
    RecordingSettings,
    RecordingsTable,
    RowsTable,
    default_shards,
    resolve_path,
)
from fastflight.app.device_address import device_address
from fastflight.app.fleet_file import check_device_name, folder_of, read_fleet_file
from fastflight.app.key_files import read_password
from fastflight.client.answers import server_url
from fastflight.errors import RequestError, nearest
from fastflight.extras import needs
from fastflight.publish import OutputAddress, PublishSettings, open_output, parse_output
from fastflight.publish.address import parse_alert_target
from fastflight.publish.alert_targets import AlertTarget
from fastflight.publish.alerts import AlertRule
from fastflight.service.choices import DEVICE_NAME
from fastflight.transport.url import public_url


def read_config(
    location: str,
    devices: Sequence[str] = (),
    fleet: Path | None = None,
    shards: int | None = None,
    *,
    streams: int | None = None,
    per_device: int | None = None,
    per_identity: int | None = None,
    recordings: Path | None = None,
    record: Sequence[str] = (),
    cache: Path | None = None,
    http: str | None = None,
    http_host: Sequence[str] = (),
    relay: Sequence[str] = (),
    origins: Sequence[str] = (),
    drain_seconds: float = DRAIN_SECONDS,
    tokens: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    client_ca: Path | None = None,
    cluster: str | None = None,
    cluster_name: str | None = None,
    cluster_location: str | None = None,
    log_debug: bool = False,
    trace: bool = False,
) -> Config:
    """Combine a fleet file with the options of a command line.

    `devices` are `NAME=URL`. `relay` adds to the targets of the file, and `record` to the devices that it records. With
    neither a file nor devices, there is a simulated board.
    """
    variables = VARIABLES if cluster is not None else {}
    file = read_fleet_file(
        fleet,
        {
            ("limits", "streams"): streams,
            ("limits", "per_device"): per_device,
            ("limits", "per_identity"): per_identity,
            ("recordings", "folder"): recordings,
            ("sql", "cache"): cache,
            ("auth", "tokens"): tokens,
            ("tls", "cert"): tls_cert,
            ("tls", "key"): tls_key,
            ("tls", "client_ca"): client_ca,
            **{("cluster", key): os.environ.get(variable) or None for key, variable in variables.items()},
        },
    )
    has_tls, has_tokens = file.tls is not None, file.auth is not None
    if file.tls is not None and file.tls.client_ca is not None and not has_tokens:
        raise RequestError(
            "nothing says what a certificate grants",
            where="--client-ca",
            hint="Give --tokens FILE, made by `fastflight token add NAME --certificate --scope read:*`",
        )
    location = server_url(location, encrypted=has_tls)
    check_location(location, tls=has_tls, tokens=has_tokens)
    served = _devices(file.devices, devices, record, fleet is not None)
    address = None if http is None else http_address(http, guarded=has_tls and has_tokens)
    allowed = [*file.relay.allow, *relay]
    if allowed and http is None:
        raise RequestError(
            "the relay is a part of the gateway", where=f"relay to {allowed[0]}", hint="Give --http PORT"
        )
    folder = folder_of(fleet)
    return Config(
        location=location,
        devices=served,
        limits=file.limits,
        recordings=_recordings(file.recordings, served),
        sql=file.sql,
        relay=file.relay.model_copy(update={"allow": allowed}),
        auth=file.auth,
        tls=file.tls,
        alerts=file.alerts,
        cluster=None
        if cluster is None
        else cluster_settings(cluster, file, served, name=cluster_name, listening=location, location=cluster_location),
        shards=shards or default_shards(),
        http=address,
        http_hosts=http_hosts(http_host, address),
        origins=http_origins(origins),
        alert_rules=tuple(_rule(number, table, folder, os.environ) for number, table in enumerate(file.alerts)),
        outputs={name: _outputs(name, device, folder, os.environ) for name, device in served.items() if device.publish},
        drain_seconds=drain_seconds,
        log_debug=log_debug,
        trace=trace,
    )


def _devices(
    in_file: Mapping[str, DeviceTable], options: Iterable[str], record: Iterable[str], has_file: bool
) -> dict[str, DeviceTable]:
    """Return the devices of the file and of `--device`, with `--record`. Without both, that is a simulated board."""
    devices = dict(in_file)
    for text in options:
        name, equals, url = text.partition("=")
        if not equals or not url or not DEVICE_NAME.fullmatch(name):
            raise RequestError(
                "not NAME=URL", where=f"--device {public_url(text)}", hint="As in weather=serial:///dev/ttyACM0"
            )
        check_device_name(name, "--device")
        if name in devices:
            raise RequestError("two devices have this name", where=name, hint="Give each a name of its own")
        devices[name] = DeviceTable(url=url)
    if not devices and not has_file:
        devices = dict(Config().devices)
    for device in devices.values():
        device_address(device.url)
    for glob in record:
        found = [name for name in devices if fnmatchcase(name, glob)]
        if not found:
            raise RequestError("no device has this name", where=f"--record {glob}", hint=nearest(glob, devices))
        devices.update((name, devices[name].model_copy(update={"record": True})) for name in found)
    return devices


def _recordings(table: RecordingsTable | None, devices: Mapping[str, DeviceTable]) -> RecordingSettings | None:
    """Return where recordings are kept. None if no setting names them, and the user has no home for the default."""
    on_demand = table is None and not any(device.record for device in devices.values())
    table = table or RecordingsTable()
    try:
        folder = table.folder or user_folders.for_recordings()
    except RuntimeError as error:  # a user without a home
        if on_demand:
            return None
        raise RequestError("you have no home for recordings", where="--recordings", hint="Name a folder") from error
    return RecordingSettings(**{**dict(table), "folder": folder}, on_demand=on_demand)


def _outputs(name: str, device: DeviceTable, folder: Path, environment: Mapping[str, str]) -> PublishSettings:
    """Return what a device publishes, with its passwords. `folder` is that of the fleet file."""
    where, row_format = f"devices.{name}", (device.rows or RowsTable()).row_format
    if len(set(device.publish)) < len(device.publish):
        raise RequestError("an output is named twice", where=f"{where}.publish", hint="Name each once")
    outputs = tuple(_with_password(parse_output(url), folder, environment) for url in device.publish)
    with needs("publish", f"{where}.publish"):
        for address in outputs:
            open_output(name, address, row_format)
    return PublishSettings(outputs, row_format)


def _rule(number: int, table: AlertTable, folder: Path, environment: Mapping[str, str]) -> AlertRule:
    """Return a rule of alerts, with the password of its target."""
    if isinstance(table.to, list):
        return table.rule(AlertTarget(argv=tuple(table.to)))
    address = _with_password(parse_alert_target(table.to), folder, environment)
    with needs("publish", f"alerts.{number}.to"):
        importlib.import_module("httpx" if address.kind == "http" else "paho.mqtt.client")
    return table.rule(AlertTarget(address))


def _with_password(address: OutputAddress, folder: Path, environment: Mapping[str, str]) -> OutputAddress:
    options = dict(address.options)
    try:
        files = {key: resolve_path(folder, options[key]) for key in ("ca", "password_file") if key in options}
    except ValueError as error:
        raise RequestError(str(error), where=address.label) from error
    if "ca" in files:
        address = replace(address, options={**options, "ca": str(files["ca"])})
    if (name := options.get("password_env")) is not None:
        if not environment.get(name):
            raise RequestError(f"the variable {name} is not set", where=address.label, hint="Set it for the server")
        return replace(address, password=environment[name])
    return replace(address, password=read_password(files["password_file"])) if "password_file" in files else address
