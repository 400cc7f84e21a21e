"""Decides when alerts begin and end, from the rules of the fleet file. No I/O, except that `kept` saves them.

A rule says of a device that it is silent, that a column of what it prints is too high or too low, or that its program
crashes. An alert begins when that becomes true, and is over when it is no longer true; of crashes, when there was none
for the quiet time of the rule. Each is one message. Within the quiet time after a message nothing begins: what would
have is counted, and reported after that time if it is still true. While crashes go on, a further message comes after
the quiet time, then after twice that, and so on.

Messages are saved together with the state that they come from, before they are sent (`alert_outbox`). So a server that
starts again sends what was not delivered, and does not report again what was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import structlog

from fastflight.device import Device, Inventory
from fastflight.gap import Gap
from fastflight.publish.alert_outbox import Outboxes
from fastflight.publish.alert_targets import AlertTarget
from fastflight.publish.printed_columns import PrintedColumns
from fastflight.sources.crashes import CrashGroup
from fastflight.sources.kept_values import KeptValues
from fastflight.sources.row_layout import Layout
from fastflight.transport.chunk_buffer import Chunk

log = structlog.get_logger(__name__)

KIND = "alert"
QUIET_SECONDS = 300.0
# The longest time between two messages about crashes that go on.
MAX_WAIT_SECONDS = 86_400.0
# Two looks are a second apart. More than this between them is a clock that was set, or a computer that slept.
MAX_STEP_SECONDS = 10.0
# An alert of a device that this server has not had for so long is forgotten: the device was removed, or has moved.
GONE_SECONDS = 600.0
# After so many looks with numbers, none of which was of the column of a rule, that is logged.
MISSING_LOOKS = 60
MAX_TEXT_CHARACTERS = 2000
# A board may print its prompt so long after a traceback.
PROMPT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One rule: `silent` (seconds), `crash`, or a `column` that is `above` or `below` a number for `hold` seconds.

    `device` is a glob. `quiet` is the quiet time in seconds.
    """

    target: AlertTarget
    device: str = "*"
    silent: float | None = None
    crash: bool = False
    column: str = ""
    above: float | None = None
    below: float | None = None
    hold: float = 0.0
    quiet: float = QUIET_SECONDS

    @property
    def text(self) -> str:
        """The condition in words."""
        if self.crash:
            return "crash"
        if self.silent is not None:
            return f"silent for {format_seconds(self.silent)}"
        return f"{self.column} {self.limit}" + (f" for {format_seconds(self.hold)}" if self.hold else "")

    @property
    def limit(self) -> str:
        """The limit of a column in words."""
        limits = {"above": self.above, "below": self.below}
        return " or ".join(f"{name} {value:g}" for name, value in limits.items() if value is not None)

    @property
    def key(self) -> str:
        """Identifies the rule over restarts."""
        return f"{self.device}\n{self.text}\n{self.target.key}"

    def exceeds(self, value: float) -> bool:
        """Whether a value of the column is beyond a limit."""
        return (self.above is not None and value > self.above) or (self.below is not None and value < self.below)


@dataclass(slots=True)
class _Alert:
    """The state of one rule for one device, as it is saved. Times are in ns since 1970.

    `is_on`: the condition is true, since `since`. `is_reported`: a message has said so. `last`: the newest crash.
    `count`: crashes of this alert, or how often it became true since the last message. `reported`: how many of these
    the messages have counted. `quiet_until`: no message before this time. `wait`: seconds until the next message about
    crashes.
    """

    is_on: bool = False
    is_reported: bool = False
    since: int = 0
    last: int = 0
    count: int = 0
    reported: int = 0
    quiet_until: int = 0
    wait: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Watched:
    """What is known of one device: how long it was silent, and since when each rule's column is beyond its limit."""

    device: Device
    columns: PrintedColumns
    heard: int | None = None
    silent: float = 0.0
    beyond: dict[str, int] = field(default_factory=dict)
    # How often, in a row, numbers came without the column of a rule.
    missing: Counter[str] = field(default_factory=Counter)


