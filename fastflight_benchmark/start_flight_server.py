"""Start the server that the benchmark measures: `fastflight serve`, with all its options."""

from __future__ import annotations

import typer

from fastflight.cli.serve import serve

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(serve)

if __name__ == "__main__":
    app()
