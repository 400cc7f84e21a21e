"""Prepares programs of other projects for comparison: environments with PyPI's fastflight and with Quack, and ghz.

uv and go make each of them once, under `build/benchmark` beside the package. If one is not available, `Missing` says
why; a suite names it in its output and in its result, and continues without it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fastflight.errors import TransportError
from fastflight_benchmark.processes import finished

BUILD = Path(__file__).parents[2] / "build" / "benchmark"
NAMESAKE = "fastflight==0.4.*"
# DuckDB's remote protocol. PyPI has its extensions for this version of DuckDB; DuckDB itself would download them.
QUACK = tuple(f"{name}==1.5.5" for name in ("duckdb", "duckdb-extension-quack", "duckdb-extension-httpfs"))
GHZ = "github.com/bojand/ghz/cmd/ghz@v0.93.0"
# Enough for a download and, for ghz, a compilation on a slow machine.
MOST_SECONDS = 600.0

Say = Callable[[str], object]


class Missing(Exception):
    """A peer or a tool is not available here; the text says why."""


def namesake(say: Say, build: Path = BUILD) -> Path:
    """Return the interpreter of an environment with PyPI's fastflight, and the same pyarrow as here."""
    return _environment("fastflight-0.4", [NAMESAKE], say, build)


def quack(say: Say, build: Path = BUILD) -> Path:
    """Return the interpreter of an environment with DuckDB and Quack, and the same pyarrow as here."""
    return _environment("quack-1.5", QUACK, say, build)


def _environment(name: str, packages: Sequence[str], say: Say, build: Path) -> Path:
    """Return the interpreter of an environment with these packages, and the same pyarrow as here."""
    arrow = importlib.metadata.version("pyarrow")
    version = ".".join(map(str, sys.version_info[:2]))
    folder = build / f"{name}-python-{version}-pyarrow-{arrow}"
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if folder.exists():
        return python
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        raise Missing(f"uv is neither beside {sys.executable} nor on the path")
    say(f"making an environment for {', '.join(packages)}")
    build.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=build, ignore_cleanup_errors=True) as temporary:
        made = Path(temporary) / "environment"
        _run([uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(made)])
        where = str(made / python.relative_to(folder))
        _run([uv, "pip", "install", "--quiet", "--python", where, *packages, f"pyarrow=={arrow}"])
        # A rename makes the environment appear complete or not at all. If another process was faster, its one stays.
        with contextlib.suppress(OSError):
            made.rename(folder)
    return python


def ghz(say: Say, build: Path = BUILD) -> Path:
    """Return the path of ghz: the installed one, or one that Go builds."""
    found = shutil.which("ghz")
    if found is not None:
        return Path(found)
    folder = build / "bin"
    program = folder / ("ghz.exe" if sys.platform == "win32" else "ghz")
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise Missing("ghz is not on the path, and neither is go, which could build it")
    say(f"installing {GHZ}")
    folder.mkdir(parents=True, exist_ok=True)
    _run([go, "install", GHZ], {**os.environ, "GOBIN": str(folder)})
    return program


def ghz_version(program: Path) -> str:
    """Return the version that Go wrote into the program, or "unknown"."""
    go = shutil.which("go")
    if go is None:
        return "unknown"
    info = finished([go, "version", "-m", str(program)], MOST_SECONDS, right=frozenset()).output
    found = re.search(r"^\s*mod\s+\S+\s+(\S+)", info, re.MULTILINE)
    return found[1] if found else "unknown"


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    try:
        finished(command, MOST_SECONDS, environment=environment, where=" ".join(command[:3]))
    except TransportError as error:
        raise Missing(str(error)) from error
