"""The lease of a server's name, an entry of a bucket: a state machine without I/O and without a clock.

A server that creates the entry holds the lease, and renews it by updates that name the last revision. Other servers
replace the entry when they have seen no renewal of it for `ttl` seconds. The caller sends what the methods return, and
reports what became of it::

    lease = Lease(ttl=4.0)
    sent = lease.next(now)                        # a `Create` or an `Update`; None if nothing is due
    lease.stored(sent.number, revision)           # it was acknowledged, or was seen in the bucket
    lease.refused(sent.number)                    # another revision was there
    lease.unanswered(sent.number)                 # no answer in time: it may be stored, or not
    lease.release()                               # a `Release`, or None if nothing is held

`now` is a monotonic clock of this process. **Before each write to a device, call `is_held(now)`.** It is true until
`ttl - margin` seconds after the newest acknowledged request was *sent*. The others see that request later than it was
sent, so they wait longer than the lease is held, whatever the time of day of their computers is.

A request without an answer may have been stored. Its acknowledgement still counts when it comes late, with the time at
which it was sent. If a later request is refused because of it, the lease stays held until its time is up, and is
renewed again only if the lost acknowledgement arrives.
"""

from __future__ import annotations

from dataclasses import dataclass

# Another server takes over after this time without a renewal, and a board is to be back within 6 s.
TTL_SECONDS = 4.0
# The part of it in which a server no longer writes: for bytes on their way, and clocks that run at different rates.
MARGIN_SECONDS = 0.5
# From one request to the next. Two may be lost before writing has to stop.
RENEW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Create:
    """Create the entry, in place of one that has ended. It fails if there is another one."""

    number: int


@dataclass(frozen=True, slots=True)
class Update:
    """Replace the entry. It fails if its last revision is not `revision`."""

    number: int
    revision: int


@dataclass(frozen=True, slots=True)
class Release:
    """Mark the entry as ended. It fails if its last revision is not `revision`."""

    revision: int


class Lease:
    """One server's claim to its name. Requests are numbered from 1; one is under way at a time."""

    def __init__(self, ttl: float = TTL_SECONDS, margin: float = MARGIN_SECONDS, renew: float = RENEW_SECONDS) -> None:
        if not 0 < renew < ttl - margin < ttl:
            raise ValueError("needs 0 < renew < ttl - margin < ttl")
        self._lifetime = ttl - margin
        self._renew = renew
        # The revision of the newest request that is known to be stored. 0: none.
        self.revision = 0
        # The revision with which the lease began that is held, or was held last.
        self.term = 0
        self._until = 0.0
        self._number = 0
        self._under_way = 0
        # When each request was sent whose result is not known.
        self._sent: dict[int, float] = {}
        self._due = 0.0
        # A renewal was refused, and an earlier one without an answer may be the reason.
        self._in_doubt = False

    def is_held(self, now: float) -> bool:
        """Whether this server may write to its devices now."""
        return self.revision > 0 and now < self._until

    def next(self, now: float) -> Create | Update | None:
        """Return the request to send now; None if one is under way, or none is due."""
        if self.revision and now >= self._until:
            self._lose()
        if self._under_way or self._in_doubt or now < self._due:
            return None
        self._number += 1
        self._under_way = self._number
        self._sent[self._number] = now
        self._due = now + self._renew
        return Update(self._number, self.revision) if self.revision else Create(self._number)

    def stored(self, number: int, revision: int) -> None:
        """Request `number` is in the bucket with this revision. Acknowledgements may come late, twice or reordered."""
        sent = self._sent.get(number)
        if sent is None or revision <= self.revision:
            return
        if not self.revision:
            self.term = revision
        self.revision = revision
        self._until = sent + self._lifetime
        self._in_doubt = False
        self._sent = {each: at for each, at in self._sent.items() if each > number}
        self._end(number)

    def refused(self, number: int) -> None:
        """Request `number` met another revision: of another server, or of an own request without an answer."""
        if number not in self._sent:
            return
        del self._sent[number]
        self._end(number)
        if not self.revision:
            return
        if self._sent:
            self._in_doubt = True
        else:
            self._lose()

    def unanswered(self, number: int) -> None:
        """Request `number` got no answer in time. Its result may still be reported."""
        self._end(number)

    def release(self) -> Release | None:
        """Give the name up at once. Return the request that lets others go on without waiting."""
        revision = self.revision
        self._lose()
        return Release(revision) if revision else None

    def _end(self, number: int) -> None:
        if self._under_way == number:
            self._under_way = 0

    def _lose(self) -> None:
        """Forget everything: answers to earlier requests no longer count."""
        self.revision = 0
        self._until = 0.0
        self._under_way = 0
        self._sent = {}
        self._in_doubt = False
