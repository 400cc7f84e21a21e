"""The crashes of devices: tracebacks that they print, counted by error and place.

`Crashes.poll` looks once a second for tracebacks in what the devices of this server have sent since then, outside of
requests (`sources.tracebacks`). A device that has sent nothing costs a comparison of two numbers. Crashes of a device
that differ in nothing but the numbers of their message are one group. The groups are kept over restarts while
recordings are kept (`sources.kept_values`), else in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from prometheus_client.metrics_core import Metric

from fastflight.access.action import Action, EmptyBody, Result
from fastflight.access.identity import Identity
from fastflight.device import Device, Inventory
from fastflight.gap import Gap
from fastflight.runtime.metrics import device_labels, family
from fastflight.service.requests import Verb
from fastflight.sources.kept_values import KeptValues
from fastflight.sources.recorder import RECORDING
from fastflight.sources.tracebacks import Traceback, TracebackReader, without_numbers
from fastflight.transport.chunk_buffer import Chunk, TapReader

KIND = "crash"
# Groups of one device, and of all: those with the newest crashes. A text has some kilobytes.
MAX_DEVICE_GROUPS = 50
MAX_GROUPS = 2000
# A group without a crash for so long is dropped: the program was mended, or the board is gone.
MAX_DAYS = 30
DAY_NS = 86_400 * 10**9
# How often groups that are too old are dropped.
TIDY_NS = DAY_NS // 24

# Takes the name of a device and what it has sent since the last poll.
Listener = Callable[[str, Sequence[Chunk | Gap]], object]


@dataclass(frozen=True, slots=True)
class CrashGroup:
    """Crashes of one kind at one place of a device. `error`, `text` and `seq` are those of the newest.

    `seq` is the number of the first row of the traceback in the recording; None if the device was not recorded.
    """

    device: str
    place: str
    error: str
    text: str
    seq: int | None
    first_ns: int
    last_ns: int
    count: int = 1

    @property
    def key(self) -> str:
        """The same for all crashes of a group, and for no others."""
        return "\n".join((self.device, self.place, without_numbers(self.error)))

    def result(self) -> Result:
        """Return the group as the action `crashes` does. Times are in ISO 8601."""
        times = {"first_time": self.first_ns, "last_time": self.last_ns}
        return {
            **{name: datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat() for name, time_ns in times.items()},
            **{name: getattr(self, name) for name in ("device", "count", "error", "place", "seq", "text")},
        }


@dataclass(slots=True)
class _Watched:
    device: Device
    reader: TapReader
    tracebacks: TracebackReader


class Crashes:
    """The crashes of the devices of `inventory`. `poll` is for one thread; any thread may ask for the rest."""

    def __init__(self, inventory: Inventory, kept: KeptValues) -> None:
        self._inventory = inventory
        self._kept = kept
        self._watched: dict[str, _Watched] = {}
        # The newest last. A change replaces the dict, so that readers need no lock.
        self._groups: Mapping[str, CrashGroup] = {}
        self._summaries: Mapping[str, Mapping[str, Any]] = {}
        # Since the server began: crashes, and chunks that the tap had dropped before they were searched.
        self._counts: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._tidy_ns = 0

    def load(self) -> None:
        """Read the groups that an earlier server has kept."""
        found = sorted(self._kept.load(KIND, CrashGroup).values(), key=lambda each: each.last_ns)
        self._set({each.key: each for each in found})

    def poll(self, now_ns: int, heard: Listener = lambda name, items: None) -> list[CrashGroup]:
        """Look at what devices have sent. Return each new crash, as a group of one.

        `heard` gets what each of these devices has sent.
        """
        found: list[CrashGroup] = []
        watched: dict[str, _Watched] = {}
        for device in self._inventory.devices():
            each = self._watched.get(device.name)
            if each is None or each.device is not device:
                reader = device.tap.reader(since_ns=0, counts_missed=False)
                each = _Watched(device, reader, TracebackReader())
            watched[device.name] = each
            if device.tap.next_seq != each.reader.next_seq:
                items = each.reader.rest()
                self._missed[device.name] += sum(item.rows or 0 for item in items if isinstance(item, Gap))
                heard(device.name, items)
                found += [_crash(device, traceback) for traceback in each.tracebacks.feed(items)]
            elif each.tracebacks.is_inside:
                found += [_crash(device, traceback) for traceback in each.tracebacks.settle(now_ns)]
        self._watched = watched
        if found or now_ns >= self._tidy_ns:
            self._tidy_ns = now_ns + TIDY_NS
            self._counts.update(each.device for each in found)
            self._add(found, now_ns)
        return found

    def _add(self, found: Iterable[CrashGroup], now_ns: int) -> None:
        """Add crashes to their groups, drop groups that are too old or too many, and save the changes."""
        groups = dict(self._groups)
        for crash in found:
            old = groups.pop(crash.key, None)
            new = crash if old is None else replace(crash, first_ns=old.first_ns, count=old.count + 1)
            groups[crash.key] = new
        outdated = _outdated(groups.values(), now_ns)
        changes: dict[tuple[str, str], Any] = {
            (KIND, key): asdict(group) for key, group in groups.items() if self._groups.get(key) is not group
        }
        for key in outdated:
            del groups[key]
            changes[KIND, key] = None
        self._set(groups)
        self._kept.save(changes)

    def _set(self, groups: Mapping[str, CrashGroup]) -> None:
        summaries: dict[str, dict[str, Any]] = {}
        for group in groups.values():
            count = group.count + summaries.get(group.device, {"count": 0})["count"]
            newest = {"last": group.last_ns // 1_000_000, "error": group.error, "place": group.place}
            summaries[group.device] = {"count": count, **newest}
        self._groups, self._summaries = groups, summaries

    def groups(self) -> list[CrashGroup]:
        """Return all groups, the newest first."""
        return list(self._groups.values())[::-1]

    def summary(self, device: str) -> Mapping[str, Any] | None:
        """Return how often a device has crashed (`count`), and time (`last`, ms since 1970), error and place of the
        newest crash. None if it has not.
        """
        return self._summaries.get(device)

    def action(self) -> Action:
        """Return the action that lists the groups."""
        return Action(
            "crashes",
            "Tracebacks that devices have printed, by error and place: device, count, first_time, last_time, error, "
            "place, text, and seq of the newest in the recording.",
            EmptyBody,
            lambda _: [group.result() for group in self.groups()],
            verb=None,
            shown=_visible,
        )

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of the devices of this server."""
        names = self._inventory.names()
        labels = device_labels(names)
        yield family("fastflight_device_crashes_total", (((labels[name],), self._counts[name]) for name in names))
        yield family("fastflight_device_unsearched_total", (((labels[name],), self._missed[name]) for name in names))


