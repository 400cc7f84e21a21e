"""The actions of a server in a cluster: those about the cluster, and those whose results come from all servers.

Each asks the other servers for their own part, with an action of its own for that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from fastflight.access.action import Action, Body, EmptyBody, Result
from fastflight.app.cluster import ClusterMember
from fastflight.app.forwarding import OWN_FLIGHTS, FlightsBody, Unanswered
from fastflight.app.routes import UNOWNED
from fastflight.errors import TransportError
from fastflight.log import Extent
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.sources import Recordings
from fastflight.sources.crashes import merged
from fastflight.sources.recording_status import UNKNOWN, as_result, rows_of
from fastflight.transport.url import kind_of

# The actions by which servers ask each other for their own devices, recordings, crashes, and rows that wait for NATS.
OWN_DEVICES = "cluster.devices"
OWN_RECORDINGS = "cluster.recordings"
OWN_CRASHES = "cluster.crashes"
OWN_WAITING = "cluster.waiting"
# The action by which servers cancel each other's streams.
OWN_STREAMS = "cluster.cancel"


class CancelBody(Body):
    """The ticket of the streams to cancel, and whose they must be: None for all."""

    ticket: str
    identity: str | None = None


class ClusterActions:
    """Makes the actions of `member`. `recordings` and `registry` are the recordings and the streams of this server."""

    def __init__(self, member: ClusterMember, recordings: Recordings | None, registry: StreamRegistry) -> None:
        self._member = member
        self._everywhere = member.forwarding.everywhere
        self._recordings = recordings
        self._registry = registry

    def about_devices(self, local: Action) -> list[Action]:
        """Return the actions about devices and servers. `local` is the action `devices` of this server alone."""

        def own(_: EmptyBody) -> Iterable[Result]:
            return [{**each, "server": self._member.name} for each in local.run(EmptyBody())]

        def everywhere(_: EmptyBody) -> Iterable[Result]:
            results, unanswered = self._everywhere(OWN_DEVICES)
            found = {str(each["name"]): each for each in (*own(EmptyBody()), *results)}
            return [found.get(name) or self._unknown(name, unanswered) for name in self._member.names()]

        about = "The servers of the cluster, and the owner of each device."
        stored = (
            "The recorded rows of each device that wait to be stored in NATS, the time of the oldest, the copies of "
            "what NATS stores, and the servers that gave no answer."
        )
        flights = "The flights of devices that this server owns, as list_flights has them."
        waits = "The rows of each device recorded by this server that wait to be stored in NATS."
        return [
            replace(local, description=f"{local.description} server: its owner.", run=everywhere),
            Action(OWN_DEVICES, "The action `devices`, for the devices that this server owns.", EmptyBody, own),
            Action(
                OWN_STREAMS, "Ends the streams of a ticket at this server.", CancelBody, self._cancel_here, at_once=True
            ),
            Action(OWN_FLIGHTS, flights, FlightsBody, self._member.forwarding.own_flights),
            Action(OWN_WAITING, waits, EmptyBody, self._waiting_here),
            Action("cluster.status", about, EmptyBody, lambda _: [self._member.status()], at_once=True),
            Action("cluster.storage", stored, EmptyBody, self._storage),
        ]

    def about_crashes(self, local: Action) -> list[Action]:
        """Return the action `crashes`, with those at all servers. `local` is that of this server alone."""

        def everywhere(_: EmptyBody) -> Iterable[Result]:
            return merged([*local.run(EmptyBody()), *self._everywhere(OWN_CRASHES)[0]])

        own = replace(local, name=OWN_CRASHES, description="The action `crashes`, for what this server has seen.")
        return [replace(local, run=everywhere), own]

    def about_recordings(self, local: Action) -> list[Action]:
        """Return the action `recordings`, with the states at all servers. `local` is that of this server alone."""
        about = "The action `recordings`, for the recordings to which this server adds rows."
        recordings = self._recordings
        if recordings is None:
            own = replace(local, name=OWN_RECORDINGS, description=about)
            return [replace(local, run=lambda _: self._everywhere(OWN_RECORDINGS)[0]), own]

        def recorded(names: Iterable[str]) -> Iterable[Result]:
            return map(as_result, recordings.statuses(recordings.recorded(names)))

        def everywhere(_: EmptyBody) -> Iterable[Result]:
            asked = self._member.forwarding.asked(OWN_RECORDINGS)
            names = recordings.names()
            found = {str(each["name"]): each for each in recorded(names)}
            states, unanswered = asked()
            found.update((str(each["name"]), each) for each in states)
            for status in recordings.statuses([name for name in names if name not in found]):
                found[status.name] = self._kept(as_result(status), unanswered)
            return [found[name] for name in sorted(found)]

        own = replace(local, name=OWN_RECORDINGS, description=about, run=lambda _: recorded(recordings.names()))
        return [replace(local, run=everywhere), own]

    def cancel(self, ticket: bytes, identity: str | None) -> int:
        """Cancel the streams of a ticket at all servers, because a client may have followed a location.

        Return how many were cancelled. `TransportError` if none were, and a server gave no answer.
        """
        here = self._registry.cancel(ticket, identity)
        body = CancelBody(ticket=ticket.decode(), identity=identity).model_dump_json().encode()
        results, unanswered = self._everywhere(OWN_STREAMS, body)
        cancelled = here + sum(int(each["cancelled"]) for each in results)
        if unanswered and not cancelled:
            raise TransportError(f"the streams may be at a server without answer: {unanswered[0]}", where="cancel")
        return cancelled

    def _cancel_here(self, body: CancelBody) -> Iterable[Result]:
        return [{"cancelled": self._registry.cancel(body.ticket.encode(), body.identity)}]

    def _waiting_here(self, _: EmptyBody) -> Iterable[Result]:
        if self._recordings is not None:
            yield from (_waiting(name, extents) for name, extents in self._recordings.waiting().items())

    def _storage(self, _: EmptyBody) -> Iterable[Result]:
        results, unanswered = self._everywhere(OWN_WAITING)
        waiting = [*self._waiting_here(EmptyBody()), *results]
        oldest = (each for each in waiting if each["oldest"] is not None)
        return [
            {
                "waiting": {str(each["name"]): int(each["rows"]) for each in waiting},
                "oldest_waiting": {
                    str(each["name"]): {"time": each["oldest"], "seconds": each["seconds"]} for each in oldest
                },
                "replicas": self._member.replicas(),
                "unanswered": [asdict(each) for each in unanswered],
            }
        ]

    def _kept(self, status: Result, unanswered: Iterable[Unanswered]) -> Result:
        """Return the state of a recording to which no server that gave an answer adds rows."""
        silent = self._silent_owner(str(status["name"]), unanswered)
        return status if silent is None else {**status, "state": f"{UNKNOWN}: {silent}"}

    def _silent_owner(self, device: str, unanswered: Iterable[Unanswered]) -> Unanswered | None:
        """Return the owner of a device, if it is among the servers that gave no answer."""
        owner = self._member.owner(device)
        return next((each for each in unanswered if each.name == owner), None)

    def _unknown(self, device: str, unanswered: Iterable[Unanswered]) -> Mapping[str, Any]:
        """Return what there is to say of a device that no server owns, or whose owner gave no answer."""
        silent = self._silent_owner(device, unanswered)
        return {
            "name": device,
            "url": self._member.url(device),
            "kind": kind_of(self._member.url(device)),
            "open": False,
            "holder": None,
            "recording": None,
            "publishing": [],
            "trouble": str(silent) if silent is not None else self._member.why_gone(device) or UNOWNED,
            "last_data": None,
            "crashes": None,
            "server": None if silent is None else silent.name,
        }


def _waiting(name: str, extents: Sequence[Extent]) -> Result:
    """Return what waits of one recording: the rows, the time of the oldest, and its age by the clock that set it."""
    oldest = min((each.first_time for each in extents if each.first_time is not None), default=None)
    return {
        "name": name,
        "rows": rows_of(extents),
        "oldest": None if oldest is None else datetime.fromtimestamp(oldest / 1e6, UTC).isoformat(),
        "seconds": None if oldest is None else round(max(0.0, time.time() - oldest / 1e6), 3),
    }
