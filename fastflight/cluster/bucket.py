"""The bucket of one fleet in JetStream, `ff-owners`: who owns what. Created when missing, and checked.

Nothing in it has a time to live: servers see by their own clocks that a lease is not renewed (`cluster.lease`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from nats.aio.client import Client
from nats.js import api
from nats.js import errors as js_errors
from nats.js.kv import KV_DEL, KV_PURGE, KeyValue

from fastflight.cluster.connection import raise_replicas, replicas_for, typed_errors
from fastflight.cluster.entries import Put
from fastflight.cluster.recording_stream import check_fleet
from fastflight.errors import RequestError

BUCKET = "ff-owners"
# A lease whose request takes longer than this counts as not renewed.
ANSWER_SECONDS = 1.0

# A key, its revision, and its content: None if somebody deleted the entry.
Seen = tuple[str, int, Mapping[str, Any] | None]

# Of the bucket; the name of the fleet follows.
DESCRIPTION = "fastflight: owners of the fleet "


class Bucket:
    """The bucket over one connection. `created`: when it was made, in microseconds since 1970."""

    def __init__(self, entries: KeyValue, created: int) -> None:
        self._entries = entries
        self.created = created

    async def put(self, put: Put) -> int | None:
        """Store an entry, and return its revision; None if another revision than the expected one was there.

        The errors of nats-py, `TimeoutError` and `OSError` mean that it may be stored, or not.
        """
        content = json.dumps(put.content).encode()
        if put.last is None:
            return await self._entries.put(put.key, content)
        try:
            return await self._entries.update(put.key, content, last=put.last)
        except js_errors.KeyWrongLastSequenceError:
            return None

    async def watch(self) -> AsyncIterator[Seen | None]:
        """Yield all entries, then None, and then each entry that changes. Does not end by itself."""
        async for update in await self._entries.watchall():
            if update is None:
                yield None
            else:
                gone = update.operation in (KV_DEL, KV_PURGE)
                yield update.key, update.revision or 0, None if gone else _content(update.value)


async def open_bucket(client: Client, fleet: str, servers: int) -> Bucket:
    """Return the bucket of the fleet. `servers`: how many NATS servers there are.

    `RequestError` if it belongs to another fleet or was made by another version of fastflight.
    """
    with typed_errors(f"the bucket {BUCKET}"):
        jetstream = client.jetstream(timeout=ANSWER_SECONDS)
        replicas = replicas_for(servers)
        try:
            entries = await jetstream.key_value(BUCKET)
        except js_errors.NotFoundError:
            config = api.KeyValueConfig(
                BUCKET, DESCRIPTION + fleet, history=1, storage=api.StorageType.FILE, replicas=replicas, direct=False
            )
            # Another server may have created it, and other settings than these are refused below.
            with contextlib.suppress(js_errors.BadRequestError):
                await jetstream.create_key_value(config)
            entries = await jetstream.key_value(BUCKET)
        status = await entries.status()
    found = status.stream_info.config
    check_fleet(f"the bucket {BUCKET}", found.description, DESCRIPTION, fleet)
    if status.ttl:
        raise RequestError(
            f"the bucket {BUCKET} is of an earlier version of fastflight: its entries live for {status.ttl:g} s",
            where=f"the fleet {fleet}",
            hint=f"Stop all servers, delete the bucket (nats kv del {BUCKET}), and run the same version on all of them",
        )
    await raise_replicas(jetstream, found, replicas)
    created = status.stream_info.created
    return Bucket(entries, 0 if created is None else int(created.timestamp() * 1e6))


def _content(value: bytes | None) -> Mapping[str, Any] | None:
    """Return the content of an entry; None if it was not written by fastflight."""
    try:
        content = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
