"""A backend for the gateway that asks a server elsewhere, with the Flight client.

The server authenticates and authorizes: each request carries the token of its own caller and no other. Notes that the
server sends among rows are passed on in their place.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from fastflight.access.identity import ANYBODY, Identity, scopes, unproven
from fastflight.access.tokens import bearer, parse_authorization
from fastflight.app.remote_streams import Exchange, upload, vetted
from fastflight.app.revocation import RevocationCheck
from fastflight.client.answers import single
from fastflight.client.connection import ServerConnection
from fastflight.client.meaning import text, understood
from fastflight.client.stream import RowStream
from fastflight.concurrency import iterate_in_thread, off_loop
from fastflight.gateway import StreamedAnswer
from fastflight.gateway.auth import ANYONE, Caller
from fastflight.gateway.backend import AHEAD_BYTES, ignore_progress
from fastflight.runtime.outgoing import Piece
from fastflight.service import Catalog, SourceFunctions, make_request
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
    Sql,
)
from fastflight.service.source import Summary, held_bytes

REQUESTS = (DeviceFile, FleetFile, DeviceTree, DeviceListing, DeviceExec, DeviceSession, Recording, Mock, Sql)
# Actions that a server answers at once even under load, with a time limit below the usual one.
TIMEOUTS: Mapping[str, float] = {"health": 3.0}


class RemoteBackend:
    """Serves requests of these `kinds` by sending them to the server of `connection`."""

    def __init__(
        self,
        connection: ServerConnection,
        kinds: Sequence[type[Request]] = REQUESTS,
        *,
        passing: ServerConnection | None = None,
    ) -> None:
        """`passing`: a connection without a token, for callers that have one; `connection` if None."""
        self._connection = connection
        self._passing = passing or connection
        # None: only the server knows whether it wants tokens.
        self.guarded: bool | None = None
        self._catalog = Catalog()
        for kind in kinds:
            self._catalog.add(SourceFunctions(kind))
        self._revocation = RevocationCheck(lambda caller: self.identify(caller.authorization, ""))

    async def identify(self, authorization: str, certificate: str) -> Caller:
        """Ask the server. A certificate is ignored: the gateway has not its key, and cannot pass it on."""
        name, token = parse_authorization(authorization)
        if authorization and not token:
            raise unproven()
        asking = self._passing.with_authorization(bearer(token)) if token else self._connection
        results = await off_loop(asking.results, "identity", b"{}")
        result = single(results, "identity", asking.location)
        with understood("what the server says of who asks"):
            identity = Identity(text(result["name"]), scopes(map(text, result["scopes"])))
        # A caller with a token keeps it, even one named as ANYBODY: else the gateway's own rights would apply.
        if not token and identity == ANYBODY:
            return ANYONE
        if name and name != identity.name:
            raise unproven()
        return Caller(identity, bearer(token) if token else "")

    def check(self, caller: Caller) -> None:
        """Raise once the token is revoked. The server knows only its own streams, so it is asked regularly."""
        self._revocation.check(caller)

    def permit(self, request: Request, doing: Doing, caller: Caller) -> None:
        """Permit everything: the server decides when it gets the request."""

    def make_request(self, keys: Mapping[str, Any]) -> Request:
        return make_request(keys, self._catalog)

    async def act(self, name: str, body: bytes, caller: Caller = ANYONE) -> list[Mapping[str, Any]]:
        return await off_loop(self._connection_of(caller).results, name, body or b"{}", TIMEOUTS.get(name))

    @contextlib.asynccontextmanager
    async def read(
        self, request: Request, *, ahead_bytes: int = AHEAD_BYTES, caller: Caller = ANYONE
    ) -> AsyncIterator[StreamedAnswer]:
        stream = await off_loop(self._connection_of(caller).stream, request, discard=RowStream.cancel)
        async with _answered(stream, ahead_bytes) as answer:
            yield answer

    @contextlib.asynccontextmanager
    async def talk(
        self, request: Request, typed: AsyncIterator[bytes], *, ahead_bytes: int = AHEAD_BYTES, caller: Caller = ANYONE
    ) -> AsyncIterator[StreamedAnswer]:
        exchange = await Exchange.open(self._connection_of(caller), request, typed)
        rows = exchange.rows
        try:
            pieces = exchange.read_ahead(partial(vetted, rows), ahead_bytes, _size)
            async with contextlib.aclosing(pieces):
                yield StreamedAnswer(rows.schema, pieces, lambda: rows.summary)
        finally:
            await exchange.aclose()

    async def write(
        self, request: Request, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], *, caller: Caller = ANYONE
    ) -> Summary:
        return await upload(self._connection_of(caller), request, schema, batches, ignore_progress)

    def _connection_of(self, caller: Caller) -> ServerConnection:
        """Return the connection with the caller's token, or the gateway's own."""
        return self._passing.with_authorization(caller.authorization) if caller.authorization else self._connection


@contextlib.asynccontextmanager
async def _answered(stream: RowStream, ahead_bytes: int) -> AsyncIterator[StreamedAnswer]:
    """Read the server's rows ahead in a thread, for as long as the block runs."""
    pieces = iterate_in_thread(partial(vetted, stream), max_bytes=ahead_bytes, size_of=_size, cancel=stream.cancel)
    async with contextlib.aclosing(pieces):
        try:
            yield StreamedAnswer(stream.schema, pieces, lambda: stream.summary)
        finally:
            stream.cancel()  # also when nothing was read from it


def _size(piece: Piece) -> int:
    return held_bytes(piece[0])
