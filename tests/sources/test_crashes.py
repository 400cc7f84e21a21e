"""How crashes of devices are counted, grouped, bounded, and kept over a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastflight.access.identity import ANYBODY, Identity, scopes
from fastflight.device import Inventory
from fastflight.sources.crashes import DAY_NS, MAX_DAYS, MAX_DEVICE_GROUPS, Crashes, merged
from fastflight.sources.kept_values import KeptValues
from fastflight.sources.recorder import RECORDING
from fastflight.transport.chunk_buffer import KEPT_BYTES

Say = Callable[..., None]


def traceback(error: str, line: int = 5) -> bytes:
    return f'Traceback (most recent call last):\r\n  File "main.py", line {line}\r\n{error}\r\n>>> '.encode()


@pytest.fixture
def inventory() -> Iterator[Inventory]:
    with Inventory({"weather": "sim:", "lab": "sim:"}) as inventory:
        yield inventory


def says(inventory: Inventory, device: str, data: bytes) -> None:
    inventory.device(device).tap.feed("rx", data)


def in_memory() -> KeptValues:
    return KeptValues(lambda: None)


def rows(crashes: Crashes, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(each.result()[name] for name in columns) for each in crashes.groups()]


def test_crashes_are_counted_by_device_error_and_place(inventory: Inventory) -> None:
    crashes = Crashes(inventory, in_memory())
    for number in range(3):
        says(inventory, "weather", traceback(f"ValueError: reading {number}"))
    says(inventory, "weather", traceback("ValueError: reading 9", line=7))
    says(inventory, "lab", traceback("KeyError: x"))
    assert len(crashes.poll(DAY_NS)) == 5
    assert sorted(rows(crashes, "device", "count", "error", "place")) == [
        ("lab", 1, "KeyError: x", "main.py:5"),
        ("weather", 1, "ValueError: reading 9", "main.py:7"),
        ("weather", 3, "ValueError: reading 2", "main.py:5"),
    ]
    assert crashes.poll(DAY_NS) == [] and len(crashes.groups()) == 3
    summary = crashes.summary("weather")
    assert summary is not None and (summary["count"], summary["place"]) == (4, "main.py:7")
    assert crashes.summary("quiet") is None
    found = {sample.labels["device"]: sample.value for sample in list(crashes.metrics())[0].samples}
    assert found == {"weather": 4, "lab": 1}


def test_the_row_in_the_recording_is_known_while_the_device_is_recorded(inventory: Inventory) -> None:
    crashes = Crashes(inventory, in_memory())
    inventory.device("lab").recording = RECORDING
    for device in ("weather", "lab"):
        says(inventory, device, b"boot\r\n")
        says(inventory, device, traceback("KeyError: x"))
    crashes.poll(DAY_NS)
    assert sorted(rows(crashes, "device", "seq")) == [("lab", 1), ("weather", None)]


def test_traffic_of_requests_is_no_crash(inventory: Inventory) -> None:
    crashes = Crashes(inventory, in_memory())
    inventory.device("lab").tap.feed("rx", traceback("KeyError: x"), request=True)
    assert crashes.poll(DAY_NS) == []


def test_what_the_tap_dropped_is_counted_and_what_it_has_is_searched(inventory: Inventory) -> None:
    crashes = Crashes(inventory, in_memory())
    crashes.poll(DAY_NS)
    for _ in range(3):
        says(inventory, "lab", b"x" * KEPT_BYTES)
    says(inventory, "lab", traceback("KeyError: x"))
    assert [each.error for each in crashes.poll(DAY_NS)] == ["KeyError: x"]
    missed = {sample.labels["device"]: sample.value for sample in list(crashes.metrics())[1].samples}
    assert missed == {"weather": 0, "lab": 3}


def test_a_device_that_is_replaced_is_watched_anew(inventory: Inventory) -> None:
    crashes = Crashes(inventory, in_memory())
    says(inventory, "lab", traceback("KeyError: x")[:60])
    crashes.poll(DAY_NS)
    removed = inventory.remove("lab")
    crashes.poll(DAY_NS)
    removed.close()
    inventory.add("lab", "sim:")
    says(inventory, "lab", traceback("KeyError: y"))
    assert [each.error for each in crashes.poll(DAY_NS)] == ["KeyError: y"]


def test_groups_are_bounded_by_number_and_age(inventory: Inventory) -> None:
    crashes = Crashes(inventory, in_memory())
    says(inventory, "weather", traceback("KeyError: x"))
    for number in range(MAX_DEVICE_GROUPS + 5):
        says(inventory, "lab", traceback(f"KeyError: name{number}"))
    (now,) = {each.last_ns // DAY_NS * DAY_NS for each in crashes.poll(0)[:1]}
    assert len(crashes.groups()) == MAX_DEVICE_GROUPS + 1
    assert "KeyError: name0" not in [each.error for each in crashes.groups()]
    crashes.poll(now + (MAX_DAYS + 2) * DAY_NS)
    assert crashes.groups() == []


def test_groups_are_kept_over_a_restart_while_recordings_are_kept(inventory: Inventory, tmp_path: Path) -> None:
    kept = KeptValues(lambda: tmp_path)
    crashes = Crashes(inventory, kept)
    crashes.load()
    says(inventory, "lab", traceback("KeyError: x"))
    crashes.poll(DAY_NS)
    kept.close()
    kept = KeptValues(lambda: tmp_path)
    again = Crashes(inventory, kept)
    again.load()
    assert again.groups() == crashes.groups()
    says(inventory, "lab", traceback("KeyError: x"))
    again.poll(DAY_NS)  # the tap of this process has the first one still
    assert rows(again, "count") == [(3,)]
    kept.close()


def test_what_another_version_has_kept_and_does_not_fit_is_left_out(inventory: Inventory, tmp_path: Path) -> None:
    kept = KeptValues(lambda: tmp_path)
    crashes = Crashes(inventory, kept)
    says(inventory, "lab", traceback("KeyError: x"))
    crashes.poll(DAY_NS)
    kept.save({("crash", "other"): {"device": "lab"}})
    again = Crashes(inventory, kept)
    again.load()
    assert again.groups() == crashes.groups()
    kept.close()


def test_a_disk_that_fails_costs_nothing_else_and_is_used_again(inventory: Inventory, tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    kept = KeptValues(lambda: folder)
    crashes = Crashes(inventory, kept)
    says(inventory, "lab", traceback("KeyError: x"))
    crashes.poll(DAY_NS)  # there is no folder yet
    folder.mkdir()
    (folder / "crashes.db").write_bytes(b"no database" * 100)
    says(inventory, "lab", traceback("KeyError: y"))
    assert len(crashes.poll(DAY_NS)) == 1
    (folder / "crashes.db").unlink()
    says(inventory, "lab", traceback("KeyError: z"))
    crashes.poll(DAY_NS)
    assert len(kept.load("crash", dict)) == len(crashes.groups()) == 3
    kept.close()


def test_only_callers_that_may_read_sessions_see_a_crash(inventory: Inventory) -> None:
    action = Crashes(inventory, in_memory()).action()
    assert action.shown is not None
    crash = {"device": "lab", "error": "KeyError: x"}
    assert action.shown(ANYBODY, crash) == crash
    assert action.shown(Identity("ada", scopes(["session:lab"])), crash) == crash
    assert action.shown(Identity("ada", scopes(["read:*", "session:weather"])), crash) is None


def test_crashes_of_a_device_at_several_servers_are_joined() -> None:
    group = {
        "device": "lab",
        "place": "main.py:5",
        "error": "E: at 1 s",
        "count": 2,
        "first_time": "1",
        "last_time": "3",
    }
    other = {**group, "error": "E: at 2 s", "count": 1, "first_time": "2", "last_time": "4"}
    assert merged([group, other]) == [{**other, "count": 3, "first_time": "1"}]
    assert len(merged([group, {**group, "device": "other"}])) == 2
