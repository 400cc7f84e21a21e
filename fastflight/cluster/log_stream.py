"""The requests to JetStream that replicated recordings are made of.

All logs share the stream `STREAM`: a message with rows of a log has the subject `rec.KEY`, where KEY is the log's name
in base64url. The bucket `BUCKET` has the state of each log under the same key: its name, its schema, and the first
number that is not trimmed.

Where it matters which message is the last, the leader of the stream is asked: other nodes may be behind. Messages are
read from any node ("direct get"), many with one request. JetStream leaves out messages that it finds damaged, without
a word, so readers check the numbers (`record`). A request has a deadline and no consumer, so nothing falls silent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import nats.errors
from nats.js import JetStreamContext, api, errors

from fastflight.cluster.connection import ANSWER_SECONDS, ClusterConnection, understood
from fastflight.cluster.record import Record, decode_record
from fastflight.errors import RequestError, StorageError, TransportError
from fastflight.log.content import LogState, decode_state, encode_state, log_number

T = TypeVar("T")

STREAM = "fastflight"
BUCKET = "ff-logs"
SUBJECTS = "rec.>"
WHERE = "the recordings in JetStream"
# One request returns at most this many messages, and bytes: the size of a lot of rows.
PAGE_MESSAGES = 256
PAGE_BYTES = 2 * 1024 * 1024
# Direct get ends with one of these: that was all of the batch; there is no such message.
END_STATUSES = ("204", "404")
# How long a request is repeated. A new leader of a stream takes about five seconds.
ASK_SECONDS = 10.0
# Between two attempts.
RETRY_SECONDS = 0.2
# How often a message is read again that a node did not return or returned damaged.
ATTEMPTS = 4
# JetStream refuses a message because the last one of its subject is another one than was expected.
WRONG_LAST_SEQUENCE = 10071
_KEYS = f"$KV.{BUCKET}."
_CRC_BYTES = 4


class Stored(NamedTuple):
    """A message, and its sequence number in the stream."""

    seq: int
    data: bytes


class Tail(NamedTuple):
    """The end of a log: its last message that can be read, and the number after the last row.

    `seq` is 0 and `record` None if there is no message. `damaged`: there are newer messages that cannot be read.
    """

    seq: int
    record: Record | None
    next: int
    damaged: bool


class State(NamedTuple):
    """The state of a log in the bucket, and its revision. `next` in it is a lower limit of the next number."""

    log: LogState
    revision: int


def key_of(name: str) -> str:
    """Return the key of a log, which is also the last part of its subject."""
    return base64.urlsafe_b64encode(name.encode()).rstrip(b"=").decode()


def name_of(key: str) -> str:
    """Return the name of the log with this key."""
    return base64.urlsafe_b64decode(key + "=" * (-len(key) % 4)).decode()


def subject_of(name: str) -> str:
    """Return the subject of a log's messages."""
    return f"rec.{key_of(name)}"


