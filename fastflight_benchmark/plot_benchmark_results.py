"""Draw the plots of a result as PNG files beside it: `flight` and `requests` have their own, the others have bars."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from matplotlib import pyplot as plt

from fastflight.errors import FastFlightError
from fastflight_benchmark import plots, result

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="What run_benchmark.py wrote. Default: the newest result of --suite."),
    ] = None,
    suite: Annotated[str, typer.Option(metavar="NAME", help="Whose newest result to draw.")] = "flight",
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", metavar="DIR", help="Where to put the PNGs. Default: beside FILE.")
    ] = None,
) -> None:
    """Draw a result as PNG files: heatmaps of async against sync, and fastflight beside peers."""
    path = file or result.newest(suite)
    if path is None:
        raise typer.BadParameter(f"no result of {suite} in {result.RESULTS}: run run_benchmark.py", param_hint="FILE")
    try:
        written = draw(path, output_dir or path.parent)
    except FastFlightError as error:
        raise typer.BadParameter(str(error), param_hint="FILE") from error
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}", param_hint="--output-dir") from error
    typer.echo("\n".join(map(str, written)) or "nothing to draw: no contender was measured beside its reference")


def draw(path: Path, folder: Path) -> list[Path]:
    """Write the plots of the result at `path` into `folder`. Return their paths."""
    figures = plots.figures(result.load(path))
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in figures.items():
        written.append(folder / f"{path.stem}_{name}.png")
        figure.savefig(written[-1], dpi=plots.DPI)
        plt.close(figure)
    return written


if __name__ == "__main__":
    app()
