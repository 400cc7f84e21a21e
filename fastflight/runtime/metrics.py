"""What a server counts: one table of figures, which `stats` tells as JSON and `/metrics` as Prometheus reads them.

A figure is a family of numbers under one name, told apart by labels. Nothing is kept here: each part of the server
counts for itself, and says so when it is asked, by a function that was `add`ed. Names follow Prometheus' conventions:
`_total` only goes up, until the server is started anew; units are seconds and bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

Kind = Literal["counter", "gauge", "histogram"]
# A histogram's: how many in all, their sum, and for each bound how many were at most so large.
Value: TypeAlias = float | Mapping[str, Any]

# Devices that are told apart: of more, Prometheus would keep more series than it likes, and nobody looks at so many
# lines. Those beyond, in the order of the settings, are one, by this name.
MAX_DEVICE_LABELS = 250
BEYOND = "(others)"
# From a small answer to a live session that somebody leaves open.
DURATION_BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 1800.0)


class Sample(NamedTuple):
    """One number."""

    name: str
    value: Value
    labels: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Figure:
    """One family: what it is, in a sentence, and the names of its labels."""

    kind: Kind
    help: str
    labels: Sequence[str] = ()


TABLE: dict[str, Figure] = {
    "fastflight_streams_open": Figure("gauge", "Streams that are open.", ("source",)),
    "fastflight_streams_total": Figure("counter", "Streams that have ended.", ("source", "outcome")),
    "fastflight_stream_duration_seconds": Figure("histogram", "How long streams were open that ended.", ("source",)),
    "fastflight_rows_total": Figure("counter", "Rows sent and taken.", ("source",)),
    "fastflight_bytes_total": Figure("counter", "Bytes of batches sent and taken.", ("source",)),
    "fastflight_rejected_rows_total": Figure("counter", "Rows of files that did not fit, set aside.", ("source",)),
    "fastflight_errors_total": Figure("counter", "Streams and calls that failed, by the error's code.", ("code",)),
    "fastflight_overdue_total": Figure(
        "counter", "Streams ended for their client: a reader took nothing, a writer said nothing.", ("client",)
    ),
    "fastflight_connections_cut_total": Figure("counter", "Connections by Flight cut, as such clients heard nothing."),
    "fastflight_calls_open": Figure("gauge", "Calls that are no streams, under way."),
    "fastflight_calls_total": Figure("counter", "Calls that are no streams, ended.", ("call", "outcome")),
    "fastflight_waiting": Figure("gauge", "Streams and calls that wait for room."),
    "fastflight_refused_total": Figure("counter", "Streams and calls for which there was no room.", ("limit",)),
    "fastflight_limit": Figure("gauge", "The size of a limit of docs/limits.md.", ("limit",)),
    "fastflight_limit_used": Figure("gauge", "How much of it is used: of several, by the fullest.", ("limit",)),
    "fastflight_device_open": Figure("gauge", "Whether the device's line is open.", ("device",)),
    "fastflight_device_held": Figure("gauge", "Whether somebody has the device.", ("device",)),
    "fastflight_device_in_trouble": Figure("gauge", "Whether its line is lost for those that listen.", ("device",)),
    "fastflight_device_data_age_seconds": Figure("gauge", "Since the device last said something.", ("device",)),
    "fastflight_device_bytes_total": Figure("counter", "Bytes that crossed the line.", ("device", "direction")),
    "fastflight_device_opened_total": Figure("counter", "How often the line was opened.", ("device",)),
    "fastflight_device_outages_total": Figure("counter", "How often the line was lost.", ("device",)),
    "fastflight_device_retries_total": Figure("counter", "Parts of transfers lost, sent again.", ("device",)),
    "fastflight_device_missed_total": Figure(
        "counter", "Chunks of live traffic that a reader was too slow for: gaps of sessions.", ("device",)
    ),
    "fastflight_device_put_out_total": Figure(
        "counter", "How often who had its line and sent nothing had to go, as somebody else asked.", ("device",)
    ),
    "fastflight_bridge_browsers_total": Figure(
        "counter", "Connections of browsers that the ports of its bridge refused.", ("device", "protocol")
    ),
    "fastflight_recording_rows": Figure("gauge", "Rows kept of a device's traffic.", ("device",)),
    "fastflight_recording_bytes": Figure("gauge", "Their bytes as stored.", ("device",)),
    "fastflight_recording_age_seconds": Figure("gauge", "Since the newest row that is kept.", ("device",)),
    "fastflight_recording_lost": Figure("gauge", "Chunks that are missing among the rows kept.", ("device",)),
    "fastflight_recording_failures_total": Figure("counter", "Tries to keep that the disk failed.", ("device",)),
    "fastflight_recording_damage": Figure("gauge", "Places in its files that cannot be read.", ("device",)),
    "fastflight_recordings_waiting_bytes": Figure("gauge", "Bytes that wait for the disk, of all recordings."),
    "fastflight_recordings_commits_total": Figure("counter", "Groups written and synced to the disk."),
    "fastflight_shard_tasks": Figure("gauge", "Tasks of an event loop.", ("shard",)),
    "fastflight_shard_streams": Figure("gauge", "Streams and lines on an event loop.", ("shard",)),
    "fastflight_shard_lag_seconds": Figure("gauge", "How late an event loop answered lately.", ("shard",)),
    "fastflight_shard_longest_lag_seconds": Figure("gauge", "How late it was at worst.", ("shard",)),
    "fastflight_shard_stuck_total": Figure("counter", "How often it did not turn for a second.", ("shard",)),
    "fastflight_threads": Figure("gauge", "Threads by what they are for.", ("kind",)),
    "process_resident_memory_bytes": Figure("gauge", "Memory of the process."),
    "process_open_fds": Figure("gauge", "Open descriptors, connections included."),
    "process_max_fds": Figure("gauge", "How many it may have."),
    "process_open_sockets": Figure("gauge", "Of the open descriptors, sockets: connections and listeners."),
    "process_cpu_seconds_total": Figure("counter", "Processor time used."),
}

Collect: TypeAlias = Callable[[], Iterable[Sample]]
# As `stats` tells it: by name, pairs of labels and value.
Told: TypeAlias = Mapping[str, Sequence[tuple[Mapping[str, str], Value]]]


class Figures:
    """Those of one server."""

    def __init__(self) -> None:
        self._collectors: list[Collect] = []

    def add(self, collect: Collect) -> None:
        """Have `collect` asked each time."""
        self._collectors.append(collect)

    def told(self) -> dict[str, list[tuple[Mapping[str, str], Value]]]:
        """All of them, now."""
        found: dict[str, list[tuple[Mapping[str, str], Value]]] = {}
        for collect in self._collectors:
            for name, value, labels in collect():
                assert name in TABLE and set(labels) == set(TABLE[name].labels), (name, labels)
                found.setdefault(name, []).append((labels, value))
        return found


def all_told(stats: Mapping[str, Any]) -> dict[str, list[tuple[dict[str, str], Any]]]:
    """The figures in an answer of `stats`. Figures that this version does not know are left out."""
    found: dict[str, list[tuple[dict[str, str], Any]]] = {}
    for name, samples in stats.get("figures", {}).items():
        if name in TABLE:
            found.setdefault(name, []).extend((dict(labels), value) for labels, value in samples)
    return found


@dataclass(slots=True)
class Histogram:
    """How many were how large. Guarded by its owner."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BOUNDS) + 1))
    sum: float = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(DURATION_BOUNDS, value)] += 1
        self.sum += value

    def told(self) -> Mapping[str, Any]:
        """As a figure's value: the bounds' counts are cumulative, the last bound is above all."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, DURATION_BOUNDS), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return {"count": total, "sum": round(self.sum, 6), "buckets": buckets}


def labelled(each: Iterable[tuple[str, Sequence[Sample]]]) -> Iterator[Sample]:
    """Samples of devices, by name, with that as their label; those beyond the maximum summed up.

    An age of several is the greatest.
    """
    beyond: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for place, (name, samples) in enumerate(each):
        for sample in samples:
            if place < MAX_DEVICE_LABELS:
                yield sample._replace(labels={"device": name, **sample.labels})
                continue
            assert isinstance(sample.value, int | float)
            key = sample.name, tuple(sample.labels.items())
            before = beyond.get(key, 0.0)
            ages = sample.name.endswith("_age_seconds")
            beyond[key] = max(before, sample.value) if ages else before + sample.value
    for (name, labels), value in beyond.items():
        yield Sample(name, value, {"device": BEYOND, **dict(labels)})