class LogStream:
    """The stream of recordings and the bucket of their states. Use it on the loop of `connection`.

    Methods raise `TransportError` if NATS cannot be used, and `StorageError` if it fails.
    """

    def __init__(self, connection: ClusterConnection, fleet: str, replicas: int) -> None:
        self._connection = connection
        self._fleet = fleet
        self._replicas = replicas
        self._ready = False

    async def jetstream(self) -> JetStreamContext:
        """Return JetStream. The first time, create the stream and the bucket if they do not exist.

        `RequestError` if they belong to another fleet.
        """
        jetstream = self._connection.jetstream
        if not self._ready:
            with understood(WHERE):
                # Another server may create them at the same moment; `stream_info` then has what it created.
                with contextlib.suppress(errors.BadRequestError):
                    await jetstream.add_stream(stream_config(self._fleet, self._replicas))
                with contextlib.suppress(errors.BadRequestError):
                    await jetstream.create_key_value(bucket_config(self._fleet, self._replicas))
                for name in (STREAM, f"KV_{BUCKET}"):
                    found = (await jetstream.stream_info(name)).config.description
                    if found != description(self._fleet):
                        raise RequestError(
                            f"the stream {name} is for something else: {found or 'it has no description'!r}",
                            where=f"the fleet {self._fleet}",
                            hint="Give each fleet a NATS account of its own, or the same name in [cluster] of all its "
                            "fleet files",
                        )
            self._ready = True
        return jetstream

    async def _ask(self, ask: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        """Return the answer to a request that may be repeated.

        Without a connection this fails at once. If it is lost meanwhile, or a stream has no leader, ask again for
        `ASK_SECONDS`.
        """
        jetstream = await self.jetstream()
        deadline = time.monotonic() + ASK_SECONDS
        while True:
            try:
                with understood(WHERE):
                    return await ask(jetstream)
            except TransportError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_SECONDS)
            with contextlib.suppress(TransportError):
                jetstream = self._connection.jetstream

    async def names(self) -> list[str]:
        """Return the names of all logs, sorted."""
        info = await self._ask(lambda jetstream: jetstream.stream_info(f"KV_{BUCKET}", subjects_filter=f"{_KEYS}>"))
        return sorted(name_of(subject.removeprefix(_KEYS)) for subject in info.state.subjects or ())

    async def state(self, name: str) -> State | None:
        """Return the state of a log; None if there is no such log."""
        entry = await self._last(f"KV_{BUCKET}", _KEYS + key_of(name))
        if entry is None:
            return None
        data = entry.data or b""
        if len(data) < _CRC_BYTES or crc32(data[_CRC_BYTES:]) != int.from_bytes(data[:_CRC_BYTES], "little"):
            raise StorageError("its entry in JetStream is damaged", where=name, hint=f"Restore the bucket {BUCKET}")
        return State(decode_state(data[_CRC_BYTES:]), entry.seq or 0)

    async def put_state(self, log: LogState, revision: int) -> bool:
        """Store the state of a log, and return True. Return False if the present revision is not `revision`."""
        body = encode_state(log)
        data = crc32(body).to_bytes(_CRC_BYTES, "little") + body
        return await self.publish(_KEYS + key_of(log.name), data, revision) is not None

    async def publish(self, subject: str, data: bytes, last: int) -> int | None:
        """Store a message, and return its sequence number once it is acknowledged.

        Return None, and store nothing, if `last` is not the sequence number of the last message of the subject.
        """
        jetstream = await self.jetstream()
        headers = {api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(last)}
        with understood(WHERE):
            try:
                return int((await jetstream.publish(subject, data, headers=headers)).seq)
            except errors.APIError as error:
                if error.err_code != WRONG_LAST_SEQUENCE:
                    raise
                return None

    async def tail(self, name: str, known_next: int) -> Tail:
        """Return the end of a log, from the leader. `known_next` is a lower limit of the next number."""
        subject, number = subject_of(name), log_number(name)
        last = await self._last(STREAM, subject)
        if last is None:
            # There is no message, or the last one is damaged.
            info = await self._ask(lambda jetstream: jetstream.stream_info(STREAM, subjects_filter=subject))
            if not info.state.subjects:
                return Tail(0, None, known_next, damaged=False)
            end = info.state.last_seq
            last = await self._last(STREAM, subject)  # it may have been stored meanwhile
        if last is not None:
            record = decode_record(last.data or b"", number)
            end = last.seq or 0
            if record is not None:
                return Tail(end, record, max(record.next, known_next), damaged=False)
        seq, record = await self._last_readable(subject, number, end)
        return Tail(seq, record, max(record.next if record is not None else 0, known_next), damaged=True)

    async def _last(self, stream: str, subject: str) -> api.RawStreamMsg | None:
        """Return the last message of a subject, from the leader; None if there is none, or it is damaged."""

        async def ask(jetstream: JetStreamContext) -> api.RawStreamMsg | None:
            try:
                return await jetstream.get_last_msg(stream, subject)
            except errors.NotFoundError:
                return None

        return await self._ask(ask)

    async def _last_readable(self, subject: str, number: int, end: int) -> tuple[int, Record | None]:
        step = 1
        while True:
            start = max(end - step, 1)
            found: tuple[int, Record | None] = (0, None)
            at = start
            while page := await self.next_page(subject, at, end):
                for message in page:
                    if (record := decode_record(message.data, number)) is not None:
                        found = message.seq, record
                at = page[-1].seq + 1
            if found[1] is not None or start == 1:
                return found
            step *= 8

    async def page(self, subject: str, start: int, messages: int) -> list[Stored]:
        """Return the next messages of a subject, from the sequence number `start` on, as some node has them.

        There are more unless the list is empty. The node may leave messages out: damaged ones, and the newest.
        """
        return await self._direct_get(
            {"seq": start, "next_by_subj": subject, "batch": messages, "max_bytes": PAGE_BYTES}
        )

    async def first_since(self, since: float) -> int:
        """Return the sequence number of the first message that was stored at a time (seconds since 1970) or later."""
        start = datetime.fromtimestamp(since, UTC).isoformat().replace("+00:00", "Z")
        page = await self._direct_get({"start_time": start, "next_by_subj": SUBJECTS, "batch": 1})
        return page[0].seq if page else (await self.bounds())[1] + 1

    async def _direct_get(self, request: dict[str, object]) -> list[Stored]:
        async def ask(_: JetStreamContext) -> list[Stored]:
            client = await self._connection.connected()
            found: list[Stored] = []
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            try:
                await client.publish(f"$JS.API.DIRECT.GET.{STREAM}", json.dumps(request).encode(), reply=inbox)
                while True:
                    answer = await answers.next_msg(ANSWER_SECONDS)
                    headers: dict[str, Any] = answer.headers or {}
                    status = headers.get(api.Header.STATUS.value)
                    if status is None:
                        found.append(Stored(int(headers["Nats-Sequence"]), answer.data))
                    elif status in END_STATUSES:
                        return found
                    else:
                        reason = headers.get(api.Header.DESCRIPTION.value, "no node answers")
                        raise TransportError(f"JetStream does not return messages: {status} {reason}", where=WHERE)
            finally:
                with contextlib.suppress(nats.errors.Error):  # the connection was lost
                    await answers.unsubscribe()

        return await self._ask(ask)

    async def from_leader(self, subject: str, start: int) -> Stored | None:
        """Return the next message of a subject as the leader has it; None if it has none."""

        async def ask(jetstream: JetStreamContext) -> Stored | None:
            try:
                message = await jetstream.get_msg(STREAM, start, subject, next=True)
            except errors.NotFoundError:
                return None
            return Stored(message.seq or 0, message.data or b"")

        return await self._ask(ask)

    async def next_page(self, subject: str, start: int, end: int, messages: int = PAGE_MESSAGES) -> list[Stored]:
        """Return the next messages of a subject, from the sequence number `start` to `end`; [] if there are none."""
        page = await self.page(subject, start, messages) if start <= end else []
        if not page and start <= end:  # that is all, or the node is behind
            message = await self.from_leader(subject, start)
            page = [message] if message is not None else []
        return [message for message in page if message.seq <= end]

    async def between(self, subject: str, number: int, start: int, end: int) -> list[Stored]:
        """Return the undamaged messages of a log from `start` to `end` that any of several attempts finds.

        A message that is damaged on one node may be whole on another.
        """
        found: dict[int, Stored] = {}
        for _ in range(ATTEMPTS):
            found.update({message.seq: message for message in await self.next_page(subject, start, end)})
        at = start
        while len(found) < PAGE_MESSAGES and (message := await self.from_leader(subject, at)) is not None:
            if message.seq > end:
                break
            found[message.seq] = message
            at = message.seq + 1
        whole = (message for _, message in sorted(found.items()))
        return [message for message in whole if decode_record(message.data, number) is not None]

    async def find(self, subject: str, number: int, end: int, passed: Callable[[Record], bool]) -> int:
        """Return the first sequence number such that `passed` is true for all messages of a log from there to `end`.

        `passed` must not be true before and false after that. Return `end` + 1 if no message passes.
        """
        low, high = 1, end + 1
        while low < high:
            middle = (low + high) // 2
            at = middle
            record = None
            while record is None and (page := await self.next_page(subject, at, high - 1, 1)):
                at = page[0].seq + 1
                record = decode_record(page[0].data, number)
            if record is None or passed(record):
                high = middle
            else:
                low = at
        return low

    async def bounds(self) -> tuple[int, int, int, int]:
        """Return the first and the last sequence number of the stream, and its messages and bytes."""
        state = (await self._ask(lambda jetstream: jetstream.stream_info(STREAM))).state
        return state.first_seq, state.last_seq, state.messages, state.bytes

    async def purge(self, before: int, subject: str | None = None) -> None:
        """Delete the messages before a sequence number, of one subject or of all."""
        await self._ask(lambda jetstream: jetstream.purge_stream(STREAM, before, subject))


def description(fleet: str) -> str:
    """Return the description of the stream and the bucket of a fleet, by which they are recognized."""
    return f"fastflight: recordings of the fleet {fleet}"


def stream_config(fleet: str, replicas: int) -> api.StreamConfig:
    """Return how the stream of recordings is set up."""
    return api.StreamConfig(
        name=STREAM,
        description=description(fleet),
        subjects=[SUBJECTS],
        storage=api.StorageType.FILE,
        discard=api.DiscardPolicy.NEW,
        num_replicas=replicas,
        allow_direct=True,
    )


def bucket_config(fleet: str, replicas: int) -> api.KeyValueConfig:
    """Return how the bucket of logs is set up."""
    return api.KeyValueConfig(
        bucket=BUCKET,
        description=description(fleet),
        history=1,
        storage=api.StorageType.FILE,
        replicas=replicas,
        direct=False,
    )
