"""`fastflight serve`: run a server until Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import typer

from fastflight.app.config import DRAIN_SECONDS, MAX_SHARDS, Config
from fastflight.app.overlay import read_config
from fastflight.app.process import (
    END_SECONDS,
    HANGUP,
    collect_rarely,
    end_within,
    leave,
    limit_arenas,
    raise_limit,
    stop_signal,
    watch_process,
)
from fastflight.cli import screen
from fastflight.cli.arrow_loading import load_arrow
from fastflight.cli.bridge import Drain, format_addresses
from fastflight.cli.exit_codes import report_errors
from fastflight.cli.log import DebugLog, JsonLog, log_to_stderr, warn_of_conflicting_package, warn_of_unconfined_boards
from fastflight.cli.options import (
    ACCESS,
    CLUSTER,
    DEVICES,
    LIMITS,
    LOGGING,
    NETWORK,
    RECORDINGS,
    Option,
    option,
    with_options,
)
from fastflight.client import DEFAULT_LOCATION
from fastflight.errors import RequestError
from fastflight.runtime.admission import MAX_STREAMS, MAX_STREAMS_PER_DEVICE
from fastflight.transport.serial import SerialAddress
from fastflight.transport.url import LINES, kind_of, parse_url, public_url

if TYPE_CHECKING:
    from fastflight.app.running import RunningServer

log = structlog.get_logger(__name__)


# By the names that they have as parameters of `read_config`.
OPTIONS: Mapping[str, Option] = {
    "devices": option(
        list[str],
        "--device",
        "A device to serve, as in weather=/dev/ttyACM0; may be given again.",
        metavar="NAME=URL",
        panel=DEVICES,
    ),
    "fleet": option(
        Path,
        "--fleet",
        'A TOML file of devices: \\[devices.weather] url = "COM7". SIGHUP reads it again: devices change, '
        "what needs a restart is logged.",
        metavar="FILE",
        panel=DEVICES,
    ),
    "source": option(
        list[str],
        "--source",
        "Your own data service, as in my_package.sales:SALES; may be given again.",
        metavar="MODULE:NAME",
        panel=DEVICES,
    ),
    "location": option(
        str,
        "--server",
        "URL to listen on, or HOST:PORT; port 0 takes a free port.",
        default=DEFAULT_LOCATION,
        envvar="FASTFLIGHT_SERVER",
        metavar="URL",
        panel=NETWORK,
    ),
    "shards": option(
        int,
        "--shards",
        "Number of event loops. By default one for each core, at most 4.",
        min=1,
        max=MAX_SHARDS,
        metavar="N",
        panel=LIMITS,
    ),
    "http": option(
        str,
        "--http",
        "Also serve the live page and HTTP, as in 8000; HTTPS with --tls-cert.",
        metavar="[HOST:]PORT",
        panel=NETWORK,
    ),
    "origins": option(
        list[str],
        "--http-origin",
        "An origin whose pages may send requests over HTTP, as in https://lab.example.org; may be given again.",
        metavar="URL",
        panel=NETWORK,
    ),
    "http_host": option(
        list[str],
        "--http-host",
        "A host name by which other computers reach the gateway, as in lab.example.org; may be given again.",
        metavar="NAME",
        panel=NETWORK,
    ),
    "relay": option(
        list[str],
        "--relay-allow",
        "Let browsers open TCP streams to this address through the gateway, as in 127.0.0.1:2218; may be given again.",
        metavar="HOST:PORT",
        panel=NETWORK,
    ),
    "streams": option(
        int,
        "--max-streams",
        f"Number of open streams in all. By default {MAX_STREAMS}.",
        min=1,
        metavar="N",
        panel=LIMITS,
    ),
    "per_device": option(
        int,
        "--max-streams-per-device",
        f"Number of open streams of one device. By default {MAX_STREAMS_PER_DEVICE}.",
        min=1,
        metavar="N",
        panel=LIMITS,
    ),
    "per_identity": option(
        int,
        "--max-streams-per-client",
        "Number of open streams of one client. By default only --max-streams.",
        min=1,
        metavar="N",
        panel=LIMITS,
    ),
    "record": option(
        list[str],
        "--record",
        "Record a device, as in weather; may be given again, or a glob: '*' for all.",
        metavar="NAME",
        panel=RECORDINGS,
    ),
    "recordings": option(
        Path,
        "--recordings",
        "The folder of recordings. By default fastflight/recordings in the "
        "data folder of your user: $XDG_DATA_HOME or ~/.local/share, ~/Library/Application Support on macOS, "
        "%LOCALAPPDATA% on Windows.",
        file_okay=False,
        metavar="DIR",
        panel=RECORDINGS,
    ),
    "cache": option(
        Path,
        "--cache",
        "Keep files of boards, for SQL and for requests with `cached`, in this folder. By default in a "
        "temporary folder, until the server ends.",
        file_okay=False,
        metavar="DIR",
    ),
    **{
        name: option(Path, f"--{name.replace('_', '-')}", help, metavar="FILE", panel=ACCESS)
        for name, help in (
            ("tokens", "The file of `fastflight token`, as in tokens.json: what each client may do."),
            ("tls_cert", "The server's certificate for grpc+tls://, as in server.pem."),
            ("tls_key", "The key of the certificate, as in server.key; `fastflight cert` makes both."),
            ("client_ca", "Accept only clients with a certificate that this CA signed, as in ca.pem."),
        )
    },
    "cluster": option(
        str,
        "--cluster",
        "Share the devices with other servers, by NATS: nats://host:4222, or several URLs with commas.",
        envvar="FASTFLIGHT_CLUSTER",
        metavar="URL",
        panel=CLUSTER,
    ),
    "cluster_name": option(
        str,
        "--cluster-name",
        "This server's name in the cluster. By default the host's name and the port.",
        metavar="NAME",
        panel=CLUSTER,
    ),
    "cluster_location": option(
        str,
        "--cluster-location",
        "The address by which other servers and clients reach this one, if it is not that of --server.",
        metavar="URL",
        panel=CLUSTER,
    ),
    "drain_seconds": Option(Drain, DRAIN_SECONDS),
    "log_json": Option(JsonLog, False),
    "log_debug": Option(DebugLog, False),
    "trace": option(
        bool,
        "--trace",
        "Accept request ids and trace context from Flight clients; small requests get a fifth slower.",
        default=False,
        panel=LOGGING,
    ),
}


@with_options("options", OPTIONS, dict)
def serve(options: dict[str, Any]) -> None:
    """Serve devices as tables. Without --device and --fleet, serve one simulated board, named demo.

    Other computers can connect only with TLS and tokens.

    Device URLs: serial:///dev/ttyACM0 (or the bare port), rfc2217://host:port, socket://host:port, ws://host:port,
    exec:COMMAND, sim:
    """
    # gRPC would write lines of its own about an address that is taken.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Importing the server takes longer than most commands take to run.
    if not options.get("source"):  # the user's own sources may make data frames
        load_arrow()
    from fastflight.app.compose import open_server
    from fastflight.app.own_sources import load_sources

    log_to_stderr(as_json=options.pop("log_json"), debug=options["log_debug"])
    warn_of_conflicting_package()
    values = {name: value for name, value in options.items() if value is not None}
    sources = values.pop("source", ())

    def read() -> Config:
        return read_config(**values)

    try:
        config = read().model_copy(update={"sources": load_sources(sources)})
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error
    _warn_of_missing_ports(config.urls)
    with report_errors():
        raise_limit()
        limit_arenas()
        collect_rarely()
        with (
            stop_signal(hangup="fleet" in values) as wait_for_signal,
            contextlib.ExitStack() as ending,
            open_server(config) as running,
            watch_process(),
        ):
            warn_of_unconfined_boards(running.devices.values())
            devices = ", ".join(f"{name} ({public_url(url)})" for name, url in running.devices.items())
            own_sources = ", ".join(source.request.type for source in config.sources)
            own = f"; sources: {own_sources}" if own_sources else ""
            screen.line(f"listening on {running.location}; devices: {devices or 'none'}{own}")
            if running.http:
                screen.line(f"listening on {running.http}")
            for name, ports in running.bridges.items():
                screen.line(f"sharing {name} at {format_addresses(ports, '127.0.0.1')}")
            if config.recordings is not None and config.recorded:
                screen.line(f"recording {', '.join(config.recorded)} to {config.recordings.folder}")
            if sys.stdout.isatty() and running.devices and config.auth is None and config.tls is None:
                screen.line(first_steps(running.location, running.devices, running.http, os.environ))
            while wait_for_signal() == HANGUP:
                _read_again(read, running)
            screen.complain(
                f"stopping: open streams have {config.drain_seconds:g} s to end; press Ctrl-C again to stop at once"
            )
            ending.enter_context(end_within(config.drain_seconds + END_SECONDS))
    leave()


def _read_again(read: Callable[[], Config], running: RunningServer) -> None:
    """Read the fleet file again and change the devices. If it has an error, log that and change nothing."""
    try:
        config = read()
    except RequestError as error:
        log.error("the fleet file has an error: nothing was changed", error=str(error))
        return
    _warn_of_missing_ports(config.urls)
    running.apply(config)


def _warn_of_missing_ports(devices: Mapping[str, str]) -> None:
    """Warn of serial ports that do not exist. That is no error: the board may be plugged in later."""
    for name, url in devices.items():
        address = parse_url(url)
        if isinstance(address, SerialAddress) and (missing := address.missing()):
            screen.complain(f"warning: {name}: {missing}. The server opens it when it appears")


def first_steps(location: str, devices: Mapping[str, str], http: str | None, environment: Mapping[str, str]) -> str:
    """Return lines with commands to try on the first of `devices` (name to URL) of the server at `location`.

    `environment`: under `uv run`, the commands begin with that, because `fastflight` need not be on the PATH elsewhere.
    """
    prefix = "uv run --no-sync " if "UV_RUN_RECURSION_DEPTH" in environment else ""
    command = f"{prefix}fastflight"
    name, url = next(iter(devices.items()))
    at, argument = ("", "") if location == DEFAULT_LOCATION else (f" --server {location}", repr(location))
    # The files of a real board are not known.
    has_readings = url.startswith("sim:") and "files=" not in url
    read = f"get {name}:/readings.csv" if has_readings else f"tail {name}"
    rows = f"read({name!r}, '/readings.csv').to_pandas()" if has_readings else f"info({name!r})"
    lines = [
        *([] if http is None else [f"Open {http}/ in a browser."]),
        "Try in another terminal:",
        *([] if kind_of(url) == LINES else [f"  {command} ls {name}{at}"]),
        f"  {command} {read}{at}",
        f"And in a notebook, or in {prefix}python:",
        "  from fastflight import FastFlightClient",
        f"  FastFlightClient({argument}).{rows}",
        "Ctrl-C ends the server.",
    ]
    return "\n".join(lines)
