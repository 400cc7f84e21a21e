"""Chooses the function of a source that serves a request, by `mode` and by the functions that the source has.

Each function here returns a function of the source and does not call it. Raises `RequestError` if the source does not
support the operation, or only in the other mode.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from fastflight.errors import RequestError
from fastflight.service.choices import Mode
from fastflight.service.requests import Request
from fastflight.service.source import (
    AsyncExchanger,
    AsyncReader,
    AsyncWriter,
    Exchanger,
    Reader,
    SourceFunctions,
    Writer,
)

F = TypeVar("F")


def mode_of(source: SourceFunctions[Any], request: Request, doing: Literal["read", "write", "exchange"]) -> Mode:
    """Return the mode in which `source` serves `request`: the requested one, or the only one that it has."""
    functions = {"sync": getattr(source, doing), "async": getattr(source, f"a{doing}")}
    other: Mode = "async" if request.mode == "sync" else "sync"
    return other if functions[request.mode] is None and functions[other] is not None else request.mode


def reader(source: SourceFunctions[Any]) -> Reader[Any]:
    """Return the function for reading with mode `sync`."""
    return _registered(source, "sync", "read", source.read, source.aread)


def async_reader(source: SourceFunctions[Any]) -> AsyncReader[Any]:
    """Return the function for reading with mode `async`."""
    return _registered(source, "async", "read", source.aread, source.read)


def writer(source: SourceFunctions[Any]) -> Writer[Any]:
    """Return the function for writing with mode `sync`."""
    return _registered(source, "sync", "written", source.write, source.awrite)


def async_writer(source: SourceFunctions[Any]) -> AsyncWriter[Any]:
    """Return the function for writing with mode `async`."""
    return _registered(source, "async", "written", source.awrite, source.write)


def exchanger(source: SourceFunctions[Any]) -> Exchanger[Any]:
    """Return the function for exchanges with mode `sync`."""
    return _registered(source, "sync", "exchanged", source.exchange, source.aexchange)


def async_exchanger(source: SourceFunctions[Any]) -> AsyncExchanger[Any]:
    """Return the function for exchanges with mode `async`."""
    return _registered(source, "async", "exchanged", source.aexchange, source.exchange)


def _registered(source: SourceFunctions[Any], mode: Mode, done: str, function: F | None, other: object) -> F:
    if function is not None:
        return function
    name = source.request.type
    if other is None:
        raise RequestError(f"{name} cannot be {done}", where="type")
    only = "sync" if mode == "async" else "async"
    raise RequestError(f"{name} cannot be {done} with mode {mode!r}", where="mode", hint=f"Ask with mode {only!r}")
