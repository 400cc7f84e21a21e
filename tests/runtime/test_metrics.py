"""Metrics: their definitions, what is collected, and the JSON of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from fastflight.concurrency import Shards
from fastflight.errors import ResourceExhausted
from fastflight.runtime.admission import OVERLOADED_SECONDS, Admission, AdmissionTicket, Limits
from fastflight.runtime.metrics import (
    BEYOND,
    DEFINITIONS,
    MAX_DEVICE_LABELS,
    DurationHistogram,
    FunctionCollector,
    as_json,
    collect_process,
    device_labels,
    family,
    histogram,
    single,
)
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.sources.state_actions import server_metrics
from tests.support.clock import ManualClock


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, definition in DEFINITIONS.items():
        assert re.fullmatch(r"(fastflight|process)_[a-z_]+", name)
        assert (definition.kind == "counter") == name.endswith("_total"), name
        assert definition.help.endswith(".")


def test_a_metric_must_be_defined_and_have_its_labels() -> None:
    with pytest.raises(KeyError):
        single("fastflight_unknown", 1)
    with pytest.raises(AssertionError):
        family("fastflight_calls_open", [(("more",), 1)])


def test_a_histogram_counts_up() -> None:
    durations = DurationHistogram()
    for seconds in (0.001, 0.002, 5000.0):
        durations.observe(seconds)
    buckets = durations.buckets()
    assert durations.sum == 5000.003
    assert buckets[:2] == [("0.001", 1), ("0.005", 2)] and buckets[-1] == ("+Inf", 3)


def test_what_is_collected_survives_json() -> None:
    durations = DurationHistogram()
    durations.observe(0.25)
    metrics = CollectorRegistry()
    found = [
        single("fastflight_calls_open", 1),
        family("fastflight_calls_total", [(("devices", "finished"), 2), (("devices", "failed"), 1)]),
        histogram("fastflight_stream_duration_seconds", [(("mock",), durations.buckets(), durations.sum)]),
    ]
    metrics.register(FunctionCollector(lambda: found))
    told = json.loads(json.dumps(as_json(metrics)))
    assert told["fastflight_calls_open"] == [[{}, 1]]
    assert told["fastflight_calls_total"][1] == [{"call": "devices", "outcome": "failed"}, 1]
    ((labels, value),) = told["fastflight_stream_duration_seconds"]
    assert (labels, value["count"], value["sum"]) == ({"source": "mock"}, 1, 0.25)
    assert ["0.1", 0] in value["buckets"] and ["0.5", 1] in value["buckets"]


def test_devices_beyond_the_maximum_share_a_label() -> None:
    labels = device_labels(f"d{number}" for number in range(MAX_DEVICE_LABELS + 3))
    assert list(labels.values())[-4:] == [f"d{MAX_DEVICE_LABELS - 1}", BEYOND, BEYOND, BEYOND]
    opened = family("fastflight_device_open", (((label,), 1) for label in labels.values()))
    ages = family("fastflight_device_data_age_seconds", (((label,), 2.0) for label in labels.values()))
    assert len(opened.samples) == len(ages.samples) == MAX_DEVICE_LABELS + 1
    assert [(each.samples[-1].labels, each.samples[-1].value) for each in (opened, ages)] == [
        ({"device": BEYOND}, 3),
        ({"device": BEYOND}, 2.0),
    ]


def test_a_process_tells_what_it_uses() -> None:
    metrics = CollectorRegistry()
    collect_process(metrics)
    told = as_json(metrics)
    assert set(told) <= set(DEFINITIONS) and told["process_cpu_seconds_total"][0][1]
    if Path("/proc/self/statm").exists():
        assert set(told) == {name for name in DEFINITIONS if name.startswith("process_")}


def test_all_that_every_server_collects_is_defined() -> None:
    registry = StreamRegistry()
    with Shards(1) as shards:
        told = as_json(server_metrics(registry, shards))
    assert set(told) <= set(DEFINITIONS)
    assert {"fastflight_refused_total", "fastflight_shard_tasks", "fastflight_threads"} <= set(told)


def test_a_server_is_overloaded_when_it_has_room_for_nobody_for_long() -> None:
    clock = ManualClock()
    admission = Admission(Limits(streams=1, per_device=1, waiting=0), clock=clock)

    def enter(device: str | None = None) -> AdmissionTicket:
        place = AdmissionTicket()
        admission.acquire(place, device, lambda: "me", lambda: False)
        return place

    first = enter()
    with pytest.raises(ResourceExhausted):
        enter()
    clock.now = OVERLOADED_SECONDS - 0.1
    assert not admission.overloaded
    clock.now = OVERLOADED_SECONDS
    assert admission.overloaded
    assert dict(admission.refusals) == {"server": 1}
    admission.release(first)
    assert not admission.overloaded  # nobody may be sent here any more to find out
    enter()
    clock.now *= 3
    assert not admission.overloaded


def test_a_device_that_is_full_overloads_nothing() -> None:
    clock = ManualClock()
    admission = Admission(Limits(streams=2, per_device=1, waiting=0), clock=clock)
    for device in ("a", None):
        admission.acquire(AdmissionTicket(), device, lambda: "me", lambda: False)
    with pytest.raises(ResourceExhausted):
        admission.acquire(AdmissionTicket(), "a", lambda: "me", lambda: False)
    clock.now = 2 * OVERLOADED_SECONDS
    assert not admission.overloaded
    assert list(admission.levels()) == [("server", 2, 2), ("calls", 128, 0), ("device", 1, 1), ("waiting", 0, 0)]
