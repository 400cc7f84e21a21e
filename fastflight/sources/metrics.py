"""The metrics of devices and recordings, read from their attributes when somebody asks for the metrics.

`runtime.metrics` defines them. Each function yields metrics for a `FunctionCollector`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from fastflight.device import Inventory
from fastflight.errors import TransportError
from fastflight.runtime.metrics import device_labels, family, single
from fastflight.sources.recording_status import RecordingStatus
from fastflight.sources.recordings import Recordings


def device_metrics(inventory: Inventory) -> Iterator[Metric]:
    """Yield the metrics of each device: state of its line, bytes, retries and outages."""
    now = time.time_ns()
    found = list(inventory.devices())
    labels = device_labels(device.name for device in found)
    devices = [((labels[device.name],), device) for device in found]
    ages = [(of, _seconds(now - device.tap.heard_ns)) for of, device in devices if device.tap.heard_ns is not None]
    crossed = [((*of, way), count) for of, device in devices for way, count in device.tap.byte_counts.items()]
    yield family("fastflight_device_open", ((of, int(device.is_open)) for of, device in devices))
    yield family("fastflight_device_held", ((of, int(device.holder is not None)) for of, device in devices))
    yield family("fastflight_device_in_trouble", ((of, int(bool(device.trouble))) for of, device in devices))
    yield family("fastflight_device_data_age_seconds", ages)
    yield family("fastflight_device_bytes_total", crossed)
    yield family("fastflight_device_opened_total", ((of, device.openings) for of, device in devices))
    yield family("fastflight_device_outages_total", ((of, device.outages) for of, device in devices))
    yield family("fastflight_device_retries_total", ((of, device.retries) for of, device in devices))
    yield family("fastflight_device_missed_total", ((of, device.tap.missed) for of, device in devices))
    yield family("fastflight_device_evicted_total", ((of, device.evicted) for of, device in devices))


def recording_metrics(recordings: Recordings) -> Iterator[Metric]:
    """Yield the metrics of each recording, and of the store. In a cluster without NATS, only those of the store."""
    now = time.time()
    found: list[RecordingStatus] = []
    with contextlib.suppress(TransportError):
        found = recordings.statuses()
    labels = device_labels(status.name for status in found)
    statuses = [((labels[status.name],), status) for status in found]
    ages = [
        (of, _seconds((now - status.last_time.timestamp()) * 1e9))
        for of, status in statuses
        if status.last_time is not None
    ]
    yield family("fastflight_recording_rows", ((of, status.rows) for of, status in statuses))
    yield family("fastflight_recording_bytes", ((of, status.bytes) for of, status in statuses))
    yield family("fastflight_recording_age_seconds", ages)
    yield family("fastflight_recording_lost", ((of, status.lost) for of, status in statuses))
    yield family("fastflight_recording_failures_total", ((of, status.failures) for of, status in statuses))
    yield family("fastflight_recording_damage", ((of, len(status.damage)) for of, status in statuses))
    yield single("fastflight_recordings_waiting_bytes", recordings.store.waiting_bytes)
    yield single("fastflight_recordings_commits_total", recordings.store.commits)


def _seconds(nanoseconds: float) -> float:
    """Return an age in seconds. It is never negative, although the clock may have been set back."""
    return max(0.0, round(nanoseconds / 1e9, 3))
