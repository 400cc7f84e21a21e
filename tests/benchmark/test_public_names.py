"""The benchmark uses the names that packages of `fastflight` export, as its users do."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import fastflight_benchmark

FOLDER = Path(fastflight_benchmark.__file__).parent
# Modules that no package exports, with the reason why the benchmark needs them.
OTHERS = {
    "fastflight.errors": "the errors, which are public as they are",
    "fastflight.cli.entry": "the command `fastflight`, which `start_flight_server.py` runs",
    "fastflight.app.own_sources": "finds a source by its name, as `serve` does",
    "fastflight.app.local_cluster": "runs NATS servers, as `cluster demo` does",
    "fastflight.cluster.placement": "the placement of devices, which is simulated and compared with what servers do",
    "fastflight.service.requests": "the base and the limits of the request for the table",
    "fastflight.service.source": "what a source gives that makes its batches itself",
    "fastflight.sql.process": "how many threads a query has, so that DuckDB beside it has as many",
    "fastflight.simulator.__main__": "a board behind a pseudo-terminal, as a serial port for other programs",
    "fastflight.gateway.middleware": "the relay without a server, whose reads have the size that is compared",
    "fastflight.gateway.ws.sockets": "the same",
    "fastflight.gateway.ws.tickets": "the same",
}
# It runs where `fastflight` is another project.
FOREIGN = FOLDER / "peers" / "namesake.py"


def imported(file: Path) -> Iterator[tuple[str, str]]:
    """Module and name of each import from `fastflight`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fastflight":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "fastflight")


def test_the_benchmark_uses_public_names() -> None:
    used = {found for file in FOLDER.rglob("*.py") if file != FOREIGN for found in imported(file)}
    exported = {
        (module, name)
        for module, name in used
        if module not in OTHERS and name in getattr(importlib.import_module(module), "__all__", ())
    }
    other = {module if module in OTHERS else f"{module}.{name}" for module, name in used - exported}
    assert other == set(OTHERS)
