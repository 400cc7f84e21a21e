"""The lease of one name in a key-value bucket: a state machine without I/O and without a clock.

The bucket drops an entry `ttl` seconds after it was stored. Whoever creates the entry owns the name, and renews it by
updates that name the last revision. The caller sends what the methods return, and reports what became of it::

    lease = Lease(ttl=4.0)
    sent = lease.next(now)                        # a `Create` or an `Update`; None if nothing is due
    lease.stored(sent.number, revision)           # it was acknowledged, or was seen in the bucket
    lease.refused(sent.number)                    # another revision was there
    lease.unanswered(sent.number)                 # no answer in time: it may be stored, or not
    lease.release()                               # a `Delete`, or None if nothing is held

`now` is a monotonic clock of this process. **Before each write to the device, call `is_held(now)`.** It is true until
`ttl - margin` seconds after the newest acknowledged request was *sent*. The bucket got that request later than it was
sent, so the entry outlives the claim to it, whatever the clocks of the other computers say.

A request without an answer may have been stored. Its acknowledgement still counts when it comes late, with the time at
which it was sent. If a later request is refused because of it, the lease stays held until its time is up, and is
renewed again only if the lost acknowledgement arrives.
"""

from __future__ import annotations

from dataclasses import dataclass

# The bucket's time to live. Another server takes over after this time, and a board is to be back within 6 s.
TTL_SECONDS = 4.0
# The part of it in which a server no longer writes: for bytes on their way, and clocks that run at different rates.
MARGIN_SECONDS = 0.5
# From one request to the next. Two may be lost before writing has to stop.
RENEW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Create:
    """Create the entry. It fails if there is one."""

    number: int


@dataclass(frozen=True, slots=True)
class Update:
    """Replace the entry. It fails if its last revision is not `revision`."""

    number: int
    revision: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the entry. It fails if its last revision is not `revision`."""

    revision: int


class Lease:
    """One server's claim to one name. Requests are numbered from 1; one is under way at a time."""

    def __init__(self, ttl: float = TTL_SECONDS, margin: float = MARGIN_SECONDS, renew: float = RENEW_SECONDS) -> None:
        if not 0 < renew < ttl - margin < ttl:
            raise ValueError("needs 0 < renew < ttl - margin < ttl")
        self._lifetime = ttl - margin
        self._renew = renew
        # The revision of the newest request that is known to be stored: the fencing token. 0: none.
        self.revision = 0
        self._until = 0.0
        self._number = 0
        self._under_way = 0
        # When each request was sent whose result is not known.
        self._sent: dict[int, float] = {}
        self._due = 0.0
        # A renewal was refused, and an earlier one without an answer may be the reason.
        self._in_doubt = False

    def is_held(self, now: float) -> bool:
        """Whether this server may write to the device now."""
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

    def release(self) -> Delete | None:
        """Give the name up at once. Return the request that lets others have it without waiting."""
        revision = self.revision
        self._lose()
        return Delete(revision) if revision else None

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
