"""Start the server that the benchmark measures: `fastflight serve`, with all its options."""

from __future__ import annotations

import importlib
import os
import sys

import typer

from fastflight.cli.entry import choose_pool

if __name__ == "__main__":
    choose_pool(os.environ, sys.platform)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(importlib.import_module("fastflight.cli.serve").serve)  # not above: it loads Arrow
    app()