class Alerts:
    """Watches the devices of `inventory`. Use it in one thread.

    `layout_of` returns how the lines of a device become rows. `outboxes` get the messages.
    """

    def __init__(
        self,
        inventory: Inventory,
        layout_of: Callable[[Device], Layout | None],
        kept: KeptValues,
        outboxes: Outboxes,
    ) -> None:
        self._inventory = inventory
        self._layout_of = layout_of
        self._kept = kept
        self._outboxes = outboxes
        self._rules: Sequence[AlertRule] = ()
        self._alerts: dict[tuple[str, str], _Alert] = {}
        self._watched: dict[str, _Watched] = {}
        self._gone: dict[tuple[str, str], int] = {}
        self._polled = 0

    def load(self) -> None:
        """Read the alerts that an earlier server has kept."""
        for key, alert in self._kept.load(KIND, _Alert).items():
            rule, _, device = key.rpartition("\n")
            self._alerts[rule, device] = alert

    def apply(self, rules: Sequence[AlertRule]) -> None:
        """Use these rules from now on. Alerts of other rules are forgotten, without a message."""
        named = {rule.key: rule for rule in rules}  # each once
        self._rules = [*named.values()]
        self._forget([key for key in self._alerts if key[0] not in named])

    def poll(self, now: int, heard: Mapping[str, Sequence[Chunk | Gap]], crashes: Iterable[CrashGroup]) -> None:
        """Look at the devices at the time `now`. `heard` and `crashes` are what came since the last call."""
        if not self._rules:
            return
        step = min(max(0.0, (now - self._polled) / 1e9), MAX_STEP_SECONDS) if self._polled else 0.0
        self._polled = now
        new: dict[str, list[CrashGroup]] = {}
        for crash in crashes:
            new.setdefault(crash.device, []).append(crash)
        changes: dict[tuple[str, str], Any] = {}
        messages: list[tuple[AlertTarget, dict[str, Any]]] = []
        for device in self._inventory.devices():
            rules = [rule for rule in self._rules if fnmatchcase(device.name, rule.device)]
            watched = self._watch(device, step)
            values = watched.columns.feed(heard.get(device.name, ())) if any(rule.column for rule in rules) else {}
            for rule in rules:
                alert = self._alerts.setdefault((rule.key, device.name), _Alert())
                before = alert.is_on, alert.count
                if rule.crash:
                    is_true = _look_for_crashes(rule, alert, new.get(device.name, []), now)
                elif rule.silent is not None:
                    is_true = _look_for_silence(rule, alert, watched, now)
                else:
                    is_true = _look_at_column(rule, alert, watched, values, now)
                if (state := _decide(rule, alert, is_true, now)) is not None:
                    messages.append((rule.target, _message(rule, alert, watched, state, now)))
                    if state == "over" or not rule.crash:
                        alert.count = 0
                    alert.reported = alert.count
                if state is not None or (alert.is_on, alert.count) != before:
                    changes[KIND, f"{rule.key}\n{device.name}"] = asdict(alert)
        self._kept.save({**changes, **self._outboxes.add(messages, now)})
        self._forget_gone(now)

    def _watch(self, device: Device, step: float) -> _Watched:
        """Return what is known of a device, after `step` seconds more."""
        watched = self._watched.get(device.name)
        if watched is None or watched.device is not device:
            watched = _Watched(device, PrintedColumns(lambda: self._layout_of(device)))
            self._watched[device.name] = watched
        heard = device.tap.heard_ns
        if heard != watched.heard:
            watched.heard, watched.silent = heard, 0.0
        elif not device.in_request:  # a program that a request has stopped says nothing
            watched.silent += step
        return watched

    def _forget_gone(self, now: int) -> None:
        present = set(self._inventory.names())
        self._watched = {name: watched for name, watched in self._watched.items() if name in present}
        self._gone = {key: self._gone.get(key, now) for key in self._alerts if key[1] not in present}
        self._forget([key for key, since in self._gone.items() if now - since > GONE_SECONDS * 1e9])

    def _forget(self, keys: Iterable[tuple[str, str]]) -> None:
        keys = list(keys)
        for key in keys:
            del self._alerts[key]
        if keys:
            self._kept.save({(KIND, f"{rule}\n{device}"): None for rule, device in keys})


def _look_for_crashes(rule: AlertRule, alert: _Alert, crashes: Sequence[CrashGroup], now: int) -> bool:
    if crashes:
        newest = crashes[-1]
        alert.last, alert.count = now, alert.count + len(crashes)
        alert.details = {
            "error": newest.error,
            "place": newest.place,
            "traceback": newest.text[-MAX_TEXT_CHARACTERS:],
            "seq": newest.seq,
        }
        if not alert.is_on:
            alert.since = now
    return bool(alert.last) and 0 <= now - alert.last < rule.quiet * 1e9


def _look_for_silence(rule: AlertRule, alert: _Alert, watched: _Watched, now: int) -> bool:
    assert rule.silent is not None
    is_true = watched.silent >= rule.silent or (alert.is_on and watched.heard is None)
    if is_true and not alert.is_on:
        alert.since, alert.count = now - round(watched.silent * 1e9), alert.count + 1
    return is_true


