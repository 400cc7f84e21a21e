"""Says which optional packages are missing, and how to install them.

`pip install fastflight-micropython` installs what every server and client needs. The packages of an extra are imported
only where they are used, inside `needs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from fastflight.errors import RequestError

Extra = Literal["http", "plot", "tls"]
# The top-level modules of each extra, as in pyproject.toml.
MODULES: Mapping[Extra, frozenset[str]] = {
    "http": frozenset(("fastapi", "httptools", "nicegui", "starlette", "uvicorn", "websockets")),
    "plot": frozenset(("matplotlib",)),
    "tls": frozenset(("cryptography",)),
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
