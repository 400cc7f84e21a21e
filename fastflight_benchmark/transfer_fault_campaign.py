"""Transfers with faults injected, by number: to do again what a campaign found, or another campaign.

    python transfer_fault_campaign.py --transfers 200 --seed 7
    python transfer_fault_campaign.py --only 85 --only 143

Exit code 1: one ended wrong, in no error of ours, never, or left the board unusable.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fastflight_benchmark import ending, output
from fastflight_benchmark.run_benchmark import PIPE_COLUMNS
from fastflight_benchmark.suites import Options, faults

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    transfers: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = faults.TRANSFERS,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Which campaign: decides all about each transfer.")
    ] = faults.SEED,
    boards: Annotated[int, typer.Option(min=1, metavar="N", help="How many boards at once.")] = faults.BOARDS,
    only: Annotated[list[int] | None, typer.Option(metavar="NUMBER", help="Only this transfer; repeatable.")] = None,
    output_file: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help=f"The CSV to write. Default: a new one in {output.RESULTS}."),
    ] = None,
) -> None:
    """Carry a campaign out, and write what came of each transfer."""
    path = output_file or output.default_path("faults")
    output.prepare(path)
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_COLUMNS)
    options = Options("", False, 1, path, console)
    bad = faults.carry_out(options, seed, only or range(transfers), boards)
    raise typer.Exit(1 if bad else 0)


if __name__ == "__main__":
    ending.like_ctrl_c()
    app()
