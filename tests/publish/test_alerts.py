"""When alerts begin and end, which messages they are, and that each is delivered at least once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fastflight.device import Inventory
from fastflight.errors import TransportError
from fastflight.publish.alert_outbox import MAX_WAITING, PAUSE_SECONDS, Outboxes
from fastflight.publish.alert_targets import AlertTarget
from fastflight.publish.alerts import GONE_SECONDS, AlertRule, Alerts, format_seconds
from fastflight.sources import RowLayout
from fastflight.sources.crashes import Crashes
from fastflight.sources.kept_values import KeptValues

TARGET = AlertTarget(argv=("page-me",))
SILENT = AlertRule(TARGET, silent=60)
HOT = AlertRule(TARGET, column="temperature", above=40, hold=30)
CRASH = AlertRule(TARGET, crash=True)
ROWS = RowLayout("jsonl", {"temperature": "double"})
BOOM = b'Traceback (most recent call last):\r\n  File "main.py", line 5, in read\r\nValueError: boom\r\n>>> '
START = 10**18


class Watch:
    """A server without edges, whose clock is `seconds`, and a target that takes messages unless it `fails`."""

    def __init__(self, *rules: AlertRule, devices: int = 1, folder: Path | None = None, start: float = 0.0) -> None:
        self.inventory = Inventory({f"lab-{number}": "sim:" for number in range(devices)})
        self.kept = KeptValues(lambda: folder)
        self.crashes = Crashes(self.inventory, self.kept)
        self.outboxes = Outboxes(self.kept, self._send)
        self.alerts = Alerts(self.inventory, lambda device: ROWS, self.kept, self.outboxes)
        self.bodies: list[dict[str, Any]] = []
        self.fails = self.refuses = ""
        self.seconds = start
        self.alerts.load()
        self.apply(*rules)
        self.outboxes.load()
        self.poll()

    def apply(self, *rules: AlertRule) -> None:
        self.alerts.apply(rules)
        self.outboxes.apply(rule.target for rule in rules)

    def _send(self, target: AlertTarget, body: bytes) -> concurrent.futures.Future[str]:
        sent: concurrent.futures.Future[str] = concurrent.futures.Future()
        if self.fails:
            sent.set_exception(TransportError(self.fails))
        else:
            self.bodies.append(json.loads(body))
            sent.set_result(self.refuses)
        return sent

    def says(self, data: bytes, device: str = "lab-0") -> None:
        self.inventory.device(device).tap.feed("rx", data)

    def poll(self) -> None:
        now = START + round(self.seconds * 1e9)
        heard: dict[str, Any] = {}
        found = self.crashes.poll(now, heard.__setitem__)
        self.alerts.poll(now, heard, found)
        self.outboxes.poll(now)

    def wait(self, seconds: float, saying: bytes = b"") -> list[str]:
        """Let time pass, with a look each second. Return the texts of the alerts that are sent meanwhile."""
        before = len(self.bodies)
        for _ in range(round(seconds)):
            if saying:
                self.says(saying)
            self.seconds += 1
            self.poll()
        return [alert["text"] for body in self.bodies[before:] for alert in body["alerts"]]

    def close(self) -> None:
        self.inventory.close()
        self.kept.close()


@pytest.fixture
def watches() -> Iterator[Any]:
    """Makes watches, and closes them."""
    made: list[Watch] = []

    def watch(*rules: AlertRule, **keys: Any) -> Watch:
        made.append(Watch(*rules, **keys))
        return made[-1]

    yield watch
    for each in made:
        each.close()


def metrics(watch: Watch) -> Mapping[str, float]:
    return {sample.name: sample.value for metric in watch.outboxes.metrics() for sample in metric.samples}


def test_silence_begins_after_its_time_and_is_over_when_the_device_is_heard(watches: Any) -> None:
    watch = watches(SILENT)
    assert watch.wait(30, b"x\n") == []
    assert watch.wait(59) == []
    assert watch.wait(3) == ["lab-0 has been silent for 1 min"]
    assert watch.wait(540) == []
    assert watch.wait(15, b"x\n") == ["lab-0 is heard again, after 10 min"]
    assert [body["alerts"][0]["state"] for body in watch.bodies] == ["begins", "over"]


def test_a_device_that_was_never_heard_is_silent_from_the_start_of_the_server(watches: Any) -> None:
    watch = watches(SILENT)
    assert watch.wait(65) == ["lab-0 has been silent for 1 min"]


def test_a_clock_that_is_set_is_no_silence(watches: Any) -> None:
    watch = watches(SILENT)
    watch.wait(5, b"x\n")
    watch.seconds += 3600
    assert watch.wait(40) == []


def test_a_clock_that_is_set_back_delays_nothing_for_long(watches: Any) -> None:
    watch = watches(SILENT, CRASH)
    watch.says(BOOM)
    assert len(watch.wait(75)) == 2
    watch.seconds -= 7200
    assert len(watch.wait(310, b"x\n")) == 2  # both are over
    watch.says(BOOM)
    assert watch.wait(75) == ["lab-0 crashed: ValueError: boom at main.py:5 in read"]
    assert any("has been silent" in text for text in watch.wait(310))


def test_a_rule_that_is_there_twice_counts_once(watches: Any) -> None:
    watch = watches(CRASH, CRASH)
    watch.says(BOOM)
    assert watch.wait(30) == ["lab-0 crashed: ValueError: boom at main.py:5 in read"]


def test_within_the_quiet_time_repeats_are_counted_and_not_sent(watches: Any) -> None:
    watch = watches(AlertRule(TARGET, silent=10, quiet=300))
    texts = []
    for _ in range(20):  # 400 s
        texts += watch.wait(15) + watch.wait(5, b"x\n")
    assert texts[:2] == ["lab-0 has been silent for 10 s", "lab-0 is heard again, after 16 s"]
    assert texts[2:] == [
        "lab-0 has been silent for 10 s, 15 times since the last message",
        "lab-0 is heard again, after 16 s",
    ]


def test_a_column_must_be_beyond_its_limit_for_the_whole_time(watches: Any) -> None:
    watch = watches(HOT)
    hot, good = b'{"temperature": 41.5}\r\n', b'{"temperature": 39.0}\r\n'
    assert watch.wait(29, hot) + watch.wait(5, good) + watch.wait(20, hot) + watch.wait(1, good) == []
    (text,) = watch.wait(35, hot)
    assert text.startswith("lab-0 has temperature 41.5, above 40 for ")
    assert watch.wait(100) == []  # a value that is not printed again is still true
    (text,) = watch.wait(15, good)
    assert text.startswith("lab-0 has temperature 39, no longer above 40, after ")


def test_without_a_time_one_row_is_enough_and_both_limits_count(watches: Any) -> None:
    watch = watches(AlertRule(TARGET, column="temperature", above=40, below=5))
    watch.says(b'{"temperature": 20}\r\n{"temperature": 4.5}\r\n{"temperature": 20}\r\n')
    (text,) = watch.wait(2)
    assert text == "lab-0 has temperature 4.5, above 40 or below 5"


def test_a_crash_is_over_when_there_was_none_for_the_quiet_time(watches: Any) -> None:
    watch = watches(CRASH)
    watch.says(BOOM + BOOM)
    assert watch.wait(2) == ["lab-0 crashed: ValueError: boom at main.py:5 in read (2 crashes in 0 s)"]
    alert = watch.bodies[0]["alerts"][0]
    assert (alert["alert"], alert["state"], alert["count"]) == ("crash", "begins", 2)
    assert alert["traceback"].endswith("ValueError: boom")
    watch.wait(98)
    watch.says(BOOM)
    assert watch.wait(299) == ["lab-0 has crashed again, 3 crashes in 100 s: ValueError: boom at main.py:5 in read"]
    assert watch.wait(10) == [
        "lab-0 has not crashed again for 5 min, after 3 crashes in 100 s, but has printed nothing since"
    ]
    watch.says(BOOM)
    assert watch.wait(PAUSE_SECONDS) == ["lab-0 crashed: ValueError: boom at main.py:5 in read"]


def test_crashes_that_go_on_are_reported_at_growing_intervals(watches: Any) -> None:
    watch = watches(CRASH)
    hours = 8 * 3600
    texts = watch.wait(hours, BOOM)
    assert len(texts) == 7 and texts[1].startswith("lab-0 has crashed again, ")
    assert watch.wait(400, b"x\n")[-1].endswith(f"has not crashed again for 5 min, after {hours} crashes in 8 h")


def test_a_flood_of_crashes_of_many_devices_is_no_flood_of_messages(watches: Any) -> None:
    watch = watches(CRASH, devices=50)
    for round_ in range(20):
        for number in range(50):
            watch.says(BOOM, f"lab-{(number * 7 + round_) % 50}")
        watch.wait(3)
    assert sum(group.count for group in watch.crashes.groups()) == 1000
    assert len(watch.bodies) == 1 and len(watch.bodies[0]["alerts"]) == 50
    assert watch.bodies[0]["text"].startswith("50 alerts: lab-0 crashed: ValueError: boom at main.py:5 in read; ")
    assert watch.bodies[0]["text"].endswith("; and 47 more")
    # They crash one after another: still at most one message for each pause.
    watch = watches(CRASH, devices=50)
    for number in range(50):
        watch.says(BOOM, f"lab-{number}")
        watch.wait(1)
    watch.wait(PAUSE_SECONDS)
    assert len(watch.bodies) <= 7 and sum(len(body["alerts"]) for body in watch.bodies) == 50


def test_what_was_not_delivered_is_sent_again_at_growing_intervals(watches: Any) -> None:
    watch = watches(SILENT)
    watch.fails = "no route"
    assert watch.wait(600) == []
    assert metrics(watch)["fastflight_alerts_failing"] == 1 and metrics(watch)["fastflight_alerts_waiting"] == 1
    watch.fails = ""
    assert watch.wait(310) == ["lab-0 has been silent for 1 min"]
    assert metrics(watch)["fastflight_alerts_failing"] == 0 and metrics(watch)["fastflight_alerts_waiting"] == 0
    assert metrics(watch)["fastflight_alerts_sent_total"] == 1


def test_a_message_that_the_target_refuses_is_dropped_and_counted(watches: Any) -> None:
    watch = watches(SILENT)
    watch.refuses = "it refuses the message"
    watch.wait(100)
    assert len(watch.bodies) == 1 and metrics(watch)["fastflight_alerts_dropped_total"] == 1


def test_after_a_restart_what_was_delivered_is_not_new_and_what_was_not_is_sent(watches: Any, tmp_path: Path) -> None:
    watch = watches(SILENT, CRASH, folder=tmp_path)
    watch.says(BOOM)
    watch.wait(70)
    assert len(watch.bodies) == 2
    watch.close()
    watch = watches(SILENT, CRASH, folder=tmp_path, start=80)
    assert watch.wait(100) == []
    watch.fails = "no route"
    watch.wait(5, b"x\n")
    watch.close()
    watch = watches(SILENT, CRASH, folder=tmp_path, start=190)
    assert [body["text"] for body in watch.bodies] == ["lab-0 is heard again, after 3 min"]
    assert watch.wait(250, b"x\n") == ["lab-0 has not crashed again for 5 min, after 1 crash"]


def test_rules_change_while_the_server_runs(watches: Any, tmp_path: Path) -> None:
    watch = watches(SILENT, folder=tmp_path)
    watch.wait(65)
    watch.apply(SILENT, CRASH)
    watch.says(BOOM)
    assert sorted(watch.wait(15)) == [
        "lab-0 crashed: ValueError: boom at main.py:5 in read",
        "lab-0 is heard again, after 66 s",
    ]
    watch.fails = "no route"
    watch.wait(65)
    watch.apply(AlertRule(AlertTarget(argv=("other",)), silent=60))
    watch.fails = ""
    (text,) = watch.wait(3)
    assert text.startswith("lab-0 has been silent for ")
    assert len(watch.kept.load("alert message", dict)) == 0 and len(watch.kept.load("alert", dict)) == 1


def test_devices_of_others_and_devices_that_are_gone_have_no_alerts(watches: Any, tmp_path: Path) -> None:
    watch = watches(AlertRule(TARGET, "lab-1", silent=60), devices=2, folder=tmp_path)
    watch.wait(65)
    assert len(watch.bodies) == 1
    watch.inventory.remove("lab-1").close()
    assert watch.wait(GONE_SECONDS + 2) == [] and watch.kept.load("alert", dict) == {}


@pytest.mark.parametrize(("lasting", "silent"), [(False, False), (True, True)])
def test_the_time_of_requests_is_no_silence_and_that_of_a_terminal_is(
    watches: Any, lasting: bool, silent: bool
) -> None:
    watch = watches(SILENT)
    lock = watch.inventory.device("lab-0")._lock
    asyncio.run(lock.aacquire("ada", 1.0, lasting=lasting))
    assert watch.wait(65) == ["lab-0 has been silent for 1 min (held by ada)"] * silent
    lock.release()
    assert watch.wait(65) == ["lab-0 has been silent for 1 min"] * (not silent)


def test_too_many_messages_for_a_target_that_fails_are_dropped(watches: Any) -> None:
    watch = watches(SILENT)
    watch.fails = "no route"
    alert = {"text": "x", "time": "2026-11-30T03:00:00+00:00"}
    watch.kept.save(watch.outboxes.add([(TARGET, alert)] * (MAX_WAITING + 5), 0))
    figures = metrics(watch)
    assert (figures["fastflight_alerts_waiting"], figures["fastflight_alerts_dropped_total"]) == (MAX_WAITING, 5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.5 s"), (62, "62 s"), (60, "1 min"), (300, "5 min"), (3600, "1 h"), (12_000, "3 h 20 min")]
    + [(187_200, "2 d 4 h"), (0, "0 s")],
)
def test_a_length_of_time_is_readable(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
