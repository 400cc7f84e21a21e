"""Sends the messages of alerts, at least once. A message is kept until its target has it, over restarts too.

Messages for a target that come together are sent as one, and there are at least `PAUSE_SECONDS` between two, so that
many alerts are few messages. After a failure the same is tried again, at growing intervals. What a target refuses for
ever, and the oldest of too many, is dropped, logged and counted.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import structlog
from prometheus_client.metrics_core import Metric

from fastflight.errors import FastFlightError
from fastflight.publish.alert_targets import AlertTarget, body_of
from fastflight.runtime.metrics import family
from fastflight.sources.kept_values import KeptValues

log = structlog.get_logger(__name__)

KIND = "alert message"
PAUSE_SECONDS = 10.0
FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 300.0
# The most alerts in one message, and the most that wait for one target.
MAX_TOGETHER = 50
MAX_WAITING = 1000

# Sends a message, as `alert_targets.deliver` does.
Send = Callable[[AlertTarget, bytes], "concurrent.futures.Future[str]"]


@dataclass(frozen=True, slots=True)
class _Saved:
    """An alert that waits, and the key of its target."""

    target: str
    alert: dict[str, Any]


@dataclass(slots=True)
class _Outbox:
    """The alerts that wait for one target, by key and in order. Times are in ns since 1970."""

    target: AlertTarget
    waiting: dict[str, dict[str, Any]] = field(default_factory=dict)
    not_before: int = 0
    retry: float = 0.0
    sending: tuple[list[str], concurrent.futures.Future[str]] | None = None
    sent: int = 0
    dropped: int = 0


class Outboxes:
    """Sends to the targets of `apply`. Use it in one thread; any thread may ask for `metrics`."""

    def __init__(self, kept: KeptValues, send: Send) -> None:
        self._kept = kept
        self._send = send
        self._outboxes: Mapping[str, _Outbox] = {}
        self._number = 0

    def load(self) -> None:
        """Read what an earlier server has not delivered. Call it after the first `apply`."""
        lost = []
        for key, saved in self._kept.load(KIND, _Saved).items():
            if (outbox := self._outboxes.get(saved.target)) is not None:
                outbox.waiting[key] = saved.alert
            else:
                lost.append(key)
        self._drop(lost, "no rule names their target any more")

    def apply(self, targets: Iterable[AlertTarget]) -> None:
        """Use these targets from now on. What waits for others is dropped."""
        old, new = self._outboxes, {}
        for target in targets:
            new[target.key] = old.get(target.key) or _Outbox(target)
            new[target.key].target = target  # its password may be another one
        self._outboxes = new
        gone = [key for name, outbox in old.items() if name not in new for key in outbox.waiting]
        self._drop(gone, "no rule names their target any more")

    def add(self, messages: Sequence[tuple[AlertTarget, dict[str, Any]]], now: int) -> dict[tuple[str, str], Any]:
        """Add alerts. Return what to save with the state that they come from, before the next `poll`."""
        changes: dict[tuple[str, str], Any] = {}
        for target, alert in messages:
            outbox = self._outboxes[target.key]
            self._number += 1
            key = f"{now:020d} {self._number:06d}"
            outbox.waiting[key] = alert
            changes[KIND, key] = asdict(_Saved(target.key, alert))
            if len(outbox.waiting) > MAX_WAITING:
                busy = outbox.sending[0] if outbox.sending is not None else []
                oldest = next(each for each in outbox.waiting if each not in busy)
                del outbox.waiting[oldest]
                changes[KIND, oldest] = None
                outbox.dropped += 1
        return changes

    def poll(self, now: int) -> None:
        """Note what was sent, and send what is due at the time `now`."""
        self.settle(now)
        for outbox in self._outboxes.values():
            # Not later, if the clock was set back.
            outbox.not_before = min(outbox.not_before, now + round(LAST_RETRY_SECONDS * 1e9))
            if outbox.sending is None and outbox.waiting and now >= outbox.not_before:
                keys = list(outbox.waiting)[:MAX_TOGETHER]
                body = body_of([outbox.waiting[key] for key in keys], now)
                outbox.sending = keys, self._send(outbox.target, body)

    def settle(self, now: int) -> None:
        """Note what was sent until the time `now`."""
        for outbox in self._outboxes.values():
            if outbox.sending is not None and outbox.sending[1].done():
                self._finish(outbox, now)

    def wait(self, seconds: float) -> None:
        """Wait until what is being sent has been sent, for at most `seconds`. Call `settle` next."""
        concurrent.futures.wait([each.sending[1] for each in self._outboxes.values() if each.sending], seconds)

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of all targets."""
        found = [((each.target.label,), each) for each in self._outboxes.values()]
        yield family("fastflight_alerts_sent_total", ((of, each.sent) for of, each in found))
        yield family("fastflight_alerts_dropped_total", ((of, each.dropped) for of, each in found))
        yield family("fastflight_alerts_waiting", ((of, len(each.waiting)) for of, each in found))
        yield family("fastflight_alerts_failing", ((of, int(each.retry > 0)) for of, each in found))

    def _finish(self, outbox: _Outbox, now: int) -> None:
        """Handle the result of what was sent."""
        assert outbox.sending is not None
        (keys, sent), outbox.sending = outbox.sending, None
        label = outbox.target.label
        try:
            refusal = sent.result()
        except Exception as error:  # the edge of a task: whatever it is, it is tried again
            reason = str(error) if isinstance(error, FastFlightError) else f"unexpected {type(error).__name__}: {error}"
            if not outbox.retry:
                log.warning(
                    "alerts are not delivered, and will be sent again", to=label, alerts=len(keys), error=reason
                )
            outbox.retry = min(max(2 * outbox.retry, FIRST_RETRY_SECONDS), LAST_RETRY_SECONDS)
            outbox.not_before = now + round(outbox.retry * 1e9)
            return
        if outbox.retry:
            log.info("alerts are delivered again", to=label)
        outbox.retry, outbox.not_before = 0.0, now + round(PAUSE_SECONDS * 1e9)
        for key in keys:
            del outbox.waiting[key]
        if refusal:
            outbox.dropped += len(keys)
            self._drop(keys, refusal, to=label)
            return
        outbox.sent += len(keys)
        self._kept.save({(KIND, key): None for key in keys})

    def _drop(self, keys: Sequence[str], reason: str, to: str = "") -> None:
        if keys:
            log.warning("alerts are dropped", alerts=len(keys), reason=reason, **({"to": to} if to else {}))
            self._kept.save({(KIND, key): None for key in keys})
