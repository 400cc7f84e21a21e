"""The fleet as one caller has it: which devices there are for them, and what of each they may know.

A view makes one message for all who look by it. What a device says is a session's to hear: a caller who may only read
its files is shown that it is there, and not what it says.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from fastflight.gateway.callers import Caller
from fastflight.gateway.page.columns import Point
from fastflight.service.requests import Verb

# Messages that wait for a viewer; then it has stalled, and they are not kept for it.
MAX_WAITING = 5
# What of the state of a device is shown.
STATE = ("url", "open", "holder", "recording", "trouble")

# By device: what it said, as it is shown, and points of its columns.
Said = Mapping[str, Mapping[str, Any]]
Points = Mapping[str, list[Point]]


class PageViewer:
    """One page: the messages that wait for it. Belongs to the gateway's loop."""

    def __init__(self) -> None:
        self.skipped = 0
        # The next message has to be one with everything.
        self.behind = True
        self._ended = False
        self._why: Exception | None = None
        self._waiting: deque[str] = deque()
        self._came = asyncio.Event()

    def offer(self, message: str) -> None:
        """Never waits. What a viewer does not take in time it does not get, and counts; it is `behind` then."""
        if len(self._waiting) >= MAX_WAITING:
            self.skipped += len(self._waiting) + 1
            self._waiting.clear()
            self.behind = True
            return
        self._waiting.append(message)
        self._came.set()

    def end(self, why: Exception | None = None) -> None:
        """No more will come."""
        self._ended = True
        self._why = why
        self._came.set()

    @property
    def waiting(self) -> int:
        """Messages that it has not taken yet."""
        return len(self._waiting)

    async def next(self) -> str | None:
        """The next message; None when no more will come. Raises why, if there was a reason."""
        while not self._waiting:
            if self._why is not None:
                raise self._why
            if self._ended:
                return None
            self._came.clear()
            await self._came.wait()
        return self._waiting.popleft()


class PageView:
    """What one caller is shown, and those who look."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.viewers: set[PageViewer] = set()
        # What the backend says of the devices that there are for this caller, and why it does not.
        self.state: Mapping[str, Mapping[str, Any]] = {}
        self.trouble = ""
        self._shown: dict[str, dict[str, Any]] = {}

    def end(self, why: Exception | None = None) -> None:
        """Its viewers get no more."""
        for viewer in self.viewers:
            viewer.end(why)

    def heard(self) -> list[str]:
        """The devices that are to be heard for it: no line is opened for one who may not hear what comes."""
        return [name for name in self.state if self._hears(name)]

    def tick(self, about: Mapping[str, Any], said: Said, silence: Mapping[str, Any], new: Points, all_: Points) -> None:
        """Make the message of this tick, and offer it. `silence` is what is shown of a device that says nothing."""
        changed: dict[str, dict[str, Any]] = {}
        shown: dict[str, dict[str, Any]] = {}
        for name, each in self.state.items():
            heard = self._hears(name)
            if heard and name not in said:
                continue
            now = {key: each.get(key) for key in STATE} | {"granted": self._granted(name)}
            shown[name] = now | dict(said[name] if heard else silence)
            if heard and shown[name]["last"] is None:
                shown[name]["last"] = each.get("last_data")  # before anybody looked
            old = self._shown.get(name, {})
            change = {key: value for key, value in shown[name].items() if key not in old or old[key] != value}
            if heard and new.get(name):
                change["points"] = new[name]
            if change:
                changed[name] = change
        self._shown = shown
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
            name: {**shown, "points": list(points[name]) if self._hears(name) else []}
            for name, shown in self._shown.items()
        }
        return json.dumps({"type": "all", **about, "devices": devices}, separators=(",", ":"))

    def _hears(self, name: str) -> bool:
        return self.caller.identity.may(Verb.SESSION, name)

    def _granted(self, name: str) -> list[str]:
        return [verb.value for verb in Verb if self.caller.identity.may(verb, name)]
