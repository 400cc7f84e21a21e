"""What is counted of devices and of recordings."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fastflight.device import Device, Inventory
from fastflight.runtime.metrics import Sample, labelled
from fastflight.sources.recordings import Recordings, Status


def device_figures(inventory: Inventory) -> Iterator[Sample]:
    """Of each device: its line, what crossed it, what went wrong."""
    now = time.time_ns()
    return labelled((device.name, list(_of_device(device, now))) for device in inventory.devices())


def recording_figures(recordings: Recordings) -> Iterator[Sample]:
    """Of each recording, and of the store."""
    yield from labelled((status.name, list(_of_recording(status))) for status in recordings.statuses())
    store = recordings.store.statistics()
    yield Sample("fastflight_recordings_waiting_bytes", store.waiting_bytes)
    yield Sample("fastflight_recordings_commits_total", store.commits)


def _of_device(device: Device, now: int) -> Iterator[Sample]:
    tap = device.tap
    yield Sample("fastflight_device_open", int(device.is_open))
    yield Sample("fastflight_device_held", int(device.holder is not None))
    yield Sample("fastflight_device_in_trouble", int(bool(device.trouble)))
    if tap.heard_ns is not None:
        yield Sample("fastflight_device_data_age_seconds", _seconds(now - tap.heard_ns))
    for direction, count in tap.bytes.items():
        yield Sample("fastflight_device_bytes_total", count, {"direction": direction})
    yield Sample("fastflight_device_opened_total", device.openings)
    yield Sample("fastflight_device_outages_total", device.outages)
    yield Sample("fastflight_device_retries_total", device.retries)
    yield Sample("fastflight_device_missed_total", tap.missed)
    yield Sample("fastflight_device_put_out_total", device.put_out)


def _of_recording(status: Status) -> Iterator[Sample]:
    yield Sample("fastflight_recording_rows", status.rows)
    yield Sample("fastflight_recording_bytes", status.bytes)
    if status.last_time is not None:
        yield Sample("fastflight_recording_age_seconds", _seconds((time.time() - status.last_time.timestamp()) * 1e9))
    yield Sample("fastflight_recording_lost", status.lost)
    yield Sample("fastflight_recording_failures_total", status.failures)
    yield Sample("fastflight_recording_damage", len(status.damage))


def _seconds(nanoseconds: float) -> float:
    """A clock that was set back makes nothing younger than new."""
    return max(0.0, round(nanoseconds / 1e9, 3))
