"""What the gateway serves: the catalog's sources and the table of actions of the server in its own process.

An async source runs on the shard of its device, a sync one in a thread of its own. Its rows cross to the gateway's loop
through a channel that is bounded by bytes. Rows that a client sends cross the other way, a batch at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from fastflight.access.actions import Actions
from fastflight.access.authenticator import Authenticator
from fastflight.access.authority import Authority
from fastflight.access.identity import ANYBODY, Identity, unproven
from fastflight.concurrency import Channel, Shards, across, iterate_in_thread, off_loop
from fastflight.errors import Stopped
from fastflight.gateway.handover import write_in_thread, write_on_shard
from fastflight.runtime.outgoing import Measured, Message, Outgoing, memory_of
from fastflight.runtime.stream import Stream
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service import Catalog, make_request
from fastflight.service.requests import Doing, Request
from fastflight.service.resolve import ResolvedRequest
from fastflight.service.source import Note, PartialUpload, Progress, Refused, Summary

# Bytes that may wait between a source and the gateway: four full messages; more bring no gain.
AHEAD_BYTES = 1024 * 1024
# The schema of bytes as they are: what a client types, or uploads.
RAW = pa.schema([pa.field("data", pa.binary(), nullable=False)])

# Yields the lists of messages of an answer.
Coming = AsyncGenerator[list[Measured], None]


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """An opened answer: its schema, and its batches, each with a note of the source or None.

    Call `trailer` after the last batch: it returns rows, bytes, duration_seconds and the source's summary.
    """

    schema: pa.Schema
    batches: AsyncIterator[Message]
    trailer: Callable[[], Note]


class Backend:
    """Serves from `catalog` and `actions`, under the admission of `registry`; async requests run on `shards`.

    It is used on the gateway's event loop only, and serves requests as far as the `Authority` grants them to the
    `caller`. It raises the errors of `fastflight.errors`. Cancelling the task that awaits a method also cancels the
    work of the source.
    """

    def __init__(
        self,
        catalog: Catalog,
        actions: Actions,
        registry: StreamRegistry,
        shards: Shards,
        authority: Authority | None = None,
        authenticator: Authenticator | None = None,
    ) -> None:
        """With an `authenticator`, callers must authenticate, and `authority` decides what each may do."""
        self._catalog = catalog
        self._actions = actions
        self._registry = registry
        self._shards = shards
        self._authority = authority or Authority()
        self._authenticator = authenticator
        self.guarded = authenticator is not None

    def identify(self, authorization: str, certificate: str) -> Identity:
        """Return the caller for an `Authorization` value or, if that is empty, for a certificate's name.

        Raises `Unauthenticated`, with the same text whatever is wrong.
        """
        if self._authenticator is None:
            return ANYBODY
        if certificate and not authorization:
            return self._authenticator.certified(certificate)
        return self._authenticator.authenticate(authorization)

    def check(self, caller: Identity) -> None:
        """Raise `Unauthenticated` if the caller's access was revoked or changed."""
        if self._authenticator is not None and not self._authenticator.still(caller):
            raise unproven()

    def permit(self, request: Request, doing: Doing, caller: Identity) -> None:
        """Raise the error that `caller` would be refused with, where this is known without I/O."""
        self._authority.authorize(caller, request, doing)

    def permit_action(self, name: str, caller: Identity) -> None:
        """Raise the error that `caller` would be refused with for this action, which has no body."""
        self._actions.call(name, b"", caller)

    def make_request(self, keys: Mapping[str, Any], *, strict: bool = True) -> Request:
        """Return the request with these keys, `type` among them; raise `RequestError` if they are wrong.

        Unless `strict`, numbers and truth values may also be text, as in a query.
        """
        return make_request(keys, self._catalog, strict=strict)

    async def act(self, name: str, body: bytes, caller: Identity = ANYBODY) -> list[Mapping[str, Any]]:
        """Carry out an action and return its results."""
        call = self._actions.call(name, body, caller)

        def carry_out() -> list[Mapping[str, Any]]:
            return [json.loads(result) for result in call.results()]

        if call.at_once:
            return await off_loop(carry_out)
        async with self._registry.acall(name, call.device, partial(_name, caller)) as until_done:
            return await off_loop(until_done(carry_out))

    @contextlib.asynccontextmanager
    async def read(
        self, request: Request, *, ahead_bytes: int = AHEAD_BYTES, caller: Identity = ANYBODY
    ) -> AsyncIterator[StreamedAnswer]:
        """Open the answer: enter the context when its schema is known; leaving it releases the source.

        The source pauses while `ahead_bytes` wait to be read.
        """
        resolved = self._allowed(request, "read", caller)
        begin = self._reader(resolved, ahead_bytes)  # before admission: an unreadable source is refused without a wait
        async with self._stream(resolved, caller) as stream:
            outgoing = Outgoing(stream)
            async with contextlib.aclosing(begin(outgoing)) as coming:
                yield await _answer(outgoing, coming, stream)

    @contextlib.asynccontextmanager
    async def talk(
        self, request: Request, typed: Channel[pa.RecordBatch], *, ahead_bytes: int, caller: Identity = ANYBODY
    ) -> AsyncIterator[StreamedAnswer]:
        """As `read`, for an exchange: sends the rows of `typed`, of the schema `RAW`, and ends when they end."""
        resolved = self._allowed(request, "exchange", caller)
        _, function = resolved.source.function("exchange", "async")
        shard = self._shards.of(resolved.device)
        async with self._stream(resolved, caller) as stream:
            outgoing = Outgoing(stream)
            opening = partial(outgoing.aopened, partial(function, resolved.request, RAW, typed))
            coming = across(shard, opening, max_bytes=ahead_bytes, size_of=memory_of)
            async with contextlib.aclosing(coming), contextlib.aclosing(typed):
                yield await _answer(outgoing, coming, stream)

    async def write(
        self, request: Request, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], *, caller: Identity = ANYBODY
    ) -> Summary:
        """Write all of `batches`, verify them, and return `rows`, `bytes` and, for a file, `sha256`.

        If `batches` raises an error, this raises it, and the old content stays.
        """
        resolved = self._allowed(request, "write", caller)
        mode, function = resolved.source.function("write", resolved.request.mode)

        def write(rows: Any) -> Any:
            return function(resolved.request, schema, rows, _ignore_progress)

        async with self._stream(resolved, caller) as stream:
            if mode == "sync":
                summary = await write_in_thread(write, batches, stream)
            else:
                summary = await write_on_shard(self._shards.of(resolved.device), write, batches, stream)
            stream.outcome = "finished"
            return summary

    def _allowed(self, request: Request, doing: Doing, caller: Identity) -> ResolvedRequest:
        """Return the part of the request that is granted to the caller, with its source."""
        request = self._authority.authorize(caller, request, doing)
        return ResolvedRequest.with_(request, self._catalog.source_of(request))

    def _reader(self, resolved: ResolvedRequest, ahead_bytes: int) -> Callable[[Outgoing], Coming]:
        """Return the function that starts to read; raise `RequestError` if the source cannot be read."""
        mode, read = resolved.source.function("read", resolved.request.mode)
        read = partial(read, resolved.request)
        limits: dict[str, Any] = {"max_bytes": ahead_bytes, "size_of": memory_of}
        if mode == "sync":
            return lambda outgoing: iterate_in_thread(partial(outgoing.opened, read), **limits)
        shard = self._shards.of(resolved.device)
        return lambda outgoing: across(shard, partial(outgoing.aopened, read), **limits)

    @contextlib.asynccontextmanager
    async def _stream(self, resolved: ResolvedRequest, caller: Identity) -> AsyncIterator[Stream]:
        """Register a stream for the length of the block. When the registry stops it, the block raises `Stopped`."""
        stream = await self._registry.aopen(resolved, partial(self._has_left, caller), partial(_name, caller))
        stream.identity = _name(caller)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        inside = True

        def stop() -> None:
            if inside:
                task.cancel()

        outcome, failure = "cancelled", None
        stream.when_stopped(lambda: _call_soon(loop, stop))
        try:
            yield stream
            outcome = "finished" if stream.outcome else "cancelled"
        except asyncio.CancelledError:
            _check_stopped(stream)
            raise
        except Stopped:
            raise
        except Exception as error:
            outcome, failure = "failed", error
            raise
        finally:
            inside = False
            stream.when_stopped(None)
            stream.close(outcome, failure)

    def _has_left(self, caller: Identity) -> bool:
        """Always False: a client that leaves cancels its task. Raises if the caller's access was revoked or changed."""
        self.check(caller)
        return False


