"""`fastflight mip`: install packages in mip's format on boards that have no network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fastflight.cli.arguments import Target, device_first, device_name
from fastflight.cli.copies import Copies
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson, DeviceName, Interrupt
from fastflight.cli.packages import read_packages
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.client.options import FileOptions

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
        str, typer.Argument(metavar="PACKAGE", help="NAME or NAME@VERSION of the index, or a folder with package.json.")
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
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Install a package, with the packages that it needs, in a board's library folder.

    Files that the board has already are not copied; the others are verified on the board.
    Only --index and the package's own folder are read: no index on the internet is used by default.
    Packages are installed as source code.
    """
    files = read_packages(package, index)
    with tempfile.TemporaryDirectory(prefix="fastflight-") as folder, server.client() as client:
        for path, content in files.items():
            here = Path(folder) / path
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(content)
        at = Target(device_name(client, device), "/" + target.strip("/"))
        with device_first(client, at.device):
            Copies(client, FileOptions(interrupt=interrupt), skip_unchanged=True, json=json).put_folder(
                Path(folder), at
            )


@app.callback()
def packages() -> None:
    """Take the subcommands of `mip`."""
