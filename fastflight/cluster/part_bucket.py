"""The Parquet files of shared recordings, in a bucket of JetStream's object store.

An object is a file: chunks under a subject of its own, and an entry that names it, as any client of the object store
reads and writes it: `nats object get ff-parts NAME`. The entry also has the sequence number of the first chunk. The
chunks of an object follow each other in the stream without a hole, so that any part of a file is read directly.

One server writes at a time, without a lock. Each message of an `Upload` is accepted only after the message before it,
so whatever another server writes ends an upload: its next message is refused. `Upload.claim` is such a message.
"""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from hashlib import sha256

from nats.js import api

from fastflight.cluster.connection import ClusterConnection
from fastflight.cluster.log_stream import ATTEMPTS
from fastflight.cluster.stream import Bounds, Stream, description
from fastflight.errors import BusyError, StorageError

BUCKET = "ff-parts"
STREAM = f"OBJ_{BUCKET}"
# As other clients of the object store have it.
CHUNK_BYTES = 128 * 1024
_CHUNKS, _ENTRIES = f"$O.{BUCKET}.C.", f"$O.{BUCKET}.M."
# Messages under this name belong to no file. A server writes one so that uploads of other servers, which expect
# an earlier sequence number, are refused.
CLAIM = "claim"


@dataclass(frozen=True, slots=True)
class PartObject:
    """An object: its size in bytes, the last part of the subject of its chunks, and where the first one is."""

    name: str
    size: int
    chunks: str
    first: int
    chunk_bytes: int


class PartBucket:
    """The bucket of one fleet. Use it on the loop of `connection`. Methods raise as those of `Stream`."""

    def __init__(self, connection: ClusterConnection, fleet: str, replicas: int) -> None:
        config = bucket_config(fleet, replicas)
        self._stream = Stream(connection, STREAM, fleet, lambda jetstream: jetstream.add_stream(config), replicas)

    async def names(self) -> list[str]:
        """Return the names of all objects, sorted. Those whose entry is damaged are among them."""
        found = await self._stream.subjects(f"{_ENTRIES}>")
        return sorted(base64.urlsafe_b64decode(subject.removeprefix(_ENTRIES)).decode() for subject in found)

    async def find(self, name: str) -> PartObject | None:
        """Return an object; None if there is none of that name, or its entry is damaged on all nodes."""
        entry = await self._stream.last(_entry_of(name))
        if entry is None and await self.is_listed(name):
            for _ in range(ATTEMPTS):
                entry = entry or next(iter(await self._stream.page({"last_by_subj": _entry_of(name)})), None)
        if entry is None:
            return None
        try:
            found = json.loads(entry.data)
            chunk_bytes, first = found["options"]["max_chunk_size"], found["metadata"]["first"]
            return PartObject(name, int(found["size"]), str(found["nuid"]), int(first), int(chunk_bytes))
        except (ValueError, KeyError, TypeError):
            return None

    async def is_listed(self, name: str) -> bool:
        """Whether there is an object of that name, damaged or not."""
        return bool(await self._stream.subjects(_entry_of(name)))

    async def read(self, part: PartObject, offset: int, size: int) -> bytes | None:
        """Return up to `size` bytes of an object from `offset`; None if a chunk is missing on all nodes."""
        end = min(offset + size, part.size)
        if offset >= end:
            return b""
        first = part.first + offset // part.chunk_bytes
        last = part.first + (end - 1) // part.chunk_bytes
        found: dict[int, bytes] = {}
        subject = _CHUNKS + part.chunks
        tries = 0
        while missing := [seq for seq in range(first, last + 1) if seq not in found]:
            request = {"seq": missing[0], "next_by_subj": subject, "batch": missing[-1] - missing[0] + 1}
            page = await self._stream.page(request)
            before = len(found)
            found.update({message.seq: message.data for message in page if first <= message.seq <= last})
            if len(found) == before:
                tries += 1  # another node may have what this one leaves out
                if tries == ATTEMPTS:
                    message = await self._stream.next(subject, missing[0])
                    if message is None or message.seq != missing[0]:
                        return None
                    found[message.seq], tries = message.data, 0
        data = b"".join(found[seq] for seq in range(first, last + 1))
        start = offset - (first - part.first) * part.chunk_bytes
        return data[start : start + end - offset]

    async def bounds(self) -> Bounds:
        """Return the bounds of the bucket's stream. Its last sequence number changes with every upload."""
        return await self._stream.bounds()

    async def upload(self, last: int) -> Upload:
        """End all uploads of other servers, and begin one. `BusyError` if the last sequence number is not `last`."""
        upload = Upload(self._stream, last)
        await upload.claim()
        return upload

    async def remove(self, name: str, before: int | None = None) -> None:
        """Delete an object. Readers that have its first chunks find that it is gone.

        With `before`, delete only what was stored before that sequence number.
        """
        part = await self.find(name)
        await self._stream.purge(before, _entry_of(name))
        if part is not None:
            await self._stream.purge(before, _CHUNKS + part.chunks)

    async def remove_orphans(self, claim: int) -> None:
        """Delete the chunks of uploads that were ended by the claim with this sequence number."""
        objects = [await self.find(name) for name in await self.names()]
        if None in objects:
            return  # the chunks of an object whose entry cannot be read look like these
        used = {part.chunks for part in objects if part is not None}
        for subject in await self._stream.subjects(f"{_CHUNKS}>"):
            if subject.removeprefix(_CHUNKS) not in used:
                await self._stream.purge(claim, subject)


