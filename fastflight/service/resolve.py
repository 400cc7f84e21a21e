"""Caches for decoded requests and for the schemas of their answers. They are bounded and safe for threads."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from fastflight.service.catalog import Catalog
from fastflight.service.choices import Mode
from fastflight.service.requests import MAX_BATCH_ROWS, Request
from fastflight.service.source import DataSource, Estimate, Parts
from fastflight.service.wire import decode, decode_path, encode

# Few requests are repeated: those of a dashboard's panels, or of a benchmark.
MAX_KEPT_REQUESTS = 512
# A request with paths and columns has some hundred bytes; a request with code to execute is not worth caching.
MAX_KEPT_REQUEST_BYTES = 4096


class AnswerSchema:
    """The schema of an answer as it is sent, and the bytes of a row as far as the types tell."""

    __slots__ = ("of", "path", "row_bytes", "sent")

    def __init__(self, of: pa.Schema, ticket: bytes, path: Mode) -> None:
        """`of` is the source's schema, `ticket` the request, and `path` the mode that serves it."""
        self.of: pa.Schema = of
        self.path = path
        metadata = {b"fastflight.request": ticket, b"fastflight.path": path.encode()}
        self.sent: pa.Schema = plain(of).with_metadata({**(of.metadata or {}), **metadata})
        # The bytes of the values of a row, if all columns are numbers or times; else 0.
        flat = all(pa.types.is_primitive(type_) and not pa.types.is_boolean(type_) for type_ in of.types)
        self.row_bytes: int = sum(type_.bit_width for type_ in of.types) // 8 if flat else 0


def plain(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with plain columns instead of dictionary columns.

    Flight's generators cannot send dictionaries (apache/arrow#38480).
    """
    if not any(map(pa.types.is_dictionary, schema.types)):
        return schema
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    return pa.schema(fields, schema.metadata)


@dataclass(slots=True)
class ResolvedRequest:
    """A request, the source that serves it, its ticket in canonical form, and the device it is about.

    `last_schema` is the schema of the last answer: the next answer most often has the same one. `last_flight` is the
    last answer to get_flight_info, and what it was made of.
    """

    request: Request
    source: DataSource[Any]
    ticket: bytes
    device: str | None
    last_schema: AnswerSchema | None = field(default=None, compare=False, repr=False)
    last_flight: tuple[Estimate, Parts[Any], Any] | None = field(init=False, default=None, compare=False, repr=False)
    max_batch_rows: int = field(init=False)
    """The request's limit for the rows of a batch, or the limit of all requests."""

    def __post_init__(self) -> None:
        self.max_batch_rows = getattr(self.request, "batch_rows", None) or MAX_BATCH_ROWS

    def answer_schema(self, schema: pa.Schema, path: Mode) -> AnswerSchema:
        """Return the schema to send for a source's `schema`. `path` is the mode that serves the request."""
        known = self.last_schema
        if known is None or known.path != path or not known.of.equals(schema, check_metadata=True):
            known = self.last_schema = AnswerSchema(schema, self.ticket, path)
        return known

    @classmethod
    def with_(cls, request: Request, source: DataSource[Any]) -> ResolvedRequest:
        """Return a decoded `request` with its source."""
        return cls(request, source, encode(request), request.belongs_to)

    def allowed(self, request: Request) -> ResolvedRequest:
        """Return this with `request` in place of its request: the part of it that the caller may have."""
        return self if request is self.request else replace(self, request=request)


class RequestResolver:
    """Decodes requests and finds their sources. Results are cached by the bytes of the request; errors are not."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._cached = functools.lru_cache(MAX_KEPT_REQUESTS)(self._decode)
        self._cached_path = functools.lru_cache(MAX_KEPT_REQUESTS)(self._decode_path)

    def of(self, ticket: bytes) -> ResolvedRequest:
        """Return the request in a ticket or a command, or raise `RequestError`."""
        return self._cached(ticket) if len(ticket) <= MAX_KEPT_REQUEST_BYTES else self._decode(ticket)

    def of_path(self, path: Sequence[bytes]) -> ResolvedRequest:
        """Return the request that a path descriptor means, or raise `RequestError`."""
        if sum(map(len, path)) + len(path) > MAX_KEPT_REQUEST_BYTES:
            return self._decode_path(tuple(path))
        return self._cached_path(tuple(path))

    def _decode(self, ticket: bytes) -> ResolvedRequest:
        return self._resolve(decode(ticket, self._catalog))

    def _decode_path(self, path: tuple[bytes, ...]) -> ResolvedRequest:
        return self._resolve(decode_path(path))

    def _resolve(self, request: Request) -> ResolvedRequest:
        return ResolvedRequest.with_(request, self._catalog.source_of(request))
