"""`fastflight serve`: own the boards, and answer until told to stop."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.bridge import listed
from fastflight.cli.descriptors import raise_limit, watched
from fastflight.cli.ending import END_SECONDS, bounded, leave
from fastflight.cli.exits import told_in_one_line
from fastflight.cli.log import AsJsonLines, InDetail, log_to_stderr, warn_of_open_boards
from fastflight.cli.options import Drain, HttpOrigins, RelayAllow
from fastflight.cli.settings import DRAIN_SECONDS, MAX_SHARDS, settings_of
from fastflight.client import DEFAULT_LOCATION
from fastflight.errors import RequestError
from fastflight.runtime.admission import MAX_STREAMS, MAX_STREAMS_PER_DEVICE
from fastflight.transport.serial import SerialAddress
from fastflight.transport.url import parse_url, public_url


def serve(
    server: Annotated[
        str,
        typer.Option(
            "--server", envvar="FASTFLIGHT_SERVER", metavar="URL", help="Where to listen; port 0: a free one."
        ),
    ] = DEFAULT_LOCATION,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="NAME=URL", help="A device to serve; may be given again."),
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option("--fleet", metavar="FILE", help="A TOML file of devices: \\[devices.NAME] and url = ..."),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards", metavar="N", min=1, max=MAX_SHARDS, help="Event loops. By default one for each core, at most 4."
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="[HOST:]PORT", help="Serve the same over HTTP, or HTTPS with --tls-cert."),
    ] = None,
    http_origin: HttpOrigins = None,
    http_host: Annotated[
        list[str] | None,
        typer.Option(
            "--http-host", metavar="NAME", help="A name by which others reach the gateway; may be given again."
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(
            "--plots",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="PNGs to show on the page of --http, as the benchmark makes them.",
        ),
    ] = None,
    relay_allow: RelayAllow = None,
    max_streams: Annotated[
        int | None,
        typer.Option("--max-streams", metavar="N", min=1, help=f"Streams at a time, in all. By default {MAX_STREAMS}."),
    ] = None,
    max_streams_per_device: Annotated[
        int | None,
        typer.Option(
            "--max-streams-per-device", metavar="N", min=1, help=f"On one device. By default {MAX_STREAMS_PER_DEVICE}."
        ),
    ] = None,
    max_streams_per_client: Annotated[
        int | None,
        typer.Option(
            "--max-streams-per-client", metavar="N", min=1, help="From one address. By default only --max-streams."
        ),
    ] = None,
    record: Annotated[
        list[str] | None,
        typer.Option("--record", metavar="NAME", help="Record a device; may be given again, or a glob: '*' for all."),
    ] = None,
    recordings: Annotated[
        Path | None,
        typer.Option(
            "--recordings",
            metavar="DIR",
            file_okay=False,
            help="Where recordings are kept. By default, once a device is recorded, in fastflight/recordings in the "
            "folder for your data: $XDG_DATA_HOME or ~/.local/share, ~/Library/Application Support on macOS, "
            "%LOCALAPPDATA% on Windows.",
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option("--tokens", metavar="FILE", help="Who may what, as `fastflight token` writes it."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="The server's certificate, PEM, for grpc+tls://.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key, as `fastflight cert` makes both.")
    ] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option("--client-ca", metavar="FILE", help="The CA of the certificates that clients have to show."),
    ] = None,
    drain: Drain = DRAIN_SECONDS,
    log_json: AsJsonLines = False,
    log_debug: InDetail = False,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace", help="Take request ids and trace context from clients by Flight, for a fifth of small answers."
        ),
    ] = False,
) -> None:
    """Serve devices as tables. Without --device and --fleet: one simulated board, named demo.

    Others than this computer are served with TLS and tokens alone.

    Device URLs: serial:///dev/ttyACM0 (or the bare port), rfc2217://host:port, socket://host:port, exec:COMMAND, sim:
    """
    # The server takes longer to load than most commands take to run.
    from fastflight.cli.compose import open_server

    log_to_stderr(as_json=log_json, debug=log_debug)
    limits = {
        "streams": max_streams,
        "per_device": max_streams_per_device,
        "per_identity": max_streams_per_client,
    }
    try:
        settings = settings_of(
            server,
            device or [],
            fleet,
            shards,
            limits,
            recordings=recordings,
            record=record or [],
            http=http,
            relay=relay_allow or [],
            origins=http_origin or [],
            http_host=http_host or [],
            drain_seconds=drain,
            tokens=tokens,
            tls_cert=tls_cert,
            tls_key=tls_key,
            client_ca=client_ca,
        )
        settings = replace(settings, plots=plots, log_json=log_json, log_debug=log_debug, trace=trace)
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error
    _warn_of_missing_ports(settings.devices)
    with told_in_one_line():
        raise_limit()
        with (
            on_signals() as wait_for_signal,
            contextlib.ExitStack() as ending,
            open_server(settings) as running,
            watched(),
        ):
            warn_of_open_boards(running.devices.values())
            devices = ", ".join(f"{name} ({public_url(url)})" for name, url in running.devices.items())
            screen.line(f"listening on {running.location}; devices: {devices}")
            if running.http:
                screen.line(f"listening on {running.http}")
            for name, ports in running.bridges.items():
                screen.line(f"sharing {name} at {listed(ports, '127.0.0.1')}")
            if (kept := settings.recordings) is not None and kept.devices:
                screen.line(f"recording {', '.join(kept.devices)} to {kept.folder}")
            wait_for_signal()
            screen.complain(f"stopping: open streams have {settings.drain_seconds:g} s; once more stops at once")
            ending.enter_context(bounded(settings.drain_seconds + END_SECONDS))
    leave()


def _warn_of_missing_ports(devices: Mapping[str, str]) -> None:
    """Say which serial ports are not there: a slip of the hand, or boards that are plugged in later."""
    for name, url in devices.items():
        address = parse_url(url)
        if isinstance(address, SerialAddress) and (missing := address.missing()):
            screen.complain(f"warning: {name}: {missing}. The server opens it when it is there")


@contextlib.contextmanager
def on_signals() -> Iterator[Callable[[], object]]:
    """What waits for the first SIGINT or SIGTERM, from now on; the second one has its usual effect."""
    # The system may give a signal to any thread, of gRPC's too; Python's handlers run in the main one, which nothing
    # wakes then but a descriptor that it reads.
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)

    def heard(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGINT, heard)
    signal.signal(signal.SIGTERM, heard)
    try:
        yield partial(os.read, told, 1)
    finally:
        signal.set_wakeup_fd(-1)
        os.close(told)
        os.close(tell)
