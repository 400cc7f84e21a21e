"""One stream of JetStream: what the recordings of a cluster ask of it.

Where it matters which message is the last, the leader of the stream is asked: other nodes may be behind. Messages are
read from any node ("direct get"), many with one request. JetStream leaves out messages that it finds damaged, without
a word, so readers must check that they have all. A request has a deadline and no consumer, so nothing falls silent.

Methods raise `TransportError` if NATS cannot be used, and `StorageError` if it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import nats.errors
from nats.js import JetStreamContext, api, errors

from fastflight.cluster.connection import ANSWER_SECONDS, ClusterConnection, raise_replicas, understood
from fastflight.errors import RequestError, TransportError

T = TypeVar("T")

WHERE = "the recordings in JetStream"
# One request returns at most this many bytes: the size of a lot of rows.
PAGE_BYTES = 2 * 1024 * 1024
# Direct get ends with one of these: that was all of the batch; there is no such message.
END_STATUSES = ("204", "404")
# How long a request is repeated. A new leader of a stream takes about five seconds.
ASK_SECONDS = 10.0
# Between two attempts.
RETRY_SECONDS = 0.2
# The stream does not exist.
NOT_FOUND = 10059


class Stored(NamedTuple):
    """A message, its sequence number in the stream, and the time at which JetStream got it, in us UTC."""

    seq: int
    data: bytes
    time: int = 0


class Bounds(NamedTuple):
    """The first and the last sequence number of a stream, its bytes, and when it was created, in us UTC."""

    first: int
    last: int
    bytes: int
    created: int


def description(fleet: str) -> str:
    """Return the description of the streams and the bucket of a fleet, by which they are recognized."""
    return f"fastflight: recordings of the fleet {fleet}"


def check_fleet(what: str, found: str | None, prefix: str, fleet: str) -> None:
    """Raise `RequestError` unless `found`, the description of `what` in NATS, is `prefix` and the fleet."""
    if found == prefix + fleet:
        return
    is_fleet = found is not None and found.startswith(prefix)
    owner = f"the fleet {found[len(prefix) :]!r}" if found and is_fleet else "something else than fastflight"
    raise RequestError(
        f"{what} in this NATS account belongs to {owner}, and not to the fleet {fleet!r}",
        where="[cluster]",
        hint="Give each fleet a NATS account of its own, or the same `fleet` in [cluster] of all its fleet files",
    )


class Stream:
    """A stream of the fleet `fleet`. Use it on the loop of `connection`.

    `create` makes it: before the first request if it does not exist, and after somebody has deleted it. It is to have
    `replicas` copies, also if it was made with fewer.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        name: str,
        fleet: str,
        create: Callable[[JetStreamContext], Awaitable[object]],
        replicas: int,
    ) -> None:
        self.name = name
        self._connection = connection
        self._fleet = fleet
        self._create = create
        self._replicas = replicas
        # Grows when requests find it after they have missed it: it may have been deleted and created again, empty.
        self.generation = 0
        self._ready = False

    async def jetstream(self) -> JetStreamContext:
        """Return JetStream. Create the stream if it does not exist, as far as is known.

        `RequestError` if it belongs to another fleet.
        """
        jetstream = self._connection.jetstream
        if not self._ready:
            with understood(WHERE):
                try:
                    found = await jetstream.stream_info(self.name)
                except errors.NotFoundError:
                    # Another server may create it at the same moment; `stream_info` then has what it created.
                    with contextlib.suppress(errors.BadRequestError):
                        await self._create(jetstream)
                    try:
                        found = await jetstream.stream_info(self.name)
                    except errors.NotFoundError as error:  # a leader of all streams is being elected
                        raise self._deleted() from error
            check_fleet(f"the stream {self.name}", found.config.description, description(""), self._fleet)
            await raise_replicas(jetstream, found.config, self._replicas)
            self._ready = True
            self.generation += 1
        return jetstream

    async def ask(self, ask: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        """Return the answer to a request that may be repeated.

        Without a connection this fails at once. If it is lost meanwhile, or a stream has no leader, ask again for
        `ASK_SECONDS`.
        """
        _ = self._connection.jetstream
        deadline = time.monotonic() + ASK_SECONDS
        while True:
            try:
                jetstream = await self.jetstream()
                with self._understood():
                    return await ask(jetstream)
            except TransportError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def publish(self, subject: str, data: bytes) -> None:
        """Store a message, and return when it is acknowledged. After a `TransportError` it may be stored, or not."""
        jetstream = await self.jetstream()
        with self._understood():
            await jetstream.publish(subject, data)

    async def bounds(self) -> Bounds:
        """Return the bounds of the stream, from the leader."""
        info = await self.ask(lambda jetstream: jetstream.stream_info(self.name))
        created = 0 if info.created is None else int(info.created.timestamp() * 1e6)
        return Bounds(info.state.first_seq, info.state.last_seq, info.state.bytes, created)

    async def next(self, subject: str, start: int) -> Stored | None:
        """Return the first message of a subject from `start` on, as the leader has it; None if it has none."""

        async def ask(jetstream: JetStreamContext) -> Stored | None:
            try:
                message = await jetstream.get_msg(self.name, start, subject, next=True)
            except errors.NotFoundError as error:
                if error.err_code == NOT_FOUND:
                    raise
                return None
            return Stored(message.seq or 0, message.data or b"")

        return await self.ask(ask)

    async def page(self, request: dict[str, object]) -> list[Stored]:
        """Return the messages that a direct get returns, from any node, with at most `PAGE_BYTES` bytes.

        The node may leave messages out: damaged ones, and the newest.
        """
        body = json.dumps({"max_bytes": PAGE_BYTES, **request}).encode()

        async def ask(jetstream: JetStreamContext) -> list[Stored]:
            client = await self._connection.connected()
            found: list[Stored] = []
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            try:
                await client.publish(f"$JS.API.DIRECT.GET.{self.name}", body, reply=inbox)
                while True:
                    answer = await answers.next_msg(ANSWER_SECONDS)
                    headers: dict[str, Any] = answer.headers or {}
                    status = headers.get(api.Header.STATUS.value)
                    if status is None:
                        found.append(Stored(int(headers["Nats-Sequence"]), answer.data, _time_of(headers)))
                    elif status in END_STATUSES:
                        return found
                    else:
                        await jetstream.stream_info(self.name)  # raises if the stream was deleted
                        reason = headers.get(api.Header.DESCRIPTION.value, "no node answers")
                        raise TransportError(f"JetStream does not return messages: {status} {reason}", where=WHERE)
            finally:
                with contextlib.suppress(nats.errors.Error):  # the connection was lost
                    await answers.unsubscribe()

        return await self.ask(ask)

    async def purge(self, before: int) -> None:
        """Delete the messages before a sequence number."""
        await self.ask(lambda jetstream: jetstream.purge_stream(self.name, before))

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        """As `understood`, for a request to the stream. `TransportError` if it was deleted: then ask again."""
        with understood(WHERE):
            try:
                yield
            except errors.APIError as error:
                if error.err_code != NOT_FOUND:
                    raise
                raise self._deleted() from error
            except errors.NoStreamResponseError as error:
                raise self._deleted() from error

    def _deleted(self) -> TransportError:
        self._ready = False
        return TransportError(f"the stream {self.name} was deleted", where=WHERE, hint="It is created again")


def _time_of(headers: dict[str, Any]) -> int:
    # With nanoseconds, which `fromisoformat` of Python 3.11 takes as microseconds.
    return int(datetime.fromisoformat(headers["Nats-Time-Stamp"]).timestamp() * 1e6)
