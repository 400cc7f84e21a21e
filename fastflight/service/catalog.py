"""The catalog: wire name -> source. The composition root fills it, the edges look requests up in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastflight.errors import RequestError, nearest
from fastflight.service.requests import Request
from fastflight.service.source import Source

# The longest name that a message repeats.
MAX_SHOWN_CHARACTERS = 80


class Catalog:
    """The sources of one server, by the wire name of their request type."""

    def __init__(self) -> None:
        self._sources: dict[str, Source[Any]] = {}

    def add(self, source: Source[Any]) -> None:
        """Serve `source.request` with `source`. A wire name can be added once."""
        name = source.request.type
        if name in self._sources:
            raise ValueError(f"two sources for {name}")
        self._sources[name] = source

    @property
    def names(self) -> list[str]:
        """The wire names, in the order they were added."""
        return list(self._sources)

    def __iter__(self) -> Iterator[Source[Any]]:
        return iter(self._sources.values())

    def source(self, name: str) -> Source[Any]:
        """The source of a wire name, or `RequestError` with the nearest match."""
        try:
            return self._sources[name]
        except KeyError:
            shown = name[:MAX_SHOWN_CHARACTERS]
            hint = nearest(shown, self._sources)
            raise RequestError(f"no such request type: {shown!r}", where="type", hint=hint) from None

    def source_of(self, request: Request) -> Source[Any]:
        """The source that serves `request`."""
        return self.source(request.type)
