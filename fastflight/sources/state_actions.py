"""The actions with which a server tells about itself: `health`, `stats`, `identity`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from fastflight.access.action import Action, EmptyBody
from fastflight.access.identity import ANYBODY, Identity
from fastflight.concurrency import Shards
from fastflight.runtime.metrics import FunctionCollector, as_json, collect_process, family
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.service.requests import Verb


def state_actions(registry: StreamRegistry, shards: Shards, metrics: CollectorRegistry | None = None) -> list[Action]:
    """The actions that every server has. `metrics` is told by `stats`; by default that of `server_metrics`."""
    collected = metrics or server_metrics(registry, shards)

    def health(_: EmptyBody) -> Iterator[Mapping[str, Any]]:
        yield {"status": registry.state}

    def stats(_: EmptyBody) -> Iterator[Mapping[str, Any]]:
        yield {**registry.stats(), "shards": shards.stats(), "figures": as_json(collected)}

    return [
        Action(
            "health",
            "Whether the server takes requests: status is serving, draining or overloaded.",
            EmptyBody,
            health,
            at_once=True,
            verb=None,
            public=True,
            shown=_state_alone,
        ),
        Action(
            "stats",
            "Streams, rows and bytes since the start, in all and by source; event loops; all figures of /metrics.",
            EmptyBody,
            stats,
            at_once=True,
            verb=Verb.ADMIN,
        ),
        Action(
            "identity",
            "The name and the scopes that this server knows the caller by.",
            EmptyBody,
            lambda _: [_described(ANYBODY)],
            at_once=True,
            verb=None,
            shown=lambda identity, _: _described(identity),
        ),
    ]


def server_metrics(registry: StreamRegistry, shards: Shards) -> CollectorRegistry:
    """Collects what every server counts. More collectors may be registered."""
    metrics = CollectorRegistry()
    metrics.register(FunctionCollector(registry.metrics))
    metrics.register(FunctionCollector(lambda: _shard_metrics(shards)))
    collect_process(metrics)
    return metrics


def _shard_metrics(shards: Shards) -> Iterator[Metric]:
    found = [((stats["name"],), stats) for stats in shards.stats()]
    yield family("fastflight_shard_tasks", ((of, stats["tasks"]) for of, stats in found))
    yield family("fastflight_shard_streams", ((of, stats["streams"]) for of, stats in found))
    yield family("fastflight_shard_lag_seconds", ((of, stats["lag_ms"] / 1000) for of, stats in found))
    yield family("fastflight_shard_longest_lag_seconds", ((of, stats["longest_lag_ms"] / 1000) for of, stats in found))
    yield family("fastflight_shard_stuck_total", ((of, stats["times_stuck"]) for of, stats in found))


def _described(identity: Identity) -> Mapping[str, Any]:
    return {"name": identity.name, "scopes": [str(scope) for scope in identity.scopes]}


def _state_alone(identity: Identity, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Load balancers ask without a proof: what else a server says of itself names devices and processes."""
    return result if identity.may_admin() else {"status": result["status"]}
