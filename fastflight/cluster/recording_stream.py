"""The stream of JetStream that has the recorded rows of a fleet, until retention deletes them.

Each message has rows of many devices (`fastflight.cluster.shipment`) under the subject of the server that recorded
them. Only retention deletes messages, the oldest first, so a number that is missing within the stream is damage.

Where it matters which message is the last, the leader of the stream is asked: other nodes may be behind. Messages are
read from any node ("direct get"), many with one request. JetStream leaves out messages that it finds damaged, without
a word, so readers must check that they have all. A request has a deadline and no consumer, so nothing falls silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import nats.errors
from nats.js import JetStreamContext, api, errors

from fastflight.cluster.connection import ANSWER_SECONDS, ClusterConnection, raise_replicas, typed_errors
from fastflight.errors import RequestError, TransportError

T = TypeVar("T")

STREAM = "fastflight"
SUBJECTS = "rec.>"
DESCRIPTION = "fastflight: recordings of the fleet "
WHERE = "the recordings in JetStream"
# One request returns at most this many messages and bytes: the size of a lot of rows.
PAGE_MESSAGES = 256
PAGE_BYTES = 2 * 1024 * 1024
# How often a message is asked for again that a node has left out.
ATTEMPTS = 4
# Retention deletes again when what it would delete is more than this part of what is kept.
SWEEP_PART = 64
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
    """The first and the last sequence number of the stream, its bytes, and when it was created, in us UTC."""

    first: int
    last: int
    bytes: int
    created: int


class RecordingStream:
    """The stream of the fleet `fleet`. Use it on the loop of `connection`.

    It is created before the first request if it does not exist, and after somebody has deleted it. It is to have
    `replicas` copies, also if it was made with fewer.

    Methods raise `TransportError` if NATS cannot be used, and `StorageError` if it fails.
    """

    def __init__(self, connection: ClusterConnection, fleet: str, replicas: int) -> None:
        self._connection = connection
        self._fleet = fleet
        self._replicas = replicas
        # Grows when requests find the stream after they have missed it: it may have been created again, empty.
        self.generation = 0
        self._ready = False

    async def publish(self, server: str, message: bytes) -> None:
        """Store a message of a server, and return when it is acknowledged.

        After a `TransportError` it may be stored, or not.
        """
        jetstream = await self._jetstream()
        with self._typed_errors():
            await jetstream.publish(f"rec.{server}", message)

    async def bounds(self) -> Bounds:
        """Return the bounds of the stream, from the leader."""
        info = await self._ask(lambda jetstream: jetstream.stream_info(STREAM))
        created = 0 if info.created is None else int(info.created.timestamp() * 1e6)
        return Bounds(info.state.first_seq, info.state.last_seq, info.state.bytes, created)

    async def page(self, start: int, messages: int = PAGE_MESSAGES) -> list[Stored]:
        """Return the next messages from the sequence number `start` on, as some node has them.

        The node may leave messages out: damaged ones, and the newest.
        """
        return await self._page({"seq": start, "batch": messages})

    async def next(self, start: int) -> Stored | None:
        """Return the first message from `start` on, as the leader has it; None if it has none."""

        async def ask(jetstream: JetStreamContext) -> Stored | None:
            try:
                message = await jetstream.get_msg(STREAM, start, SUBJECTS, next=True)
            except errors.NotFoundError as error:
                if error.err_code == NOT_FOUND:
                    raise
                return None
            return Stored(message.seq or 0, message.data or b"")

        return await self._ask(ask)

    async def between(self, start: int, end: int) -> list[Stored]:
        """Return the messages from `start` to `end` that any of several attempts finds.

        A message that is damaged on one node may be whole on another.
        """
        found: dict[int, Stored] = {}
        for _ in range(ATTEMPTS):
            found.update({message.seq: message for message in await self.page(start, end - start + 1)})
        for seq in range(start, end + 1):
            if seq not in found and (message := await self.next(seq)) is not None:
                found[message.seq] = message
        return [found[seq] for seq in sorted(found) if start <= seq <= end]

    async def delete_older(self, max_bytes: int | None, oldest: float | None) -> int:
        """Delete the oldest messages beyond a size, or from before a time. Return how many, roughly."""
        bounds = await self.bounds()
        until = bounds.first
        if max_bytes is not None and bounds.bytes > max_bytes:
            until += int((bounds.last - bounds.first + 1) * (bounds.bytes - max_bytes) / bounds.bytes) + 1
        if oldest is not None:
            start = datetime.fromtimestamp(oldest, UTC).isoformat().replace("+00:00", "Z")
            page = await self._page({"start_time": start, "batch": 1})
            until = max(until, page[0].seq if page else bounds.last + 1)
        if until - bounds.first <= (bounds.last - bounds.first) // SWEEP_PART:
            return 0
        await self._ask(lambda jetstream: jetstream.purge_stream(STREAM, until))
        return until - bounds.first

    async def _jetstream(self) -> JetStreamContext:
        """Return JetStream. Create the stream if it does not exist, as far as is known.

        `RequestError` if it belongs to another fleet.
        """
        jetstream = self._connection.jetstream
        if not self._ready:
            config = api.StreamConfig(
                name=STREAM,
                description=DESCRIPTION + self._fleet,
                subjects=[SUBJECTS],
                storage=api.StorageType.FILE,
                discard=api.DiscardPolicy.NEW,
                num_replicas=self._replicas,
                allow_direct=True,
            )
            with typed_errors(WHERE):
                try:
                    found = await jetstream.stream_info(STREAM)
                except errors.NotFoundError:
                    # Another server may create it at the same moment; `stream_info` then has what it created.
                    with contextlib.suppress(errors.BadRequestError):
                        await jetstream.add_stream(config)
                    try:
                        found = await jetstream.stream_info(STREAM)
                    except errors.NotFoundError as error:  # a leader of all streams is being elected
                        raise self._deleted() from error
            check_fleet(f"the stream {STREAM}", found.config.description, DESCRIPTION, self._fleet)
            await raise_replicas(jetstream, found.config, self._replicas)
            self._ready = True
            self.generation += 1
        return jetstream

    async def _ask(self, ask: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        """Return the answer to a request that may be repeated.

        Without a connection this fails at once. If it is lost meanwhile, or a stream has no leader, ask again for
        `ASK_SECONDS`.
        """
        _ = self._connection.jetstream
        deadline = time.monotonic() + ASK_SECONDS
        while True:
            try:
                jetstream = await self._jetstream()
                with self._typed_errors():
                    return await ask(jetstream)
            except TransportError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def _page(self, request: dict[str, object]) -> list[Stored]:
        """Return the messages that a direct get returns, from any node, with at most `PAGE_BYTES` bytes."""
        body = json.dumps({"max_bytes": PAGE_BYTES, "next_by_subj": SUBJECTS, **request}).encode()

        async def ask(jetstream: JetStreamContext) -> list[Stored]:
            client = await self._connection.connected()
            found: list[Stored] = []
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            try:
                await client.publish(f"$JS.API.DIRECT.GET.{STREAM}", body, reply=inbox)
                while True:
                    answer = await answers.next_msg(ANSWER_SECONDS)
                    headers: dict[str, Any] = answer.headers or {}
                    status = headers.get(api.Header.STATUS.value)
                    if status is None:
                        found.append(Stored(int(headers["Nats-Sequence"]), answer.data, _time_of(headers)))
                    elif status in END_STATUSES:
                        return found
                    else:
                        await jetstream.stream_info(STREAM)  # raises if the stream was deleted
                        reason = headers.get(api.Header.DESCRIPTION.value, "no node answers")
                        raise TransportError(f"JetStream does not return messages: {status} {reason}", where=WHERE)
            finally:
                with contextlib.suppress(nats.errors.Error):  # the connection was lost
                    await answers.unsubscribe()

        return await self._ask(ask)

    @contextlib.contextmanager
    def _typed_errors(self) -> Iterator[None]:
        """As `typed_errors`, for a request to the stream. `TransportError` if it was deleted: then ask again."""
        with typed_errors(WHERE):
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
        return TransportError(f"the stream {STREAM} was deleted", where=WHERE, hint="It is created again")


def is_short(page: Sequence[Stored]) -> bool:
    """Whether a page has all messages that the node had: it is not near the limits of pages."""
    return len(page) < PAGE_MESSAGES and sum(len(message.data) for message in page) < PAGE_BYTES // 2


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


def _time_of(headers: dict[str, Any]) -> int:
    # With nanoseconds, which `fromisoformat` of Python 3.11 takes as microseconds.
    return int(datetime.fromisoformat(headers["Nats-Time-Stamp"]).timestamp() * 1e6)
