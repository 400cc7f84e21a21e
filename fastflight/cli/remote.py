"""The gateway's backend in front of a server elsewhere, by way of the Flight client.

The server refuses and decides as it does for every client: each is passed on with the token that they showed, and
nobody else's. What the server says among its rows goes on in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from fastflight.access.identity import ANYBODY, Identity, scopes, unproven
from fastflight.access.tokens import bearer, parse_authorization
from fastflight.cli.standing import Standing
from fastflight.client.asking import worked
from fastflight.client.call import single
from fastflight.client.connection import ServerConnection
from fastflight.client.interaction import Interaction, left
from fastflight.client.meaning import text, understood
from fastflight.client.rows import UploadRows
from fastflight.client.stream import RowStream
from fastflight.concurrency import Channel, off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import FastFlightError, Stopped
from fastflight.gateway import StreamedAnswer
from fastflight.gateway.backend import AHEAD_BYTES
from fastflight.gateway.callers import ANYONE, Caller
from fastflight.gateway.crossing import threaded
from fastflight.runtime.outgoing import Piece
from fastflight.service import Catalog, Source, decode
from fastflight.service.requests import (
    DeviceExec,
    DeviceFile,
    DeviceListing,
    DeviceSession,
    DeviceTree,
    Doing,
    FleetFile,
    Mock,
    Recording,
    Request,
)
from fastflight.service.source import Summary, held_bytes

REQUESTS = (DeviceFile, FleetFile, DeviceTree, DeviceListing, DeviceExec, DeviceSession, Recording, Mock)
# What waits on the way to the server, which has as much again.
WAITING_BYTES = 1024 * 1024
# Of actions that a server answers at once, however much it does. Whoever asks after its health waits for a few seconds.
TIMEOUTS: Mapping[str, float] = {"health": 3.0}


class RemoteBackend:
    """Serves by asking the server of `connection`, which serves requests of these `kinds`."""

    def __init__(
        self,
        connection: ServerConnection,
        kinds: Sequence[type[Request]] = REQUESTS,
        *,
        passing: ServerConnection | None = None,
    ) -> None:
        """`passing` is the way for callers who show a token: one that shows none of its own."""
        self._connection = connection
        self._passing = passing or connection
        # Only the server knows whom it lets in.
        self.guarded: bool | None = None
        self._catalog = Catalog()
        for kind in kinds:
            self._catalog.add(Source(kind))
        self._standing = Standing(lambda caller: self.identify(caller.authorization, ""))

    async def identify(self, authorization: str, certificate: str) -> Caller:
        """By asking the server. A certificate was shown to this gateway, which cannot show it to the server."""
        name, token = parse_authorization(authorization)
        if authorization and not token:
            raise unproven()
        asking = self._passing.showing(bearer(token)) if token else self._connection
        results = await off_loop(asking.results, "identity", b"{}")
        told = single(results, "identity", asking.location)
        with understood("what the server says of who asks"):
            identity = Identity(text(told["name"]), scopes(map(text, told["scopes"])))
        # Who shows a token goes on with it, whatever its name: without, the gateway's own rights would be used.
        if not token and identity == ANYBODY:
            return ANYONE
        if name and name != identity.name:
            raise unproven()
        return Caller(identity, bearer(token) if token else "")

    def check(self, caller: Caller) -> None:
        """The server is asked now and then: it ends its streams by itself, and knows of nothing else that is open."""
        self._standing.check(caller)

    def permit(self, request: Request, doing: Doing, caller: Caller) -> None:
        """The server does, when it is asked."""

    def decode(self, content: bytes) -> Request:
        return decode(content, self._catalog)

    async def act(self, name: str, body: bytes, caller: Caller = ANYONE) -> list[Mapping[str, Any]]:
        return await off_loop(self._of(caller).results, name, body or b"{}", TIMEOUTS.get(name))

    @contextlib.asynccontextmanager
    async def read(
        self, request: Request, *, ahead_bytes: int = AHEAD_BYTES, caller: Caller = ANYONE
    ) -> AsyncIterator[StreamedAnswer]:
        stream = await off_loop(self._of(caller).stream, request, discard=RowStream.cancel)
        async with _answered(stream, ahead_bytes) as answer:
            yield answer

    @contextlib.asynccontextmanager
    async def talk(
        self, request: Request, typed: AsyncIterator[bytes], *, ahead_bytes: int = AHEAD_BYTES, caller: Caller = ANYONE
    ) -> AsyncIterator[StreamedAnswer]:
        interaction = await off_loop(self._of(caller).interaction, request, discard=left)
        sending = asyncio.ensure_future(_send(typed, interaction))
        try:
            async with _answered(interaction.rows, ahead_bytes) as answer:
                yield answer
        finally:
            await unbroken(_left(sending, interaction))

    async def write(
        self, request: Request, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], *, caller: Caller = ANYONE
    ) -> Summary:
        handed = Channel[pa.RecordBatch](WAITING_BYTES)
        writing = asyncio.ensure_future(worked(self._of(caller).upload(request, UploadRows(schema, handed), None)))
        writing.add_done_callback(lambda _: handed.close())
        # One that nobody waits for any more, since its client has left, is not news.
        writing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            async for batch in batches:
                with contextlib.suppress(Stopped):  # the write has ended, and says why
                    await handed.aput(batch, held_bytes(batch))
                if writing.done():
                    break
            handed.finish()
            return asdict(await asyncio.shield(writing))
        except BaseException as error:
            handed.fail(error if isinstance(error, FastFlightError) else Stopped("the upload broke off"))
            if not writing.done():
                writing.cancel()  # which gives it up, and waits until it is settled
                await asyncio.wait([writing])
            raise

    def _of(self, caller: Caller) -> ServerConnection:
        """The way to the server for what `caller` asks."""
        return self._passing.showing(caller.authorization) if caller.authorization else self._connection


async def _left(sending: asyncio.Task[None], interaction: Interaction) -> None:
    await off_loop(interaction.cancel)  # and with it a send that waits for the device
    sending.cancel()
    await asyncio.wait([sending])
    await off_loop(interaction.settle)


async def _send(typed: AsyncIterator[bytes], interaction: Interaction) -> None:
    with contextlib.suppress(FastFlightError):  # the exchange has ended, and says why
        async for data in typed:
            await off_loop(interaction.send, data)
        interaction.done()


@contextlib.asynccontextmanager
async def _answered(stream: RowStream, ahead_bytes: int) -> AsyncIterator[StreamedAnswer]:
    """What the server sends, read ahead by a thread; cancelled there when the block is left."""
    pieces = threaded(stream.pieces, max_bytes=ahead_bytes, size_of=_size, cancel=stream.cancel)
    async with contextlib.aclosing(pieces):
        try:
            yield StreamedAnswer(stream.schema, pieces, lambda: stream.summary)
        finally:
            stream.cancel()  # also one of which nothing was asked


def _size(piece: Piece) -> int:
    return held_bytes(piece[0])
