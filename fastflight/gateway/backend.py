"""The interface between the gateway and what it serves.

A `Backend` is used on the gateway's event loop only. It raises the errors of `fastflight.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from fastflight.gateway.auth import ANYONE, Caller
from fastflight.runtime.outgoing import Note, Piece
from fastflight.service.requests import Doing, Request
from fastflight.service.source import PartialUpload, Progress, Refused, Summary

# Bytes that may wait between a source and the gateway: four full messages; more bring no gain.
AHEAD_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """An opened answer: its schema, and its batches, each with a note of the source or None.

    Call `trailer` after the last batch: it returns rows, bytes, duration_seconds and the source's summary.
    """

    schema: pa.Schema
    batches: AsyncIterator[Piece]
    trailer: Callable[[], Note]


class Backend(Protocol):
    """Serves requests, as far as the server's `Authority` grants them to the `caller`.

    Cancelling the task that awaits a method also cancels the work of the source.
    """

    @property
    def guarded(self) -> bool:
        """Whether callers must authenticate."""

    async def identify(self, authorization: str, certificate: str) -> Caller:
        """Return the caller for an `Authorization` value or, if that is empty, for a certificate's name.

        Raises `Unauthenticated`, with the same text whatever is wrong.
        """

    def check(self, caller: Caller) -> None:
        """Raise `Unauthenticated` if the caller's access was revoked or changed, where this is known without I/O."""

    def permit(self, request: Request, doing: Doing, caller: Caller) -> None:
        """Raise the error that `caller` would be refused with, where this is known without I/O."""

    def make_request(self, keys: Mapping[str, Any]) -> Request:
        """Return the request with these keys, `type` among them; raise `RequestError` if they are wrong."""

    def read(
        self, request: Request, *, ahead_bytes: int = AHEAD_BYTES, caller: Caller = ANYONE
    ) -> AbstractAsyncContextManager[StreamedAnswer]:
        """Open the answer: enter the context when its schema is known; leaving it releases the source.

        The source pauses while `ahead_bytes` wait to be read.
        """

    def talk(
        self, request: Request, typed: AsyncIterator[bytes], *, ahead_bytes: int = AHEAD_BYTES, caller: Caller = ANYONE
    ) -> AbstractAsyncContextManager[StreamedAnswer]:
        """As `read`, for an exchange: sends the bytes of `typed` to the device, and ends when they end."""

    async def write(
        self, request: Request, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], *, caller: Caller = ANYONE
    ) -> Summary:
        """Write all of `batches`, verify them, and return `rows`, `bytes` and, for a file, `sha256`.

        If `batches` raises an error, this raises it, and the old content stays.
        """

    async def act(self, name: str, body: bytes, caller: Caller = ANYONE) -> list[Mapping[str, Any]]:
        """Carry out an action and return its results."""


def ignore_progress(state: Progress | PartialUpload | Refused) -> None:
    """Do nothing: HTTP has no place for acknowledgements before the answer."""