def merged(results: Iterable[Result]) -> list[Result]:
    """Join the results of the action at several servers: a device that has moved has crashed at more than one."""
    found: dict[tuple[str, str, str], Result] = {}
    for each in results:
        key = str(each["device"]), str(each["place"]), without_numbers(str(each["error"]))
        if (other := found.get(key)) is None:
            found[key] = each
            continue
        newest = max(each, other, key=lambda group: str(group["last_time"]))
        first = min(str(each["first_time"]), str(other["first_time"]))
        found[key] = {**newest, "first_time": first, "count": int(each["count"]) + int(other["count"])}
    return sorted(found.values(), key=lambda each: str(each["last_time"]), reverse=True)


def _crash(device: Device, found: Traceback) -> CrashGroup:
    seq = found.seq if device.recording == RECORDING else None
    return CrashGroup(device.name, found.place, found.error, found.text, seq, found.time_ns, found.time_ns)


def _outdated(groups: Iterable[CrashGroup], now_ns: int) -> list[str]:
    """Return the keys of the groups that are too old or too many. `groups` has the newest last."""
    kept: Counter[str] = Counter()
    outdated = []
    for number, group in enumerate(reversed([*groups])):
        kept[group.device] += 1
        too_many = kept[group.device] > MAX_DEVICE_GROUPS or number >= MAX_GROUPS
        if too_many or now_ns - group.last_ns > MAX_DAYS * DAY_NS:
            outdated.append(group.key)
    return outdated


def _visible(identity: Identity, result: Result) -> Result | None:
    """A crash is output of the device, as its sessions are."""
    return result if identity.may(Verb.SESSION, str(result["device"])) else None
