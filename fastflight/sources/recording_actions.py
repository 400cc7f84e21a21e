"""The actions on recordings: what there is, and switching the recording of a device on and off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from fastflight.access.action import Action, Body, EmptyBody
from fastflight.access.identity import Identity
from fastflight.errors import RequestError
from fastflight.service.requests import DeviceName, Verb
from fastflight.sources.default_recordings import DefaultRecordings
from fastflight.sources.recordings import HINT, Recordings, RecordingStatus

Result = Mapping[str, Any]


class OnRecording(Body):
    """The device whose traffic is meant."""

    device: DeviceName


def recording_actions(recordings: Recordings | DefaultRecordings | None) -> list[Action]:
    """The table's entries; for None, of a server that was told to keep nothing, they say so."""

    def there() -> Recordings | DefaultRecordings:
        if recordings is None:
            raise RequestError("this server keeps no recordings", hint=HINT)
        return recordings

    def listed(_: EmptyBody) -> Iterable[Result]:
        return [] if recordings is None else [_told(status) for status in recordings.statuses()]

    def start(body: OnRecording) -> Iterable[Result]:
        return [{**_told(there().start(body.device)), "folder": str(there().folder)}]

    def stop(body: OnRecording) -> Iterable[Result]:
        return [_told(there().stop(body.device))]

    return [
        Action(
            "recordings",
            "All recordings: rows, bytes, numbers, times, state, damage.",
            EmptyBody,
            listed,
            verb=None,
            shown=_seen,
        ),
        Action(
            "recording.start",
            "Record a device from now on, until the server ends. `folder`: where, on the server's computer.",
            OnRecording,
            start,
            verb=Verb.ADMIN,
        ),
        Action(
            "recording.stop",
            "Record a device no more; what was recorded is kept.",
            OnRecording,
            stop,
            verb=Verb.ADMIN,
        ),
    ]


def _seen(identity: Identity, result: Result) -> Result | None:
    name = result["name"]
    return result if identity.sees(name) or identity.may(Verb.ADMIN, name) else None


def _told(status: RecordingStatus) -> Result:
    times = {
        key: None if value is None else value.isoformat()
        for key, value in (("first_time", status.first_time), ("last_time", status.last_time))
    }
    return {**asdict(status), **times}
