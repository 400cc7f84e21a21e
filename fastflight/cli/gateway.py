"""`fastflight gateway`: HTTP in front of a server that runs elsewhere."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from fastflight.app.http_settings import http_address, http_origins
from fastflight.app.process import END_SECONDS, end_within, leave, raise_limit, stop_signal
from fastflight.app.settings import DRAIN_SECONDS
from fastflight.cli import screen
from fastflight.cli.asking import HERE, Server, asking
from fastflight.cli.exits import told_in_one_line
from fastflight.cli.log import AsJsonLines, InDetail, log_to_stderr
from fastflight.cli.options import Drain, HttpOrigins, RelayAllow
from fastflight.errors import RequestError

DEFAULT_HTTP = "8000"


@asking
def gateway(
    http: Annotated[
        str, typer.Option("--http", metavar="[HOST:]PORT", help="Where to listen, on this computer only.")
    ] = DEFAULT_HTTP,
    http_origin: HttpOrigins = None,
    relay_allow: RelayAllow = None,
    drain: Drain = DRAIN_SECONDS,
    log_json: AsJsonLines = False,
    log_debug: InDetail = False,
    server: Server = HERE,
) -> None:
    """Serve a server's devices over HTTP, for browsers, curl and phones. `serve --http` does so in one process.

    Who shows the gateway a token is served as the server serves that token. What the server grants the gateway's own,
    it grants to all who show none.
    """
    # FastAPI takes longer to load than most commands to run.
    from fastflight.app.gateway import open_remote_gateway

    log_to_stderr(as_json=log_json, debug=log_debug)
    try:
        address, origins = http_address(http), http_origins(http_origin or [])
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error
    with told_in_one_line():
        raise_limit()
        with (
            stop_signal() as wait_for_signal,
            contextlib.ExitStack() as ending,
            open_remote_gateway(
                server.location,
                address,
                relay_allow or [],
                origins,
                timing=log_debug,
                credentials=server.credentials,
            ) as running,
        ):
            screen.line(f"listening on {running.url}; in front of {server.location}")
            wait_for_signal()
            screen.complain(f"stopping: open answers have {drain:g} s; once more stops at once")
            ending.enter_context(end_within(drain + END_SECONDS))
            running.close(drain)
    leave()
