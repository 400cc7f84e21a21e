"""Says which optional packages are missing and how to install them, and whether another package is in the way.

`pip install fastflight-micropython` installs what every server and client needs. The packages of an extra are imported
only where they are used, inside `needs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from fastflight.errors import RequestError

Extra = Literal["cluster", "http", "plot", "publish", "sql", "tls", "watch", "webrepl"]
# The top-level modules of each extra, as in pyproject.toml.
MODULES: Mapping[Extra, frozenset[str]] = {
    "cluster": frozenset(("nats", "nkeys")),
    "http": frozenset(("fastapi", "httptools", "nicegui", "starlette", "uvicorn", "websockets")),
    "plot": frozenset(("matplotlib",)),
    "publish": frozenset(("google", "httpx", "opentelemetry", "paho")),
    "sql": frozenset(("duckdb", "fsspec", "google")),
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
            hint=f"pip install 'fastflight-micropython[{extra}]'",
        ) from error


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
