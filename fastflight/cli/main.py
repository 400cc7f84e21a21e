"""The command `fastflight`."""

from __future__ import annotations

import typer

from fastflight.cli import (
    bridge,
    cert,
    devices,
    doctor,
    files,
    gateway,
    get,
    plot,
    put,
    record,
    replay,
    serve,
    stats,
    tail,
    token,
)
from fastflight.cli.exit_codes import Commands

app = typer.Typer(
    cls=Commands,
    help="Use MicroPython devices as tables. `serve` and `bridge` open devices; most other commands call a server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve.serve)
app.command()(bridge.bridge)
app.command()(gateway.gateway)
app.command()(devices.devices)
app.command()(stats.stats)
app.command()(files.ls)
app.command()(get.get)
app.command()(put.put)
app.command()(devices.exec)
app.command()(tail.tail)
app.command()(plot.plot)
app.command()(record.record)
app.command()(replay.replay)
app.command()(record.recordings)
app.command()(files.rm)
app.command()(files.mkdir)
app.command()(files.mv)
app.command()(devices.info)
app.command()(devices.reset)
app.command()(doctor.doctor)
app.add_typer(token.app, name="token")
app.add_typer(cert.app, name="cert")
