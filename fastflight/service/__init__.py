"""Requests, the catalog of the sources that serve them, and the choice between sync and async."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastflight.lazy import exports

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastflight.service.catalog import Catalog
    from fastflight.service.source import DataSource
    from fastflight.service.wire import decode, decode_path, encode, make_request

__all__ = ["Catalog", "DataSource", "decode", "decode_path", "encode", "make_request"]

__getattr__: Callable[[str], Any] = exports(
    __name__,
    {
        "catalog": ("Catalog",),
        "source": ("DataSource",),
        "wire": ("decode", "decode_path", "encode", "make_request"),
    },
)
