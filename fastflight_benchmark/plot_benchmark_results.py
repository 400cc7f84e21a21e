"""Draw the plots of a flight result: a heatmap per delay, and bars of throughput, as PNG files beside the CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from fastflight_benchmark import output, plots, summary

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    csv: Annotated[
        Path | None,
        typer.Argument(metavar="[CSV]", help="What run_benchmark.py wrote. Default: the newest flight result."),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", metavar="DIR", help="Where to put the PNGs. Default: beside the CSV.")
    ] = None,
) -> None:
    """Draw a heatmap of async against sync per delay, and bars of throughput, as PNG files."""
    path = csv or output.newest("flight")
    if path is None:
        raise typer.BadParameter(f"no result in {output.RESULTS}: run run_benchmark.py first", param_hint="CSV")
    try:
        for written in draw(path, output_dir or path.parent):
            typer.echo(written)
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}", param_hint="CSV") from error
    except (KeyError, ValueError) as error:
        raise typer.BadParameter(f"{path} is not a result of the suite flight: {error}", param_hint="CSV") from error


def draw(path: Path, folder: Path) -> list[Path]:
    """Write the plots of the result at `path` into `folder`. Their paths."""
    result = pd.read_csv(path)
    description = output.described(path)
    compared = summary.compare(result)
    figures: dict[str, Figure] = {}
    for delay in sorted(compared["delay_per_row"].unique()):
        figures[f"heatmap_{delay * 1e6:g}us"] = plots.heatmap(compared, delay, description)
    figures["throughput"] = plots.throughput(compared, result, description)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        written.append(folder / f"{path.stem}_{name}.png")
        figure.savefig(written[-1], dpi=plots.DPI)
        plt.close(figure)
    return written


if __name__ == "__main__":
    app()
