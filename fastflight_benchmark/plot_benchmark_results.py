"""Draw the plots of a result as PNG files beside its CSV. `FIGURES` lists the suites that have plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from fastflight_benchmark import output, plots
from fastflight_benchmark.suites.bridge import plots as bridge_plots
from fastflight_benchmark.suites.flight import peer_plots, summary
from fastflight_benchmark.suites.relay import plots as relay_plots
from fastflight_benchmark.suites.sessions import plots as sessions_plots
from fastflight_benchmark.suites.transfer import plots as transfer_plots

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    csv: Annotated[
        Path | None,
        typer.Argument(metavar="[CSV]", help="What run_benchmark.py wrote. Default: the newest result of --suite."),
    ] = None,
    suite: Annotated[str, typer.Option(metavar="NAME", help="Whose newest result to draw.")] = "flight",
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", metavar="DIR", help="Where to put the PNGs. Default: beside the CSV.")
    ] = None,
) -> None:
    """Draw a result as PNG files: shares of the limit, sync against async, fastflight against peers."""
    if suite not in FIGURES:
        raise typer.BadParameter(f"{suite!r} is not one of {', '.join(FIGURES)}", param_hint="--suite")
    path = csv or output.newest(suite)
    if path is None:
        raise typer.BadParameter(f"no result in {output.RESULTS}: run run_benchmark.py first", param_hint="CSV")
    try:
        for written in draw(path, output_dir or path.parent):
            typer.echo(written)
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}", param_hint="CSV") from error
    except (KeyError, ValueError) as error:
        raise typer.BadParameter(f"{path} is not a result that can be drawn: {error}", param_hint="CSV") from error


def draw(path: Path, folder: Path) -> list[Path]:
    """Write the plots of the result at `path` into `folder`. Return their paths."""
    result = pd.read_csv(path)
    description = output.described(path)
    parts = {part: pd.read_csv(output.beside(path, part)) for part in PARTS.get(description["suite"], ())}
    figures = FIGURES[description["suite"]](result, description, **parts)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        written.append(folder / f"{path.stem}_{name}.png")
        figure.savefig(written[-1], dpi=plots.DPI)
        plt.close(figure)
    return written


def _flight(result: pd.DataFrame, description: Mapping[str, Any], servers: pd.DataFrame) -> dict[str, Figure]:
    """Draw a heatmap of async against sync for each delay, bars of throughput, and fastflight beside peers."""
    compared = summary.compare(result)
    figures: dict[str, Figure] = {}
    for delay in sorted(compared["delay_per_row"].unique()):
        figures[f"heatmap_{delay * 1e6:g}us"] = plots.heatmap(compared, delay, description)
    if not compared.empty:
        figures["throughput"] = plots.throughput(compared, result, description)
    if not servers[servers["delay_per_row"] == 0].empty:
        figures["peers"] = peer_plots.peers(servers, description)
        figures["first_batch"] = peer_plots.first_batch(servers, description)
    return figures


# By suite: the further files of a result that its plots need.
PARTS: Mapping[str, Sequence[str]] = {"flight": ("servers",)}
FIGURES: Mapping[str, Callable[..., dict[str, Figure]]] = {
    "flight": _flight,
    "requests": peer_plots.requests,
    "transfer": transfer_plots.transfer,
    "boards": transfer_plots.boards,
    "bridge": bridge_plots.bridge,
    "sessions": sessions_plots.sessions,
    "relay": relay_plots.relay,
}


if __name__ == "__main__":
    app()
