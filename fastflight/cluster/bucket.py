"""The key-value buckets of one fleet: leases, and the devices of each server. Created when missing, and checked."""

from __future__ import annotations

import contextlib

from nats.aio.client import Client
from nats.js import api
from nats.js import errors as js_errors
from nats.js.kv import KeyValue

from fastflight.cluster.connection import understood
from fastflight.errors import RequestError

BUCKET = "ff-owners"
# Has no time to live, because the devices of a server are written only when they change.
LISTS_BUCKET = "ff-devices"
# A lease whose request takes longer than this counts as not renewed.
LEASE_ANSWER_SECONDS = 1.0
# As many copies as there are NATS servers in the address, at most this many: a quorum of three bears the loss of one.
MAX_REPLICAS = 3


async def open_bucket(client: Client, name: str, fleet: str, ttl: float | None, servers: int) -> KeyValue:
    """Return a bucket of the fleet, whose entries live for `ttl` seconds. `servers`: how many NATS servers there are.

    `RequestError` if it belongs to another fleet or was not made by this version of fastflight.
    """
    with understood(f"the bucket {name}"):
        description = f"fastflight: owners of the fleet {fleet}"
        jetstream = client.jetstream(timeout=LEASE_ANSWER_SECONDS)
        replicas = MAX_REPLICAS if servers >= MAX_REPLICAS else 1
        try:
            bucket = await jetstream.key_value(name)
        except js_errors.NotFoundError:
            config = api.KeyValueConfig(
                name, description, history=1, ttl=ttl, storage=api.StorageType.FILE, replicas=replicas, direct=False
            )
            # Another server may have created it, and other settings than these are refused below.
            with contextlib.suppress(js_errors.BadRequestError):
                await jetstream.create_key_value(config)
            bucket = await jetstream.key_value(name)
        status = await bucket.status()
    found = status.stream_info.config
    if found.description != description:
        raise RequestError(
            f"the bucket {name} is for something else: {found.description or 'it has no description'!r}",
            where=f"the fleet {fleet}",
            hint="Give each fleet a NATS account of its own, or the same name in [cluster] of all its fleet files",
        )
    if (status.ttl or 0) != (ttl or 0):
        raise RequestError(
            f"the entries of the bucket {name} live for {status.ttl or 0:g} s, and this server expects {ttl or 0:g} s",
            where=f"the fleet {fleet}",
            hint=f"Run the same version of fastflight on all servers, or stop them all and delete the bucket {name}",
        )
    return bucket
