"""Whether the stream and the buckets of a cluster are on as many NATS nodes as they should be."""

from __future__ import annotations

from typing import Any

from nats.js.errors import NotFoundError

from fastflight.cluster.bucket import BUCKET as OWNERS
from fastflight.cluster.connection import ClusterConnection, replicas_for, typed_errors
from fastflight.cluster.recording_stream import STREAM

# The streams of JetStream, each with the name that people know it by.
STREAMS = {f"KV_{OWNERS}": OWNERS, STREAM: STREAM}


async def replication(connection: ClusterConnection, servers: int) -> list[dict[str, Any]]:
    """Return the copies of each stream and bucket that there is, with `servers` in the address of NATS.

    `current` of `replicas` nodes have all of it, and `behind` are the others; there should be `wanted` copies. Raises
    the errors of `typed_errors`.
    """
    found = []
    for stream, name in STREAMS.items():
        with typed_errors(name):
            try:
                info = await connection.jetstream.stream_info(stream)
            except NotFoundError:
                continue
        cluster = info.cluster
        others = [] if cluster is None else cluster.replicas or []
        behind = [
            f"{peer.name} (offline)" if peer.offline else f"{peer.name} ({peer.lag or 0} messages behind)"
            for peer in others
            if peer.offline or not peer.current
        ]
        leader = None if cluster is None else cluster.leader
        # A server alone has no leader. Without one, a replicated stream cannot say which copies are whole.
        has_leader = bool(leader) or not others
        found.append(
            {
                "name": name,
                "replicas": info.config.num_replicas or 1,
                "wanted": replicas_for(servers),
                "current": 1 + len(others) - len(behind) if has_leader else 0,
                "leader": leader or None,
                "behind": behind,
            }
        )
    return found
