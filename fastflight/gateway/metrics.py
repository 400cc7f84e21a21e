"""`/metrics`: the counters of the server and the state of its devices, as Prometheus reads them.

The backend is asked when somebody reads; the registry that is passed in gets one collector, which gives what the
backend said last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fastflight.concurrency import off_loop
from fastflight.gateway.backend import Backend
from fastflight.gateway.callers import Caller
from fastflight.gateway.front import Made

MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
OUTCOMES = ("finished", "failed", "cancelled")


class Metrics(Collector):
    """The collector of one gateway."""

    def __init__(self, backend: Backend, registry: CollectorRegistry) -> None:
        self._backend = backend
        self._registry = registry
        self._stats: Mapping[str, Any] = {}
        self._devices: list[Mapping[str, Any]] = []
        registry.register(self)

    async def make(self, caller: Caller) -> Made:
        """The whole page, which is for administrators."""
        (self._stats,) = await self._backend.act("stats", b"", caller)
        self._devices = await self._backend.act("devices", b"", caller)
        return Made(await off_loop(generate_latest, self._registry), MEDIA_TYPE)

    def describe(self) -> list[Metric]:
        """Nothing: what there is depends on the sources that were asked."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._of_streams()
        yield from self._of_shards()
        is_open = GaugeMetricFamily("fastflight_device_open", "Whether the device's line is open.", labels=["device"])
        held = GaugeMetricFamily("fastflight_device_held", "Whether somebody has the device.", labels=["device"])
        for device in self._devices:
            is_open.add_metric([str(device["name"])], float(bool(device.get("open"))))
            held.add_metric([str(device["name"])], float(device.get("holder") is not None))
        yield is_open
        yield held

    def _of_streams(self) -> Iterator[Metric]:
        by_source: Mapping[str, Mapping[str, Any]] = self._stats.get("sources", {})
        running = GaugeMetricFamily("fastflight_streams_open", "Streams that are open.", labels=["source"])
        ended = CounterMetricFamily("fastflight_streams", "Streams that have ended.", labels=["source", "outcome"])
        rows = CounterMetricFamily("fastflight_rows", "Rows sent and taken.", labels=["source"])
        size = CounterMetricFamily("fastflight_bytes", "Bytes of batches sent and taken.", labels=["source"])
        for name, counts in by_source.items():
            running.add_metric([name], counts["open"])
            for outcome in OUTCOMES:
                ended.add_metric([name, outcome], counts[outcome])
            rows.add_metric([name], counts["rows"])
            size.add_metric([name], counts["bytes"])
        yield from (running, ended, rows, size)
        yield GaugeMetricFamily(
            "fastflight_waiting", "Streams that wait for room.", value=self._stats.get("waiting", 0)
        )
        yield CounterMetricFamily(
            "fastflight_refused", "Streams for which there was no room.", value=self._stats.get("refused", 0)
        )

    def _of_shards(self) -> Iterator[Metric]:
        tasks = GaugeMetricFamily("fastflight_shard_tasks", "Tasks of an event loop.", labels=["shard"])
        for shard in self._stats.get("shards", []):
            tasks.add_metric([str(shard["name"])], shard["tasks"])
        yield tasks
