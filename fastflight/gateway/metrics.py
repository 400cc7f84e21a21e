"""`/metrics`: the figures of the server, as Prometheus reads them. They are those that `stats` tells.

The backend is asked when somebody reads; the registry that is passed in gets one collector, which gives what the
backend said last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fastflight.concurrency import off_loop
from fastflight.gateway.backend import Backend
from fastflight.gateway.callers import Caller
from fastflight.gateway.small import Made
from fastflight.runtime.metrics import TABLE, Figure, all_told

MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Metrics(Collector):
    """The collector of one gateway."""

    def __init__(self, backend: Backend, registry: CollectorRegistry) -> None:
        self._backend = backend
        self._registry = registry
        self._stats: Mapping[str, Any] = {}
        registry.register(self)

    async def make(self, caller: Caller) -> Made:
        """The whole page, which is for administrators."""
        (self._stats,) = await self._backend.act("stats", b"", caller)
        return Made(await off_loop(generate_latest, self._registry), MEDIA_TYPE)

    def describe(self) -> list[Metric]:
        """Nothing: what there is depends on the sources that were asked."""
        return []

    def collect(self) -> Iterator[Metric]:
        told = all_told(self._stats)
        for name, figure in TABLE.items():
            if name not in told:
                continue
            labels = list(figure.labels)
            family = _family(name, figure, labels)
            for given, value in told[name]:
                values = [str(given[label]) for label in labels]
                if isinstance(family, HistogramMetricFamily):
                    family.add_metric(values, [(bound, count) for bound, count in value["buckets"]], value["sum"])
                else:
                    family.add_metric(values, value)
            yield family


def _family(
    name: str, figure: Figure, labels: list[str]
) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    match figure.kind:
        case "counter":
            return CounterMetricFamily(name, figure.help, labels=labels)
        case "gauge":
            return GaugeMetricFamily(name, figure.help, labels=labels)
        case "histogram":
            return HistogramMetricFamily(name, figure.help, labels=labels)
