"""`fastflight serve`: run a server until Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from fastflight.app.config import DRAIN_SECONDS, MAX_SHARDS, Config
from fastflight.app.overlay import read_config
from fastflight.app.process import (
    END_SECONDS,
    HANGUP,
    end_within,
    leave,
    limit_arenas,
    raise_limit,
    stop_signal,
    watch_process,
)
from fastflight.cli import screen
from fastflight.cli.bridge import format_addresses
from fastflight.cli.exit_codes import report_errors
from fastflight.cli.first_steps import first_steps
from fastflight.cli.log import DebugLog, JsonLog, log_to_stderr, warn_of_conflicting_package, warn_of_unconfined_boards
from fastflight.cli.serving_options import (
    ACCESS,
    CLUSTER,
    DEVICES,
    LIMITS,
    LOGGING,
    NETWORK,
    RECORDINGS,
    Drain,
    HttpOrigins,
    RelayAllow,
)
from fastflight.client import DEFAULT_LOCATION
from fastflight.errors import RequestError
from fastflight.runtime.admission import MAX_STREAMS, MAX_STREAMS_PER_DEVICE
from fastflight.transport.serial import SerialAddress
from fastflight.transport.url import parse_url, public_url

if TYPE_CHECKING:
    from fastflight.app.running import RunningServer

log = structlog.get_logger(__name__)


def serve(
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="NAME=URL",
            help="A device to serve, as in weather=/dev/ttyACM0; may be given again.",
            rich_help_panel=DEVICES,
        ),
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option(
            "--fleet",
            metavar="FILE",
            help='A TOML file of devices: \\[devices.weather] url = "COM7". SIGHUP reads it again: devices change, '
            "what needs a restart is logged.",
            rich_help_panel=DEVICES,
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="MODULE:NAME",
            help="Your own data service, as in my_package.sales:SALES; may be given again.",
            rich_help_panel=DEVICES,
        ),
    ] = None,
    server: Annotated[
        str,
        typer.Option(
            "--server",
            envvar="FASTFLIGHT_SERVER",
            metavar="URL",
            help="URL to listen on, or HOST:PORT; port 0 takes a free port.",
            rich_help_panel=NETWORK,
        ),
    ] = DEFAULT_LOCATION,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            metavar="N",
            min=1,
            max=MAX_SHARDS,
            help="Number of event loops. By default one for each core, at most 4.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="[HOST:]PORT",
            help="Also serve the live page and HTTP, as in 8000; HTTPS with --tls-cert.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    http_origin: HttpOrigins = None,
    http_host: Annotated[
        list[str] | None,
        typer.Option(
            "--http-host",
            metavar="NAME",
            help="A host name by which other computers reach the gateway, as in lab.example.org; may be given again.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    relay_allow: RelayAllow = None,
    max_streams: Annotated[
        int | None,
        typer.Option(
            "--max-streams",
            metavar="N",
            min=1,
            help=f"Number of open streams in all. By default {MAX_STREAMS}.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_streams_per_device: Annotated[
        int | None,
        typer.Option(
            "--max-streams-per-device",
            metavar="N",
            min=1,
            help=f"Number of open streams of one device. By default {MAX_STREAMS_PER_DEVICE}.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_streams_per_client: Annotated[
        int | None,
        typer.Option(
            "--max-streams-per-client",
            metavar="N",
            min=1,
            help="Number of open streams of one client. By default only --max-streams.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    record: Annotated[
        list[str] | None,
        typer.Option(
            "--record",
            metavar="NAME",
            help="Record a device, as in weather; may be given again, or a glob: '*' for all.",
            rich_help_panel=RECORDINGS,
        ),
    ] = None,
    recordings: Annotated[
        Path | None,
        typer.Option(
            "--recordings",
            metavar="DIR",
            file_okay=False,
            help="The folder of recordings. By default fastflight/recordings in the "
            "data folder of your user: $XDG_DATA_HOME or ~/.local/share, ~/Library/Application Support on macOS, "
            "%LOCALAPPDATA% on Windows.",
            rich_help_panel=RECORDINGS,
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="DIR",
            file_okay=False,
            help="Keep files of boards, for SQL and for requests with `cached`, in this folder. By default in a "
            "temporary folder, until the server ends.",
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            help="The file of `fastflight token`, as in tokens.json: what each client may do.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert",
            metavar="FILE",
            help="The server's certificate for grpc+tls://, as in server.pem.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            "--tls-key",
            metavar="FILE",
            help="The key of the certificate, as in server.key; `fastflight cert` makes both.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(
            "--client-ca",
            metavar="FILE",
            help="Accept only clients with a certificate that this CA signed, as in ca.pem.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="URL",
            envvar="FASTFLIGHT_CLUSTER",
            help="Share the devices with other servers, by NATS: nats://host:4222, or several URLs with commas.",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    cluster_name: Annotated[
        str | None,
        typer.Option(
            "--cluster-name",
            metavar="NAME",
            help="This server's name in the cluster. By default the host's name and the port.",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    cluster_location: Annotated[
        str | None,
        typer.Option(
            "--cluster-location",
            metavar="URL",
            help="The address by which other servers and clients reach this one, if it is not that of --server.",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    drain: Drain = DRAIN_SECONDS,
    log_json: JsonLog = False,
    log_debug: DebugLog = False,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Accept request ids and trace context from Flight clients; small requests get a fifth slower.",
            rich_help_panel=LOGGING,
        ),
    ] = False,
) -> None:
    """Serve devices as tables. Without --device and --fleet, serve one simulated board, named demo.

    Other computers can connect only with TLS and tokens.

    Device URLs: serial:///dev/ttyACM0 (or the bare port), rfc2217://host:port, socket://host:port, ws://host:port,
    exec:COMMAND, sim:
    """
    # gRPC would write lines of its own about an address that is taken.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Importing the server takes longer than most commands take to run.
    from fastflight.app.compose import open_server
    from fastflight.app.own_sources import load_sources

    log_to_stderr(as_json=log_json, debug=log_debug)
    warn_of_conflicting_package()
    limits = {
        "streams": max_streams,
        "per_device": max_streams_per_device,
        "per_identity": max_streams_per_client,
    }

    def read() -> Config:
        return read_config(
            server,
            device or [],
            fleet,
            shards,
            limits,
            recordings=recordings,
            record=record or [],
            cache=cache,
            http=http,
            relay=relay_allow or [],
            origins=http_origin or [],
            http_host=http_host or [],
            drain_seconds=drain,
            tokens=tokens,
            tls_cert=tls_cert,
            tls_key=tls_key,
            client_ca=client_ca,
            cluster=cluster,
            cluster_name=cluster_name,
            cluster_location=cluster_location,
            log_debug=log_debug,
            trace=trace,
        )

    try:
        config = read().model_copy(update={"sources": load_sources(source or ())})
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error
    _warn_of_missing_ports(config.urls)
    with report_errors():
        raise_limit()
        limit_arenas()
        with (
            stop_signal(hangup=fleet is not None) as wait_for_signal,
            contextlib.ExitStack() as ending,
            open_server(config) as running,
            watch_process(),
        ):
            warn_of_unconfined_boards(running.devices.values())
            devices = ", ".join(f"{name} ({public_url(url)})" for name, url in running.devices.items())
            sources = ", ".join(source.request.type for source in config.sources)
            own = f"; sources: {sources}" if sources else ""
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
