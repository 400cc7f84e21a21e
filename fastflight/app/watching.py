"""Watches what the devices of a server print, once a second, in one thread: crashes, and the rules of alerts."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prometheus_client.metrics_core import Metric

from fastflight.concurrency import Shard
from fastflight.concurrency.threads import PeriodicThread
from fastflight.device import Device, Inventory
from fastflight.gap import Gap
from fastflight.publish.alert_outbox import Outboxes
from fastflight.publish.alert_targets import AlertTarget, deliver
from fastflight.publish.alerts import AlertRule, Alerts
from fastflight.sources import Recordings
from fastflight.sources.crashes import Crashes
from fastflight.sources.kept_values import KeptValues
from fastflight.sources.row_layout import Layout
from fastflight.transport.chunk_buffer import Chunk

POLL_SECONDS = 1.0
# How long a server that ends waits for its last alerts to be delivered.
CLOSE_SECONDS = 2.0


class Watching:
    """Create it before devices are used, `start` it when the server is complete, and `close` it before they end."""

    def __init__(
        self,
        inventory: Inventory,
        recordings: Recordings | None,
        layout_of: Callable[[Device], Layout | None],
        rules: Sequence[AlertRule] = (),
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """`layout_of` returns how the lines of a device become rows. `clock` returns nanoseconds since 1970."""
        self._clock = clock
        self._recordings = recordings
        self._kept = KeptValues(self._folder)
        self.crashes = Crashes(inventory, self._kept)
        self._outboxes = Outboxes(self._kept, self._send)
        self._alerts = Alerts(inventory, layout_of, self._kept, self._outboxes)
        # The rules to use from the next look on; None if they are used already.
        self._new_rules: Sequence[AlertRule] | None = rules
        self._shard: Shard | None = None
        self._thread = PeriodicThread(self.poll, POLL_SECONDS, "watching")

    def start(self) -> None:
        """Begin to watch."""
        self.crashes.load()
        self._alerts.load()
        self._apply()
        self._outboxes.load()
        self._thread.start()

    def apply(self, rules: Sequence[AlertRule]) -> None:
        """Use these rules from the next look on. From any thread."""
        self._new_rules = rules

    def poll(self) -> None:
        """Look at what has come since the last call."""
        self._apply()
        now = self._clock()
        heard: dict[str, Sequence[Chunk | Gap]] = {}
        crashes = self.crashes.poll(now, heard.__setitem__)
        self._alerts.poll(now, heard, crashes)
        self._outboxes.poll(now)

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of crashes and alerts."""
        yield from self.crashes.metrics()
        yield from self._outboxes.metrics()

    def close(self) -> None:
        """End, after a last look."""
        self._thread.close()
        self.poll()
        self._outboxes.wait(CLOSE_SECONDS)
        self._outboxes.settle(self._clock())
        if self._shard is not None:
            self._shard.close(0.0)
        self._kept.close()

    def _apply(self) -> None:
        rules, self._new_rules = self._new_rules, None
        if rules is not None:
            self._alerts.apply(rules)
            self._outboxes.apply(rule.target for rule in rules)

    def _send(self, target: AlertTarget, body: bytes) -> concurrent.futures.Future[str]:
        if self._shard is None:
            self._shard = Shard("alerts").start()
        return self._shard.submit(deliver(target, body))

    def _folder(self) -> Path | None:
        return self._recordings.folder if self._recordings is not None and self._recordings.is_open else None