def _look_at_column(
    rule: AlertRule, alert: _Alert, watched: _Watched, values: Mapping[str, list[float]], now: int
) -> bool:
    key, name = rule.key, watched.device.name
    watched.missing[key] = 0 if rule.column in values else watched.missing[key] + bool(values)
    if watched.missing[key] == MISSING_LOOKS:
        log.warning("an alert names a column without numbers", device=name, column=rule.column, numbers=list(values))
    has_jumped = False
    for value in values.get(rule.column, ()):
        if rule.exceeds(value):
            watched.beyond.setdefault(key, now)
            has_jumped = not rule.hold
        elif value == value:  # NaN says nothing
            watched.beyond.pop(key, None)
        if rule.exceeds(value) or not has_jumped:
            alert.details = {"column": rule.column, "value": value}
    since = watched.beyond.get(key)
    if not values.get(rule.column) and alert.is_on and since is None:
        return True  # no value has come since the server started again
    is_true = has_jumped or (since is not None and now - since >= rule.hold * 1e9)
    if is_true and not alert.is_on:
        alert.since, alert.count = since or now, alert.count + 1
    return is_true


def _decide(rule: AlertRule, alert: _Alert, is_true: bool, now: int) -> str | None:
    """Change the state of an alert. Return what there is to report: it `begins`, `goes on`, is `over`, or nothing."""
    was_on, alert.is_on = alert.is_on, is_true
    if not is_true:
        was_reported, alert.is_reported = alert.is_reported, False
        if rule.crash and was_on:
            alert.quiet_until = now
        return "over" if was_on and was_reported else None
    # Not for longer, if the clock was set back.
    alert.quiet_until = min(alert.quiet_until, now + round(max(alert.wait, rule.quiet) * 1e9))
    if now < alert.quiet_until or (alert.is_reported and not (rule.crash and alert.count > alert.reported)):
        return None
    alert.wait = min(2 * alert.wait, MAX_WAIT_SECONDS) if alert.is_reported else rule.quiet
    alert.quiet_until = now + round(alert.wait * 1e9)
    state = "goes on" if alert.is_reported else "begins"
    alert.is_reported = True
    return state


def _message(rule: AlertRule, alert: _Alert, watched: _Watched, state: str, now: int) -> dict[str, Any]:
    device = watched.device
    seconds = max(0.0, ((alert.last if rule.crash else now) - alert.since) / 1e9)
    kind = "crash" if rule.crash else "silent" if rule.silent is not None else "column"
    return {
        "id": f"{kind} {device.name} {alert.since} {state} {max(1, alert.count)}",
        "alert": kind,
        "state": state,
        "device": device.name,
        "rule": rule.text,
        "text": f"{device.name} {_text(rule, alert, state, seconds)}{_circumstances(rule, watched, state)}",
        "time": _iso(now),
        "since": _iso(alert.since),
        "seconds": round(seconds, 1),
        "count": max(1, alert.count),
        **alert.details,
    }


def _text(rule: AlertRule, alert: _Alert, state: str, seconds: float) -> str:
    length, details = format_seconds(seconds), alert.details
    if rule.crash:
        crashes = f"{alert.count} crashes in {length}" if alert.count > 1 else "1 crash"
        if state == "over":
            return f"has not crashed again for {format_seconds(rule.quiet)}, after {crashes}"
        newest = f"{details['error']} at {details['place']}"
        if state == "goes on":
            return f"has crashed again, {crashes}: {newest}"
        return f"crashed: {newest}" + (f" ({crashes})" if alert.count > 1 else "")
    again = f", {alert.count} times since the last message" if alert.count > 1 else ""
    if rule.silent is not None:
        return f"is heard again, after {length}" if state == "over" else f"has been silent for {length}{again}"
    value = f"has {rule.column} {details['value']:g}"
    if state == "over":
        return f"{value}, no longer {rule.limit}, after {length}"
    return f"{value}, {rule.limit}" + (f" for {length}" if rule.hold else "") + again


def _circumstances(rule: AlertRule, watched: _Watched, state: str) -> str:
    """Return what explains an alert: the line is lost, or somebody has the device. A dead program crashes no more."""
    device = watched.device
    if state == "over":
        is_dead = rule.crash and watched.silent >= rule.quiet - PROMPT_SECONDS
        return ", but has printed nothing since" if is_dead else ""
    return (f" ({device.trouble})" if device.trouble else "") + (f" (held by {device.holder})" if device.holder else "")


def _iso(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def format_seconds(seconds: float) -> str:
    """Return a length of time in words: `0.5 s`, `62 s`, `5 min`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 120 and seconds != 60:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == round(seconds) else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    for size, name, small, small_name in ((1440, "d", 60, "h"), (60, "h", 1, "min")):
        if minutes >= 2 * size or minutes == size:
            rest = minutes % size // small
            return f"{minutes // size} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{minutes} min"
