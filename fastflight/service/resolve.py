"""What is made once and given again while it is true: decoded requests, schemas of answers, values with a lifetime.

Nothing here knows whether a value is still true: who puts it in says for how long it will be. Both are bounded by their
entries and the size of one, and safe for threads.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from fastflight.service.catalog import Catalog
from fastflight.service.requests import Mode, Request
from fastflight.service.source import Source
from fastflight.service.wire import decode, decode_path, encode

T = TypeVar("T")

# Requests that are asked again and again are few: those of a dashboard's panels, a benchmark's cells.
MAX_KEPT_REQUESTS = 512
# A request with paths and columns has some hundred bytes; one with code to execute is not worth keeping.
MAX_KEPT_REQUEST_BYTES = 4096


class AnswerSchema:
    """What is sent of a source's schema, and what the types say of each batch."""

    __slots__ = ("of", "path", "row_bytes", "sent")

    def __init__(self, of: pa.Schema, ticket: bytes, path: Mode) -> None:
        """`of` is the source's, `ticket` what was asked, and `path` served it."""
        self.of = of
        self.path = path
        said = {b"fastflight.request": ticket, b"fastflight.path": path.encode()}
        self.sent = plain(of).with_metadata({**(of.metadata or {}), **said})
        # What a row without nulls takes in columns of numbers and times; 0 where there are others.
        flat = all(pa.types.is_primitive(type_) and not pa.types.is_boolean(type_) for type_ in of.types)
        self.row_bytes: int = sum(type_.bit_width for type_ in of.types) // 8 if flat else 0


def plain(schema: pa.Schema) -> pa.Schema:
    """`schema` with dictionary columns as their values: Flight's generators cannot send them (apache/arrow#38480)."""
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    return pa.schema(fields, schema.metadata)


@dataclass(slots=True)
class ResolvedRequest:
    """A request, the source that serves it, its ticket in the server's own spelling, and the device it is about.

    One that is `narrowed` is not what others get who ask with the same ticket. `answered` is the schema that was sent
    last, which the next answer most often has as well.
    """

    request: Request
    source: Source[Any]
    ticket: bytes
    device: str | None
    narrowed: bool = False
    answered: AnswerSchema | None = field(default=None, compare=False, repr=False)

    def answer_schema(self, schema: pa.Schema, path: Mode) -> AnswerSchema:
        """What is sent of a source's `schema`; `path` serves the request."""
        known = self.answered
        if known is None or known.path != path or not known.of.equals(schema, check_metadata=True):
            known = self.answered = AnswerSchema(schema, self.ticket, path)
        return known

    @classmethod
    def with_(cls, request: Request, source: Source[Any]) -> ResolvedRequest:
        """`request`, as it was decoded."""
        return cls(request, source, encode(request), request.belongs_to)

    def allowed(self, request: Request) -> ResolvedRequest:
        """The same, of what of its request is allowed."""
        return self if request is self.request else replace(self, request=request, narrowed=True)


class RequestResolver:
    """Requests as they come. The same bytes are decoded once; what is refused is looked at each time."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept = functools.lru_cache(MAX_KEPT_REQUESTS)(self._decoded)
        self._kept_path = functools.lru_cache(MAX_KEPT_REQUESTS)(self._decoded_path)

    def of(self, ticket: bytes) -> ResolvedRequest:
        """What a ticket or a command asks for, or `RequestError`."""
        return self._kept(ticket) if len(ticket) <= MAX_KEPT_REQUEST_BYTES else self._decoded(ticket)

    def of_path(self, path: Sequence[bytes]) -> ResolvedRequest:
        """What a path descriptor asks for, or `RequestError`."""
        if sum(map(len, path)) + len(path) > MAX_KEPT_REQUEST_BYTES:
            return self._decoded_path(tuple(path))
        return self._kept_path(tuple(path))

    def _decoded(self, ticket: bytes) -> ResolvedRequest:
        return self._asked(decode(ticket, self._catalog))

    def _decoded_path(self, path: tuple[bytes, ...]) -> ResolvedRequest:
        return self._asked(decode_path(path))

    def _asked(self, request: Request) -> ResolvedRequest:
        return ResolvedRequest.with_(request, self._catalog.source_of(request))


class Kept(Generic[T]):
    """Values by key, each for as long as it was said to be true; of more than `entries`, the oldest go."""

    def __init__(self, entries: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._entries = entries
        self._clock = clock
        self._lock = threading.Lock()
        self._values: dict[Hashable, tuple[T, float]] = {}

    def get(self, key: Hashable) -> T | None:
        """The value, or None where there is none that is still true."""
        found = self._values.get(key)
        if found is None or (found[1] != math.inf and self._clock() >= found[1]):
            return None
        return found[0]

    def put(self, key: Hashable, value: T, seconds: float) -> None:
        """Keep `value` for `seconds`: `math.inf` is for ever, 0 not at all. It replaces what was kept before."""
        with self._lock:
            self._values.pop(key, None)
            if seconds <= 0:
                return
            while len(self._values) >= self._entries:
                del self._values[next(iter(self._values))]
            self._values[key] = value, self._clock() + seconds
