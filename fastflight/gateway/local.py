"""The backend in the server's own process: serves the catalog's sources and the table of actions.

An async source runs on the shard of its device, a sync one in a thread of its own. Its rows cross to the gateway's loop
through a channel that is bounded by bytes. Rows that a client sends cross the other way, a batch at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, cast

import pyarrow as pa

from fastflight.access.actions import Actions
from fastflight.access.authenticator import Authenticator
from fastflight.access.authority import Authority
from fastflight.access.identity import unproven
from fastflight.concurrency import Channel, Shards, across, iterate_in_thread, off_loop
from fastflight.errors import Stopped
from fastflight.gateway.auth import ANYONE, Caller
from fastflight.gateway.backend import AHEAD_BYTES, StreamedAnswer, ignore_progress
from fastflight.gateway.handover import (
    WAITING_BYTES,
    RowChannel,
    WriterFuture,
    run_writer,
    writer_in_thread,
    writer_on_shard,
)
from fastflight.gateway.ws.terminal_input import INPUT_SCHEMA, forwarding
from fastflight.runtime.outgoing import Account, Piece, Run, aruns, memory_of, runs
from fastflight.runtime.stream import Stream
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service import Catalog, make_request
from fastflight.service.requests import Doing, Request
from fastflight.service.resolve import ResolvedRequest
from fastflight.service.source import Reading, Summary

# Yields one `Reading`, then lists of its runs.
Coming = AsyncGenerator[Any, None]


class LocalBackend:
    """Serves from `catalog` and `actions`, under the admission of `registry`; async requests run on `shards`."""

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

    async def identify(self, authorization: str, certificate: str) -> Caller:
        if self._authenticator is None:
            return ANYONE
        if certificate and not authorization:
            return Caller(self._authenticator.certified(certificate))
        return Caller(self._authenticator.authenticate(authorization))

    def check(self, caller: Caller) -> None:
        if self._authenticator is not None and not self._authenticator.still(caller.identity):
            raise unproven()

    def permit(self, request: Request, doing: Doing, caller: Caller) -> None:
        self._authority.authorize(caller.identity, request, doing)

    def make_request(self, keys: Mapping[str, Any]) -> Request:
        return make_request(keys, self._catalog)

    async def act(self, name: str, body: bytes, caller: Caller = ANYONE) -> list[Mapping[str, Any]]:
        call = self._actions.call(name, body, caller.identity)

        def carry_out() -> list[Mapping[str, Any]]:
            return [json.loads(result) for result in call.results()]

        if call.at_once:
            return await off_loop(carry_out)
        async with self._registry.acall(name, call.device, lambda: caller.name) as until_done:
            return await off_loop(until_done(carry_out))

    @contextlib.asynccontextmanager
    async def read(
        self, request: Request, *, ahead_bytes: int = AHEAD_BYTES, caller: Caller = ANYONE
    ) -> AsyncIterator[StreamedAnswer]:
        resolved = self._allowed(request, "read", caller)
        begin = self._reader(resolved, ahead_bytes)  # before admission: an unreadable source is refused without a wait
        async with self._stream(resolved, caller) as stream, contextlib.aclosing(begin()) as coming:
            yield await _answer(coming, stream)

    @contextlib.asynccontextmanager
    async def talk(
        self, request: Request, typed: AsyncIterator[bytes], *, ahead_bytes: int = AHEAD_BYTES, caller: Caller = ANYONE
    ) -> AsyncIterator[StreamedAnswer]:
        resolved = self._allowed(request, "exchange", caller)
        _, function = resolved.source.function("exchange", "async")
        exchange = partial(function, resolved.request, INPUT_SCHEMA)
        shard = self._shards.of(resolved.device)
        channel = Channel[pa.RecordBatch](WAITING_BYTES)
        async with self._stream(resolved, caller) as stream:
            make_runs = partial(aruns, partial(exchange, channel), resolved)
            coming = across(shard, make_runs, max_bytes=ahead_bytes, size_of=memory_of)
            async with contextlib.aclosing(coming), forwarding(typed, channel):
                yield await _answer(coming, stream)

    async def write(
        self, request: Request, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], *, caller: Caller = ANYONE
    ) -> Summary:
        resolved = self._allowed(request, "write", caller)
        writing = self._writing(resolved, schema)
        async with self._stream(resolved, caller) as stream:
            summary = await run_writer(*writing, batches, stream)
            stream.outcome = "finished"
            return summary

    def _allowed(self, request: Request, doing: Doing, caller: Caller) -> ResolvedRequest:
        """Return the part of the request that is granted to the caller, with its source."""
        request = self._authority.authorize(caller.identity, request, doing)
        return ResolvedRequest.with_(request, self._catalog.source_of(request))

    def _reader(self, resolved: ResolvedRequest, ahead_bytes: int) -> Callable[[], Coming]:
        """Return the function that starts to read; raise `RequestError` if the source cannot be read."""
        mode, read = resolved.source.function("read", resolved.request.mode)
        if mode == "sync":
            blocking = partial(runs, partial(read, resolved.request), resolved)
            return lambda: iterate_in_thread(blocking, max_bytes=ahead_bytes, size_of=memory_of)
        make_runs = partial(aruns, partial(read, resolved.request), resolved)
        shard = self._shards.of(resolved.device)
        return lambda: across(shard, make_runs, max_bytes=ahead_bytes, size_of=memory_of)

    def _writing(self, resolved: ResolvedRequest, schema: pa.Schema) -> tuple[RowChannel, Callable[[], WriterFuture]]:
        request = resolved.request
        mode, function = resolved.source.function("write", request.mode)

        def write(rows: Any) -> Any:
            return function(request, schema, rows, ignore_progress)

        return writer_in_thread(write) if mode == "sync" else writer_on_shard(self._shards.of(resolved.device), write)

    @contextlib.asynccontextmanager
    async def _stream(self, resolved: ResolvedRequest, caller: Caller) -> AsyncIterator[Stream]:
        """Register a stream for the length of the block. When the registry stops it, the block raises `Stopped`."""
        stream = await self._registry.aopen(resolved, partial(self._has_left, caller), lambda: caller.name)
        stream.identity = caller.name
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

    def _has_left(self, caller: Caller) -> bool:
        """Always False: a client that leaves cancels its task. Raises if the caller's access was revoked or changed."""
        self.check(caller)
        return False


async def _answer(coming: Coming, stream: Stream) -> StreamedAnswer:
    """Wait for the reading, and return the answer with its schema."""
    reading = cast(Reading, await anext(coming))
    if reading.drain is not None:
        stream.when_draining(reading.drain)
    account = Account(stream)
    return StreamedAnswer(reading.schema, _pieces(coming, account, stream), lambda: account.trailer(reading.summary()))


async def _pieces(coming: AsyncIterator[list[Run]], account: Account, stream: Stream) -> AsyncIterator[Piece]:
    try:
        async for lot in coming:
            for run in account.sending(lot):
                for piece in run.pieces():
                    yield piece
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
