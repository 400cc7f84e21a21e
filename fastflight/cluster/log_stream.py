"""The stream of recorded rows and the bucket of their logs' states in JetStream.

All logs share the stream `STREAM`: a message with rows of a log has the subject `rec.KEY`, where KEY is the log's name
in base64url. The bucket `BUCKET` has the state of each log under the same key: its name, its schema, and the first
number that is not trimmed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple
from zlib import crc32

from nats.js import api

from fastflight.cluster.connection import ClusterConnection
from fastflight.cluster.record import Record, decode_record
from fastflight.cluster.stream import Bounds, Stored, Stream, description
from fastflight.errors import StorageError
from fastflight.log.content import LogState, decode_state, encode_state, log_number

STREAM = "fastflight"
BUCKET = "ff-logs"
SUBJECTS = "rec.>"
# One request returns at most this many messages.
PAGE_MESSAGES = 256
# How often a message is read again that a node did not return or returned damaged.
ATTEMPTS = 4
_KEYS = f"$KV.{BUCKET}."
_CRC_BYTES = 4


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

    Methods raise `TransportError` if NATS cannot be used, `StorageError` if it fails, and `RequestError` if the stream
    or the bucket belongs to another fleet.
    """

    def __init__(self, connection: ClusterConnection, fleet: str, replicas: int) -> None:
        messages = stream_config(fleet, replicas)
        states = bucket_config(fleet, replicas)
        self.messages = Stream(connection, STREAM, fleet, lambda jetstream: jetstream.add_stream(messages), replicas)
        self.states = Stream(
            connection, f"KV_{BUCKET}", fleet, lambda jetstream: jetstream.create_key_value(states), replicas
        )

    async def names(self) -> list[str]:
        """Return the names of all logs, sorted."""
        return sorted(name_of(subject.removeprefix(_KEYS)) for subject in await self.states.subjects(f"{_KEYS}>"))

    async def state(self, name: str) -> State | None:
        """Return the state of a log; None if there is no such log."""
        entry = await self.states.last(_KEYS + key_of(name))
        if entry is None:
            return None
        crc, body = entry.data[:_CRC_BYTES], entry.data[_CRC_BYTES:]
        if len(crc) < _CRC_BYTES or crc32(body) != int.from_bytes(crc, "little"):
            raise StorageError("its entry in JetStream is damaged", where=name, hint=f"Restore the bucket {BUCKET}")
        return State(decode_state(body), entry.seq)

    async def put_state(self, log: LogState, revision: int) -> bool:
        """Store the state of a log, and return True. Return False if the present revision is not `revision`."""
        body = encode_state(log)
        data = crc32(body).to_bytes(_CRC_BYTES, "little") + body
        subject = _KEYS + key_of(log.name)
        return await self.states.publish(subject, data, api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE, revision) is not None

    async def publish(self, subject: str, data: bytes, last: int) -> int | None:
        """Store a message, and return its sequence number once it is acknowledged.

        Return None, and store nothing, if `last` is not the sequence number of the last message of the subject.
        """
        return await self.messages.publish(subject, data, api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE, last)

    async def end(self, name: str) -> tuple[State | None, Tail]:
        """Return the state of a log and its end, from the leaders. The state is None if there is no such log.

        The tail is read first: before a log's last message is deleted, its next number goes into its state.
        """
        tail = await self._tail(name)
        state = await self.state(name)
        known = state.log.next if state is not None else 0
        return state, tail._replace(next=max(tail.next, known))

    async def number_after(self, name: str, seq: int) -> int | None:
        """Return the number after the rows of a log's messages up to `seq`; None if damage leaves it unknown."""
        message = await self.messages.next(subject_of(name), seq + 1)
        if message is not None:
            record = decode_record(message.data, log_number(name))
            return record.begin if record is not None else None
        _, tail = await self.end(name)
        return None if tail.damaged else tail.next

    async def _tail(self, name: str) -> Tail:
        subject, number = subject_of(name), log_number(name)
        last = await self.messages.last(subject)
        if last is None:
            # There is no message, or the last one is damaged.
            if not await self.messages.subjects(subject):
                return Tail(0, None, 0, damaged=False)
            end = (await self.messages.bounds()).last
            last = await self.messages.last(subject)  # it may have been stored meanwhile
        if last is not None:
            record = decode_record(last.data, number)
            end = last.seq
            if record is not None:
                return Tail(end, record, record.next, damaged=False)
        seq, record = await self._last_readable(subject, number, end)
        return Tail(seq, record, record.next if record is not None else 0, damaged=True)

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

    async def first_since(self, since: float) -> int:
        """Return the sequence number of the first message that was stored at a time (seconds since 1970) or later."""
        start = datetime.fromtimestamp(since, UTC).isoformat().replace("+00:00", "Z")
        page = await self.messages.page({"start_time": start, "next_by_subj": SUBJECTS, "batch": 1})
        return page[0].seq if page else (await self.bounds()).last + 1

    async def time_of(self, seq: int) -> int:
        """Return when JetStream got the first message from the sequence number `seq` on, in us UTC; 0 if none."""
        page = await self.messages.page({"seq": seq, "next_by_subj": SUBJECTS, "batch": 1})
        return page[0].time if page else 0

    async def next_page(self, subject: str, start: int, end: int, messages: int = PAGE_MESSAGES) -> list[Stored]:
        """Return the next messages of a subject, from the sequence number `start` to `end`; [] if there are none.

        The node that returns them may leave damaged ones out.
        """
        if start > end:
            return []
        page = await self.messages.page({"seq": start, "next_by_subj": subject, "batch": messages})
        if not page:  # that is all, or the node is behind
            message = await self.messages.next(subject, start)
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
        while len(found) < PAGE_MESSAGES and (message := await self.messages.next(subject, at)) is not None:
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
        # Most readings begin at the first message, and a search through a long stream has many steps.
        first = await self.next_page(subject, low, end, 1)
        if first and (record := decode_record(first[0].data, number)) is not None and passed(record):
            return low
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

    async def bounds(self) -> Bounds:
        """Return the bounds of the stream."""
        return await self.messages.bounds()

    async def purge(self, before: int, subject: str | None = None) -> None:
        """Delete the messages before a sequence number, of one subject or of all."""
        await self.messages.purge(before, subject)

    async def delete_before(self, seq: int) -> bool:
        """Delete all messages before a sequence number. Return False, and delete nothing, if a state has changed.

        The next number of a log whose last message goes is stored in its state before.
        """
        for name in await self.names():
            state, tail = await self.end(name)
            if state is None or tail.seq >= seq or state.log.next >= tail.next:
                continue
            if not await self.put_state(state.log._replace(next=tail.next), state.revision):
                return False  # something else has changed it; the next call tries again
        await self.purge(seq)
        return True


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
