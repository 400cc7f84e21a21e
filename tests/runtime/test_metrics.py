"""Figures: the table, histograms and labels of devices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastflight.errors import ResourceExhausted
from fastflight.runtime.admission import OVERLOADED_SECONDS, Admission, AdmissionTicket, Limits
from fastflight.runtime.metrics import BEYOND, MAX_DEVICE_LABELS, TABLE, Figures, Histogram, Sample, all_told, labelled
from fastflight.runtime.process import figures as of_process

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, figure in TABLE.items():
        assert re.fullmatch(r"(fastflight|process)_[a-z_]+", name)
        assert (figure.kind == "counter") == name.endswith("_total"), name
        assert figure.help.endswith(".")


def test_the_page_lists_the_table_and_nothing_else() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    listed = {name: (kind, labels.strip(), text.strip()) for name, kind, labels, text in rows}
    assert listed == {
        name: (each.kind, ", ".join(f"`{label}`" for label in each.labels) or "–", each.help)
        for name, each in TABLE.items()
    }


def test_what_is_not_in_the_table_cannot_be_told() -> None:
    figures = Figures()
    figures.add(lambda: [Sample("fastflight_calls_open", 1)])
    assert figures.told() == {"fastflight_calls_open": [({}, 1)]}
    figures.add(lambda: [Sample("fastflight_calls_open", 1, {"more": "x"})])
    with pytest.raises(AssertionError):
        figures.told()


def test_a_histogram_counts_up() -> None:
    durations = Histogram()
    for seconds in (0.001, 0.002, 5000.0):
        durations.add(seconds)
    told = durations.told()
    assert (told["count"], told["sum"]) == (3, 5000.003)
    assert told["buckets"][:2] == [("0.001", 1), ("0.005", 2)] and told["buckets"][-1] == ("+Inf", 3)


def test_devices_beyond_the_maximum_are_one() -> None:
    samples = [Sample("fastflight_device_open", 1), Sample("fastflight_device_data_age_seconds", 2.0)]
    found = list(labelled((f"d{number}", samples) for number in range(MAX_DEVICE_LABELS + 3)))
    assert len(found) == 2 * MAX_DEVICE_LABELS + 2
    assert found[-2:] == [
        Sample("fastflight_device_open", 3, {"device": BEYOND}),
        Sample("fastflight_device_data_age_seconds", 2.0, {"device": BEYOND}),
    ]


def test_figures_of_another_version_are_left_out() -> None:
    stats = {"figures": {"fastflight_calls_open": [[{}, 1]], "of_another_version": [[{}, 1]]}}
    assert all_told(stats) == {"fastflight_calls_open": [({}, 1)]}


def test_a_process_says_what_it_uses() -> None:
    told = {name: value for name, value, _ in of_process()}
    assert set(told) <= set(TABLE) and told["process_cpu_seconds_total"]
    if Path("/proc/self/statm").exists():
        assert len(told) == 5 and all(value for name, value in told.items() if name != "process_open_sockets")


def test_a_server_is_overloaded_when_it_has_room_for_nobody_for_long() -> None:
    now = [0.0]
    admission = Admission(Limits(streams=1, per_device=1, waiting=0), clock=lambda: now[0])

    def enter(device: str | None = None) -> AdmissionTicket:
        place = AdmissionTicket()
        admission.acquire(place, device, lambda: "me", lambda: False)
        return place

    first = enter()
    with pytest.raises(ResourceExhausted):
        enter()
    now[0] = OVERLOADED_SECONDS - 0.1
    assert not admission.overloaded
    now[0] = OVERLOADED_SECONDS
    assert admission.overloaded
    assert dict(admission.refusals) == {"server": 1}
    admission.release(first)
    assert not admission.overloaded  # nobody may be sent here any more to find out
    enter()
    now[0] *= 3
    assert not admission.overloaded


def test_a_device_that_is_full_overloads_nothing() -> None:
    now = [0.0]
    admission = Admission(Limits(streams=2, per_device=1, waiting=0), clock=lambda: now[0])
    for device in ("a", None):
        admission.acquire(AdmissionTicket(), device, lambda: "me", lambda: False)
    with pytest.raises(ResourceExhausted):
        admission.acquire(AdmissionTicket(), "a", lambda: "me", lambda: False)
    now[0] = 2 * OVERLOADED_SECONDS
    assert not admission.overloaded
    assert list(admission.levels()) == [("server", 2, 2), ("calls", 128, 0), ("device", 1, 1), ("waiting", 0, 0)]
