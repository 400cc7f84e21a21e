"""The stream of JetStream that has the recorded rows of a fleet, until retention deletes them.

Each message has rows of many devices (`fastflight.cluster.shipment`) under the subject of the server that recorded
them. Only retention deletes messages, the oldest first, so a number that is missing within the stream is damage.
"""

from __future__ import annotations

from datetime import UTC, datetime

from nats.js import api

from fastflight.cluster.connection import ClusterConnection
from fastflight.cluster.stream import Bounds, Stored, Stream, description

STREAM = "fastflight"
SUBJECTS = "rec.>"
# One request returns at most this many messages.
PAGE_MESSAGES = 256
# How often a message is asked for again that a node has left out.
ATTEMPTS = 4
# Retention deletes again when what it would delete is more than this part of what is kept.
SWEEP_PART = 64


class RecordingStream:
    """The stream of the fleet `fleet`. Use it on the loop of `connection`. Methods raise as those of `Stream`."""

    def __init__(self, connection: ClusterConnection, fleet: str, replicas: int) -> None:
        config = stream_config(fleet, replicas)
        self._stream = Stream(connection, STREAM, fleet, lambda jetstream: jetstream.add_stream(config), replicas)

    @property
    def generation(self) -> int:
        """Grows when the stream may have been deleted and created again."""
        return self._stream.generation

    async def publish(self, server: str, message: bytes) -> None:
        """Store a message of a server, and return when it is acknowledged."""
        await self._stream.publish(f"rec.{server}", message)

    async def bounds(self) -> Bounds:
        """Return the bounds of the stream, as its leader knows them."""
        return await self._stream.bounds()

    async def page(self, start: int, messages: int = PAGE_MESSAGES) -> list[Stored]:
        """Return the next messages from the sequence number `start` on, as some node has them; [] if it has none."""
        return await self._stream.page({"seq": start, "next_by_subj": SUBJECTS, "batch": messages})

    async def next(self, start: int) -> Stored | None:
        """Return the first message from `start` on, as the leader has it; None if it has none."""
        return await self._stream.next(SUBJECTS, start)

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
            page = await self._stream.page({"start_time": start, "next_by_subj": SUBJECTS, "batch": 1})
            until = max(until, page[0].seq if page else bounds.last + 1)
        if until - bounds.first <= (bounds.last - bounds.first) // SWEEP_PART:
            return 0
        await self._stream.purge(until)
        return until - bounds.first


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
