"""What the gateway stands in front of: a catalog in this process, or a server elsewhere.

A `Backend` belongs to the gateway's event loop. Its errors are those of `fastflight.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from fastflight.service.answer import Note, Piece
from fastflight.service.requests import Request
from fastflight.service.source import Summary

# What waits between a source and the gateway: four full messages, beyond which more gain nothing.
AHEAD_BYTES = 8 * 1024 * 1024
# Who asks, where nobody is known by name: all programs of this computer are one.
ANYBODY = "http"


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows on their way: each batch with what is to be known at its place, if anything.

    `trailer` may be asked for once they have ended: rows, bytes, duration_seconds and the source's summary.
    """

    schema: pa.Schema
    batches: AsyncIterator[Piece]
    trailer: Callable[[], Note]


class Backend(Protocol):
    """Serves requests. Cancelling what awaits it cancels the work, at its source."""

    def decode(self, content: bytes) -> Request:
        """The request in a body, or `RequestError`."""

    def read(
        self, request: Request, *, ahead_bytes: int = AHEAD_BYTES, identity: str = ANYBODY
    ) -> AbstractAsyncContextManager[Answer]:
        """The answer, once its schema is known; leaving the context gives back what it holds.

        When so much waits to be read, the source waits, too. `identity` is who asks, to admission.
        """

    def talk(
        self, request: Request, typed: AsyncIterator[bytes], *, ahead_bytes: int = AHEAD_BYTES, identity: str = ANYBODY
    ) -> AbstractAsyncContextManager[Answer]:
        """The same of an exchange: what is `typed` is sent to the device; its end is the exchange's."""

    async def write(self, request: Request, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch]) -> Summary:
        """Write all of `batches`, verified; `rows`, `bytes` and, for a file, `sha256`.

        A failure of `batches` is raised here, and leaves what was there before.
        """

    async def act(self, name: str, body: bytes) -> list[Mapping[str, Any]]:
        """Carry an action out; its results."""