class Upload:
    """The messages that one server writes to the bucket. `BusyError` as soon as another server has written one."""

    def __init__(self, stream: Stream, last: int) -> None:
        self._stream = stream
        # The sequence number of the last message.
        self.last = last

    async def claim(self) -> None:
        """Write a message of no object, which ends the uploads of all others."""
        await self._publish(_CHUNKS + CLAIM, b"")

    async def put(self, name: str, data: bytes) -> None:
        """Store an object. It is there when this returns, and not before its last message."""
        chunks = secrets.token_hex(11)
        first = self.last + 1
        for at in range(0, len(data), CHUNK_BYTES):
            await self._publish(_CHUNKS + chunks, data[at : at + CHUNK_BYTES])
        digest = base64.urlsafe_b64encode(sha256(data).digest()).decode()
        entry = {
            "name": name,
            "options": {"max_chunk_size": CHUNK_BYTES},
            "metadata": {"first": str(first)},
            "bucket": BUCKET,
            "nuid": chunks,
            "size": len(data),
            "mtime": "0001-01-01T00:00:00Z",
            "chunks": -(-len(data) // CHUNK_BYTES),
            "digest": f"SHA-256={digest}",
        }
        await self._publish(_entry_of(name), json.dumps(entry).encode())

    async def _publish(self, subject: str, data: bytes) -> None:
        seq = await self._stream.publish(subject, data, api.Header.EXPECTED_LAST_SEQUENCE, self.last)
        if seq is None:
            raise BusyError(
                "another server compacts the recordings", where=BUCKET, hint="This server tries again later"
            )
        if seq != self.last + 1:
            raise StorageError("JetStream has left sequence numbers out", where=BUCKET, hint="This is tried again")
        self.last = seq


def _entry_of(name: str) -> str:
    return _ENTRIES + base64.urlsafe_b64encode(name.encode()).decode()


def bucket_config(fleet: str, replicas: int) -> api.StreamConfig:
    """Return how the bucket of parts is set up: as other clients of the object store do it."""
    return api.StreamConfig(
        name=STREAM,
        description=description(fleet),
        subjects=[f"{_CHUNKS}>", f"{_ENTRIES}>"],
        storage=api.StorageType.FILE,
        discard=api.DiscardPolicy.NEW,
        num_replicas=replicas,
        allow_direct=True,
        allow_rollup_hdrs=True,
    )
