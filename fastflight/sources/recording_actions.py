"""The actions on recordings: list them, and start and stop the recording of a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastflight.access.action import Action, Body, EmptyBody
from fastflight.access.identity import Identity
from fastflight.errors import RequestError
from fastflight.service.requests import DeviceName, Verb
from fastflight.sources.recording_status import as_result
from fastflight.sources.recordings import HINT, Recordings

Result = Mapping[str, Any]


class OnRecording(Body):
    """The device whose recording is started or stopped."""

    device: DeviceName


def recording_actions(recordings: Recordings | None) -> list[Action]:
    """Return the actions on recordings. With None, nothing is listed, and starting or stopping is a `RequestError`."""

    def required() -> Recordings:
        if recordings is None:
            raise RequestError("this server keeps no recordings", hint=HINT)
        return recordings

    def list_all(_: EmptyBody) -> Iterable[Result]:
        return [] if recordings is None else [as_result(status) for status in recordings.statuses()]

    def start(body: OnRecording) -> Iterable[Result]:
        return [{**as_result(required().start(body.device)), "folder": str(required().folder)}]

    def stop(body: OnRecording) -> Iterable[Result]:
        return [as_result(required().stop(body.device))]

    return [
        Action(
            "recordings",
            "All recordings: rows, bytes, numbers, times, state, damage.",
            EmptyBody,
            list_all,
            verb=None,
            shown=_if_visible,
        ),
        Action(
            "recording.start",
            "Record a device from now on, until the server ends. `folder`: where, on the server's machine.",
            OnRecording,
            start,
            verb=Verb.ADMIN,
        ),
        Action(
            "recording.stop",
            "Stop recording a device. The recorded rows stay.",
            OnRecording,
            stop,
            verb=Verb.ADMIN,
        ),
    ]


def _if_visible(identity: Identity, result: Result) -> Result | None:
    name = result["name"]
    return result if identity.sees(name) or identity.may(Verb.ADMIN, name) else None
