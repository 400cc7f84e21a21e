"""`fastflight mip`: install packages on boards that have no network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fastflight.cli.arguments import Target, device_first, device_name
from fastflight.cli.copies import Copies
from fastflight.cli.interruption import interruptible
from fastflight.cli.mpy import ASK, MpyFormat, check_mpy
from fastflight.cli.options import AsJson, DeviceName, Interrupt
from fastflight.cli.packages import read_packages
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.client.local_names import local_path
from fastflight.client.options import FileOptions
from fastflight.errors import DeviceError
from fastflight.own_code import wrap_for_program

app = typer.Typer(
    help="Install packages in mip's format on a board. This computer reads them; the board needs no network.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
@interruptible
@with_device_options
def install(
    package: Annotated[
        str,
        typer.Argument(metavar="PACKAGE", help="NAME or NAME@VERSION of the index, or a folder, .py, .mpy or .whl."),
    ],
    device: DeviceName = None,
    index: Annotated[
        str | None,
        typer.Option(
            "--index",
            envvar="FASTFLIGHT_MIP_INDEX",
            metavar="PLACE",
            help="A folder or URL with packages, laid out as micropython-lib's index.",
        ),
    ] = None,
    target: Annotated[str, typer.Option("--target", metavar="PATH", help="The library folder on the board.")] = "/lib",
    mpy: Annotated[bool, typer.Option("--mpy", help="Take compiled modules of the index, not source code.")] = False,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Install a package, with the packages that it needs, in a board's library folder.

    Files that the board has already are not copied; the others are verified on the board.
    Only --index and the package's own folder are read: no index on the internet is used by default.
    A folder needs no package.json: then all its modules are installed. A wheel is a package as PyPI has it.
    Compiled modules (.mpy) are refused if the board cannot load them.
    """
    files = {} if mpy else read_packages(package, index)
    with tempfile.TemporaryDirectory(prefix="fastflight-") as folder, server.client() as client:
        if mpy or any(path.endswith(".mpy") for path in files):
            name = device_name(client, device)
            rows = client.exec_rows(name, wrap_for_program(ASK), interrupt=interrupt)
            board = MpyFormat.of_board(_number("".join(row["text"] for row in rows)))
            if mpy:
                if board is None:
                    raise DeviceError("this board loads no compiled modules", where=name, hint="Leave out --mpy")
                files = read_packages(package, index, str(board.version))
            for path, content in files.items():
                check_mpy(path, content, board)
        for path, content in files.items():
            here = local_path(Path(folder), path)
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(content)
        at = Target(device_name(client, device), "/" + target.strip("/"))
        with device_first(client, at.device):
            Copies(client, FileOptions(interrupt=interrupt), skip_unchanged=True, json=json).put_folder(
                Path(folder), at
            )


def _number(text: str) -> int:
    """Return what a board has printed as a number; 0 if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


@app.callback()
def packages() -> None:
    """Take the subcommands of `mip`."""
