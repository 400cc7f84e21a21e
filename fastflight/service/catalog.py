"""The catalog of a server's sources. `app` fills it at start; the edges look up the source of each request in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastflight.errors import RequestError, nearest
from fastflight.service.requests import Request
from fastflight.service.source import DataSource

# How much of an unknown name an error message repeats.
MAX_SHOWN_CHARACTERS = 80


class Catalog:
    """The sources of one server by the wire names of their request types."""

    def __init__(self) -> None:
        self._sources: dict[str, DataSource[Any]] = {}

    def add(self, source: DataSource[Any]) -> None:
        """Serve requests of type `source.request` with `source`. Raise `ValueError` for the second source of a type."""
        name = source.request.type
        if name in self._sources:
            raise ValueError(f"two sources for {name}")
        self._sources[name] = source

    @property
    def names(self) -> list[str]:
        """The wire names, in the order they were added."""
        return list(self._sources)

    def __iter__(self) -> Iterator[DataSource[Any]]:
        return iter(self._sources.values())

    def source(self, name: str) -> DataSource[Any]:
        """Return the source of a wire name, or raise `RequestError` with the nearest match."""
        try:
            return self._sources[name]
        except KeyError:
            quoted = name[:MAX_SHOWN_CHARACTERS]
            hint = nearest(quoted, self._sources)
            raise RequestError(f"there is no request type {quoted!r}", where="type", hint=hint) from None

    def source_of(self, request: Request) -> DataSource[Any]:
        """Return the source that serves `request`."""
        return self.source(request.type)