def _name(caller: Identity) -> str:
    """Return the name that admission limits count by. Without authentication all callers share one."""
    return caller.own_name or "http"


async def _answer(outgoing: Outgoing, coming: Coming, stream: Stream) -> StreamedAnswer:
    """Wait for the schema, and return the answer with it."""
    first = await anext(coming)
    if outgoing.reading.drain is not None:
        stream.when_draining(outgoing.reading.drain)
    return StreamedAnswer(outgoing.schema, _messages(outgoing, first, coming, stream), outgoing.trailer)


async def _messages(
    outgoing: Outgoing, first: list[Measured], coming: Coming, stream: Stream
) -> AsyncIterator[Message]:
    try:
        for message in outgoing.sent((first,)):
            yield message
        async for messages in coming:
            for message in outgoing.sent((messages,)):
                yield message
    except asyncio.CancelledError:
        _check_stopped(stream)  # raised here, the error can still be sent to the client
        raise
    stream.outcome = "finished"


def _check_stopped(stream: Stream) -> None:
    """Raise `Stopped` if the task was cancelled because its stream was stopped. Call it after a `CancelledError`."""
    task = asyncio.current_task()
    if stream.why_stop and task is not None and not task.uncancel():
        raise Stopped(stream.why_stop, hint="Ask again")


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, and its tasks with it
        loop.call_soon_threadsafe(callback)


def _ignore_progress(state: Progress | PartialUpload | Refused) -> None:
    """Do nothing: HTTP has no place for acknowledgements before the answer."""
