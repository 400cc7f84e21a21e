"""Says which optional packages are missing and how to install them, and whether another package is in the way.

The package itself brings what every server and client needs. The packages of an extra are imported only where they are
used, inside `needs`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from fastflight.errors import RequestError

Extra = Literal["cluster", "http", "mcap", "plot", "publish", "sql", "tls", "watch", "webrepl"]
PACKAGE = "fastflight-micropython"
# The top-level modules of each extra, as in pyproject.toml.
MODULES: Mapping[Extra, frozenset[str]] = {
    "cluster": frozenset(("nats", "nkeys")),
    "http": frozenset(("fastapi", "h11", "nicegui", "starlette", "uvicorn", "websockets")),
    "mcap": frozenset(("mcap",)),
    "plot": frozenset(("matplotlib",)),
    "publish": frozenset(("google", "httpx", "opentelemetry", "paho", "websockets")),
    "sql": frozenset(("duckdb", "google")),
    "tls": frozenset(("cryptography",)),
    "watch": frozenset(("watchfiles",)),
    "webrepl": frozenset(("websockets",)),
}


@contextmanager
def needs(extra: Extra, what: str) -> Iterator[None]:
    """Import modules of an extra in the block. `RequestError`, which names `what` needs them, if one is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in MODULES[extra]:
            raise
        raise RequestError(
            f"{what} needs the package {module}, which is not installed",
            hint=install_hint(extra),
        ) from error


def install_hint(extra: str) -> str:
    """Return the command that installs an extra in the way in which this package was installed."""
    # Loads a parser of mail: commands start faster without it.
    from importlib import metadata

    try:
        origin = json.loads(metadata.distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    if not str(origin.get("url")).startswith("file:"):
        return f"pip install '{PACKAGE}[{extra}]'"
    if origin.get("dir_info", {}).get("editable"):
        return f"uv sync --inexact --no-dev --extra {extra}, in the clone"
    if Path(sys.prefix, "uv-receipt.toml").exists():
        return "uv tool install '.[all]', in the clone"
    return f"pip install '.[{extra}]', in the clone"


def conflicting_package() -> tuple[str, str] | None:
    """Return what is wrong if PyPI's other package `fastflight` is installed here, and what to do. None if it is not.

    Both packages install the module and the command `fastflight`: the one that was installed last has replaced files
    of the other.
    """
    # Loads a parser of mail: commands start faster without it.
    from importlib import metadata

    try:
        version = metadata.version("fastflight")
    except metadata.PackageNotFoundError:
        return None
    what = (
        f"PyPI's other package fastflight {version} is installed here too; it has the same module and command as "
        "fastflight-micropython, and may have replaced its files"
    )
    advice = "pip uninstall fastflight, then pip install --force-reinstall --no-deps fastflight-micropython"
    return what, advice
