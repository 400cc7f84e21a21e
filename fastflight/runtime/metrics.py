"""The metrics of a server: their definitions, and how they are collected for `stats` and `/metrics`.

Each part of a server counts in plain attributes. That takes 0.1 us, while a counter of prometheus-client takes a lock
and 1.5 us, and its histogram 3 us. A collector is a function that reads these attributes when metrics are requested,
and yields one `family` for each metric. prometheus-client does the rest: its `CollectorRegistry` holds the collectors,
its `ProcessCollector` measures the process, and its exposition writes `/metrics`.

The action `stats` sends the collected metrics as JSON (`as_json`).

To add a metric: define it in `DEFINITIONS` and docs/observability.md, and yield its family from a collector. Names
follow the conventions of Prometheus: `_total` only increases until the server restarts; units are seconds and bytes.
"""

from __future__ import annotations

import itertools
import operator
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fastflight.runtime.process import open_sockets

# How many devices have a label of their own: more series burden Prometheus, and nobody reads so many. The devices
# after these, in the order of the settings, share one label.
MAX_DEVICE_LABELS = 250
BEYOND = "(others)"
# The upper bounds of the histogram's buckets, in seconds: from a small answer to a live session that stays open.
DURATION_BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 1800.0)

# The values of a metric's labels, in the order of its definition.
Labels: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """The kind of a metric, a sentence that describes it, and the names of its labels."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Sequence[str] = ()


DEFINITIONS: dict[str, Definition] = {
    "fastflight_streams_open": Definition("gauge", "Streams that are open.", ("source",)),
    "fastflight_streams_total": Definition("counter", "Streams that have ended.", ("source", "outcome")),
    "fastflight_stream_duration_seconds": Definition(
        "histogram", "Seconds from the start to the end of a stream.", ("source",)
    ),
    "fastflight_rows_total": Definition("counter", "Rows sent and received.", ("source",)),
    "fastflight_bytes_total": Definition("counter", "Bytes of batches sent and received.", ("source",)),
    "fastflight_rejected_rows_total": Definition(
        "counter", "Rows of files that did not fit the schema and were left out.", ("source",)
    ),
    "fastflight_errors_total": Definition("counter", "Streams and calls that failed, by the error's code.", ("code",)),
    "fastflight_overdue_total": Definition(
        "counter", "Streams stopped because their client did not read (reader) or did not send (writer).", ("client",)
    ),
    "fastflight_connections_cut_total": Definition(
        "counter", "Flight connections cut because such a client did not react."
    ),
    "fastflight_calls_open": Definition("gauge", "Calls other than streams that are running."),
    "fastflight_calls_total": Definition("counter", "Calls other than streams that have ended.", ("call", "outcome")),
    "fastflight_waiting": Definition("gauge", "Streams and calls that wait for room."),
    "fastflight_refused_total": Definition(
        "counter", "Streams and calls that were refused because a limit was reached.", ("limit",)
    ),
    "fastflight_limit": Definition("gauge", "The size of a limit (docs/limits.md).", ("limit",)),
    "fastflight_limit_used": Definition(
        "gauge", "How much of a limit is used (by the device or identity that uses most).", ("limit",)
    ),
    "fastflight_device_open": Definition("gauge", "Whether the device's line is open.", ("device",)),
    "fastflight_device_held": Definition("gauge", "Whether the device is in use.", ("device",)),
    "fastflight_device_in_trouble": Definition(
        "gauge", "Whether live sessions get nothing because the line is lost or cannot be opened.", ("device",)
    ),
    "fastflight_device_data_age_seconds": Definition(
        "gauge", "Time since the device last sent something.", ("device",)
    ),
    "fastflight_device_bytes_total": Definition("counter", "Bytes that crossed the line.", ("device", "direction")),
    "fastflight_device_opened_total": Definition("counter", "How often the line was opened.", ("device",)),
    "fastflight_device_outages_total": Definition("counter", "How often the line was lost.", ("device",)),
    "fastflight_device_retries_total": Definition(
        "counter", "Lost parts of transfers that were sent again.", ("device",)
    ),
    "fastflight_device_missed_total": Definition(
        "counter", "Chunks that live sessions missed because their clients were too slow.", ("device",)
    ),
    "fastflight_device_evicted_total": Definition(
        "counter", "How often an idle holder lost the device to another request.", ("device",)
    ),
    "fastflight_device_crashes_total": Definition("counter", "Tracebacks that the device printed.", ("device",)),
    "fastflight_device_unsearched_total": Definition(
        "counter", "Chunks that were dropped before they were searched for crashes.", ("device",)
    ),
    "fastflight_bridge_browsers_total": Definition(
        "counter", "Connections of browsers that the bridge of the device refused.", ("device", "protocol")
    ),
    "fastflight_recording_rows": Definition("gauge", "Rows in the recording of a device.", ("device",)),
    "fastflight_recording_bytes": Definition("gauge", "Bytes of the recording on the disk.", ("device",)),
    "fastflight_recording_age_seconds": Definition("gauge", "Time since the newest recorded row.", ("device",)),
    "fastflight_recording_lost": Definition("gauge", "Chunks that are missing in the recording.", ("device",)),
    "fastflight_recording_failures_total": Definition(
        "counter", "Attempts to write the recording that failed.", ("device",)
    ),
    "fastflight_recording_damage": Definition(
        "gauge", "Places in the recording's files that cannot be read.", ("device",)
    ),
    "fastflight_recordings_waiting_bytes": Definition("gauge", "Bytes that wait to be written, of all recordings."),
    "fastflight_recordings_commits_total": Definition(
        "counter", "Groups of rows that were written and synced to the disk."
    ),
    "fastflight_publish_failing": Definition(
        "gauge", "Whether the rows of a device do not reach an output now.", ("device", "output")
    ),
    "fastflight_publish_rows_total": Definition(
        "counter",
        "Rows that an output acknowledged (sent) or refused, and lines that did not fit the schema (misfit).",
        ("device", "output", "outcome"),
    ),
    "fastflight_publish_waiting": Definition(
        "gauge", "Chunks of traffic that wait to be published.", ("device", "output")
    ),
    "fastflight_publish_lost_total": Definition(
        "counter", "Chunks of traffic that were dropped before they were published.", ("device", "output")
    ),
    "fastflight_alerts_sent_total": Definition("counter", "Alerts that were delivered.", ("target",)),
    "fastflight_alerts_dropped_total": Definition(
        "counter", "Alerts that a target refused, or that were too many to wait for it.", ("target",)
    ),
    "fastflight_alerts_waiting": Definition("gauge", "Alerts that wait for their target.", ("target",)),
    "fastflight_alerts_failing": Definition("gauge", "Whether the last delivery failed.", ("target",)),
    "fastflight_shard_tasks": Definition("gauge", "Tasks of an event loop.", ("shard",)),
    "fastflight_shard_streams": Definition("gauge", "Streams and lines on an event loop.", ("shard",)),
    "fastflight_shard_lag_seconds": Definition("gauge", "How late an event loop answered the last time.", ("shard",)),
    "fastflight_shard_longest_lag_seconds": Definition(
        "gauge", "The longest time that an event loop took to answer.", ("shard",)
    ),
    "fastflight_shard_stuck_total": Definition(
        "counter", "How often an event loop did not answer for a second.", ("shard",)
    ),
    "fastflight_threads": Definition("gauge", "Threads by their purpose.", ("kind",)),
    "process_resident_memory_bytes": Definition("gauge", "Memory of the process."),
    "process_virtual_memory_bytes": Definition("gauge", "Address space of the process."),
    "process_start_time_seconds": Definition("gauge", "When the process started, in seconds since 1970."),
    "process_open_fds": Definition("gauge", "Open descriptors, connections included."),
    "process_max_fds": Definition("gauge", "The limit of open descriptors."),
    "process_open_sockets": Definition("gauge", "Open sockets: connections and listeners."),
    "process_cpu_seconds_total": Definition("counter", "Processor time used."),
}

FAMILIES: dict[str, type[CounterMetricFamily] | type[GaugeMetricFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
}


@dataclass(slots=True)
class DurationHistogram:
    """Counts durations by `DURATION_BOUNDS`. Its owner must hold a lock."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BOUNDS) + 1))
    sum: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(DURATION_BOUNDS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """Return each bound with the cumulative count up to it; the last bound is infinite."""
        bounds = (*map(str, DURATION_BOUNDS), "+Inf")
        return list(zip(bounds, itertools.accumulate(self.counts), strict=True))


class FunctionCollector(Collector):
    """Collects the metrics that a function yields."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


def family(name: str, values: Iterable[tuple[Labels, float]]) -> Metric:
    """Return the metric `name` with its values.

    Values with equal labels are added up. For metrics that are ages, the greatest value counts instead.
    """
    definition = DEFINITIONS[name]
    merge = max if name.endswith("_age_seconds") else operator.add
    merged: dict[Labels, float] = {}
    for labels, value in values:
        assert len(labels) == len(definition.labels), (name, labels)
        merged[labels] = merge(merged[labels], value) if labels in merged else value
    found = FAMILIES[definition.kind](name, definition.help, labels=definition.labels)
    for labels, value in merged.items():
        found.add_metric(labels, value)
    return found


def single(name: str, value: float) -> Metric:
    """Return the metric `name`, which has no labels."""
    return family(name, [((), value)])


def histogram(name: str, values: Iterable[tuple[Labels, Sequence[tuple[str, float]], float]]) -> Metric:
    """Return the histogram `name`. Each of `values` has labels, cumulative buckets and the sum."""
    definition = DEFINITIONS[name]
    found = HistogramMetricFamily(name, definition.help, labels=definition.labels)
    for labels, buckets, total in values:
        found.add_metric(labels, buckets, total)
    return found


def device_labels(names: Iterable[str]) -> dict[str, str]:
    """Return the label of each device: its name, or `BEYOND` after the first `MAX_DEVICE_LABELS`."""
    return {name: name if position < MAX_DEVICE_LABELS else BEYOND for position, name in enumerate(names)}


def collect_process(registry: CollectorRegistry) -> None:
    """Have `registry` collect the resources of this process. Outside Linux that is its processor time only."""
    ProcessCollector(registry=registry)
    registry.register(FunctionCollector(_process))


def _process() -> Iterator[Metric]:
    sockets = open_sockets()
    if sockets is None:
        yield single("process_cpu_seconds_total", time.process_time())
    else:
        yield single("process_open_sockets", sockets)


def as_json(registry: CollectorRegistry) -> dict[str, list[tuple[Mapping[str, str], Any]]]:
    """Return all samples that `registry` collects, by name: pairs of labels and value.

    The value of a histogram has the keys `count`, `sum` and `buckets`.
    """
    found: dict[str, list[tuple[Mapping[str, str], Any]]] = {}
    for metric in registry.collect():
        if metric.type == "histogram":
            for labels, value in _histograms(metric):
                found.setdefault(metric.name, []).append((labels, value))
        else:
            for sample in metric.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def _histograms(metric: Metric) -> Iterable[tuple[Mapping[str, str], Any]]:
    """Return one pair of labels and value for all samples of a histogram that differ only in their bucket."""
    found: dict[Labels, tuple[Mapping[str, str], Any]] = {}
    for sample in metric.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        _, value = found.setdefault(tuple(labels.values()), (labels, {"count": 0, "sum": 0.0, "buckets": []}))
        match sample.name.removeprefix(metric.name):
            case "_bucket":
                value["buckets"].append((sample.labels["le"], sample.value))
            case "_count":
                value["count"] = sample.value
            case "_sum":
                value["sum"] = round(sample.value, 6)
    return found.values()
