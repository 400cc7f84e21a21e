"""What the gateway stands in front of: a catalog in this process, or a server elsewhere.

A `Backend` belongs to the gateway's event loop. Its errors are those of `fastflight.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from fastflight.gateway.callers import ANYONE, Caller
from fastflight.runtime.outgoing import Note, Piece
from fastflight.service.requests import Doing, Request
from fastflight.service.source import Summary

# What waits between a source and the gateway: four full messages, beyond which more gain nothing.
AHEAD_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """Rows on their way: each batch with what is to be known at its place, if anything.

    `trailer` may be asked for once they have ended: rows, bytes, duration_seconds and the source's summary.
    """

    schema: pa.Schema
    batches: AsyncIterator[Piece]
    trailer: Callable[[], Note]


class Backend(Protocol):
    """Serves requests of a `caller`, as the `Authority` of its server has it.

    Cancelling what awaits it cancels the work, at its source.
    """

    @property
    def guarded(self) -> bool | None:
        """Whether it takes a proof to ask anything; None where only the server elsewhere knows."""

    async def identify(self, authorization: str, certificate: str) -> Caller:
        """Who shows this header's value, or else this certificate's name. `Unauthenticated`."""

    def check(self, caller: Caller) -> None:
        """Raise `Unauthenticated` once what was proven holds no more, where this is known without asking."""

    def permit(self, request: Request, doing: Doing, caller: Caller) -> None:
        """Raise what `caller` would be refused with, where this is known without asking."""

    def decode(self, content: bytes) -> Request:
        """The request in a body, or `RequestError`."""

    def read(
        self, request: Request, *, ahead_bytes: int = AHEAD_BYTES, caller: Caller = ANYONE
    ) -> AbstractAsyncContextManager[StreamedAnswer]:
        """The answer, once its schema is known; leaving the context gives back what it holds.

        When so much waits to be read, the source waits, too.
        """

    def talk(
        self, request: Request, typed: AsyncIterator[bytes], *, ahead_bytes: int = AHEAD_BYTES, caller: Caller = ANYONE
    ) -> AbstractAsyncContextManager[StreamedAnswer]:
        """The same of an exchange: what is `typed` is sent to the device; its end is the exchange's."""

    async def write(
        self, request: Request, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], *, caller: Caller = ANYONE
    ) -> Summary:
        """Write all of `batches`, verified; `rows`, `bytes` and, for a file, `sha256`.

        A failure of `batches` is raised here, and leaves what was there before.
        """

    async def act(self, name: str, body: bytes, caller: Caller = ANYONE) -> list[Mapping[str, Any]]:
        """Carry an action out; its results."""
