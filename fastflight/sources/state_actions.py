"""The actions about the server itself: `health`, `stats` and `identity`."""

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


def state_actions(
    registry: StreamRegistry, shards: Shards, metrics: CollectorRegistry | None = None, *, in_cluster: bool = False
) -> list[Action]:
    """Return the actions that every server has. `stats` includes `metrics`; the default is `server_metrics`."""
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
            shown=_without_details,
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
            "The name and scopes of the caller, and whether there is a cluster that they may see.",
            EmptyBody,
            lambda _: [_describe(ANYBODY, in_cluster)],
            at_once=True,
            verb=None,
            shown=lambda identity, _: _describe(identity, in_cluster),
        ),
    ]


def server_metrics(registry: StreamRegistry, shards: Shards) -> CollectorRegistry:
    """Return a registry with the metrics that every server has. The caller may register more collectors."""
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


def _describe(identity: Identity, in_cluster: bool) -> Mapping[str, Any]:
    scopes = [str(scope) for scope in identity.scopes]
    return {"name": identity.name, "scopes": scopes, "cluster": in_cluster and identity.may_admin()}


def _without_details(identity: Identity, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status alone, unless the caller is an administrator.

    Load balancers ask without proving an identity, and further keys could name devices and processes.
    """
    return result if identity.may_admin() else {"status": result["status"]}
