"""The live page's messages for one caller: the devices that the caller may see, and what they may know of each.

A view makes one message for all its viewers. The output of a device is shown only to callers who may open its session.
Callers who may only read its files see the device, but not its output.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from fastflight.access.identity import Identity
from fastflight.service.requests import Verb
from fastflight.tables.columns import Point

# Messages that wait for a viewer. With more it has stalled, and they are dropped.
MAX_WAITING = 5
# Keys of a device's state that are shown.
STATE = ("url", "kind", "open", "holder", "recording", "trouble", "crashes")

# By device: the values that are shown of its output, and points of its columns.
Values = Mapping[str, Mapping[str, Any]]
Points = Mapping[str, list[Point]]


class PageViewer:
    """One open page, with the messages that wait for it. Belongs to the gateway's loop."""

    def __init__(self) -> None:
        self.skipped = 0
        # The next message must have everything.
        self.behind = True
        self._ended = False
        self._why: Exception | None = None
        self._waiting: deque[str] = deque()
        self._came = asyncio.Event()

    def offer(self, message: str) -> None:
        """Add a message without waiting. If too many wait, drop and count them all; the viewer is `behind` then."""
        if len(self._waiting) >= MAX_WAITING:
            self.skipped += len(self._waiting) + 1
            self._waiting.clear()
            self.behind = True
            return
        self._waiting.append(message)
        self._came.set()

    def end(self, why: Exception | None = None) -> None:
        """End the viewer: no more messages will come. `why` is raised at its reader."""
        self._ended = True
        self._why = why
        self._came.set()

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    async def next(self) -> str | None:
        """Return the next message; None when no more will come. Raises the error that `end` was given."""
        while not self._waiting:
            if self._why is not None:
                raise self._why
            if self._ended:
                return None
            self._came.clear()
            await self._came.wait()
        return self._waiting.popleft()


class PageView:
    """What one caller is shown, and the viewers of this caller."""

    def __init__(self, caller: Identity) -> None:
        self.caller = caller
        self.viewers: set[PageViewer] = set()
        # The backend's last report of the caller's devices, and why there is no newer one.
        self.state: Mapping[str, Mapping[str, Any]] = {}
        self.trouble = ""
        self._previous: dict[str, dict[str, Any]] = {}

    def end(self, why: Exception | None = None) -> None:
        """End all viewers."""
        for viewer in self.viewers:
            viewer.end(why)

    def devices_to_read(self) -> list[str]:
        """Return the devices whose output is read for this caller: those whose sessions the caller may open."""
        return [name for name in self.state if self._may_read(name)]

    def tick(
        self, about: Mapping[str, Any], values: Values, silence: Mapping[str, Any], new: Points, all_: Points
    ) -> None:
        """Make the message of this tick and offer it to the viewers. `silence`: values of a device that is not read."""
        changed: dict[str, dict[str, Any]] = {}
        current: dict[str, dict[str, Any]] = {}
        for name, each in self.state.items():
            is_read = self._may_read(name)
            if is_read and name not in values:
                continue
            now = {key: each.get(key) for key in STATE} | {"granted": self._granted(name)}
            current[name] = now | dict(values[name] if is_read else silence)
            if is_read and current[name]["last"] is None:
                current[name]["last"] = each.get("last_data")  # from before it was watched
            old = self._previous.get(name, {})
            change = {key: value for key, value in current[name].items() if key not in old or old[key] != value}
            if is_read and new.get(name):
                change["points"] = new[name]
            if change:
                changed[name] = change
        self._previous = current
        about = {**about, "trouble": self.trouble}
        message = json.dumps({"type": "tick", **about, "devices": changed}, separators=(",", ":"))
        whole: str | None = None
        for viewer in self.viewers:
            if viewer.behind:
                if whole is None:
                    whole = self._whole(about, all_)
                viewer.behind = False
                viewer.offer(whole)
            else:
                viewer.offer(message)

    def _whole(self, about: Mapping[str, Any], points: Points) -> str:
        devices = {
            name: {**device, "points": list(points[name]) if self._may_read(name) else []}
            for name, device in self._previous.items()
        }
        return json.dumps({"type": "all", **about, "devices": devices}, separators=(",", ":"))

    def _may_read(self, name: str) -> bool:
        return self.caller.may(Verb.SESSION, name)

    def _granted(self, name: str) -> list[str]:
        return [verb.value for verb in Verb if self.caller.may(verb, name)]
