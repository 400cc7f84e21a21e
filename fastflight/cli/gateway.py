"""`fastflight gateway`: serve HTTP in a process of its own, in front of a Flight server."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from fastflight.app.http_settings import http_address, http_origins
from fastflight.app.process import END_SECONDS, end_within, leave, limit_arenas, raise_limit, stop_signal, watch_process
from fastflight.app.settings import DRAIN_SECONDS
from fastflight.cli import screen
from fastflight.cli.exit_codes import report_errors
from fastflight.cli.log import DebugLog, JsonLog, log_to_stderr, warn_of_conflicting_package
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options
from fastflight.cli.serving_options import Drain, HttpOrigins, RelayAllow
from fastflight.errors import RequestError
from fastflight.extras import needs

DEFAULT_HTTP = "8000"


@with_server_options
def gateway(
    http: Annotated[
        str, typer.Option("--http", metavar="[HOST:]PORT", help="Address to listen on; only this computer can connect.")
    ] = DEFAULT_HTTP,
    http_origin: HttpOrigins = None,
    relay_allow: RelayAllow = None,
    drain: Drain = DRAIN_SECONDS,
    log_json: JsonLog = False,
    log_debug: DebugLog = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Serve a server's devices over HTTP, for browsers, curl and phones. `serve --http` does so in one process.

    A client that sends a token may do what the server grants to that token.
    Clients without a token may do what the server grants to the gateway's own credentials.
    """
    with report_errors(), needs("http", "the gateway"):
        # Importing FastAPI takes longer than most commands take to run.
        from fastflight.app.gateway import open_remote_gateway

    log_to_stderr(as_json=log_json, debug=log_debug)
    warn_of_conflicting_package()
    try:
        address, origins = http_address(http), http_origins(http_origin or [])
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error
    with report_errors():
        raise_limit()
        limit_arenas()
        with (
            stop_signal() as wait_for_signal,
            contextlib.ExitStack() as ending,
            open_remote_gateway(
                server.location,
                address,
                relay_allow or [],
                origins,
                timing=log_debug,
                credentials=server.credentials(),
            ) as running,
            watch_process(),
        ):
            screen.line(f"listening on {running.url}; in front of {server.location}")
            wait_for_signal()
            screen.complain(f"stopping: open answers have {drain:g} s to end; press Ctrl-C again to stop at once")
            ending.enter_context(end_within(drain + END_SECONDS))
            running.close(drain)
    leave()
