"""Measures a relayed stream: logs times for every 100 reads at debug level, and one line when the stream ends."""

from __future__ import annotations

import time

import structlog

log = structlog.get_logger(__name__)

# Reads between two lines of the log.
READS = 100
# What the log lines call a MB: 6400 reads of 16 KB are 100 MB.
MB = 1024 * 1024


class Timing:
    """Counts the bytes and measures the time of one stream to `target`, from its creation to its end."""

    def __init__(self, target: str, *, detailed: bool) -> None:
        """`detailed`: each read is timed; call `detail` after each `read`."""
        self.detailed = detailed
        self._target = target
        self._began = time.perf_counter()
        self.reads = 0
        self.received = 0
        self.sent = 0
        self._since = [0, 0, 0, 0]

    def read(self, size: int) -> None:
        """Count a read of `size` bytes from the target."""
        self.reads += 1
        self.received += size

    def detail(self, start: int, read: int, packed: int, sent: int, size: int) -> None:
        """Add one read: when it started, returned, was packed and was sent, in ns of the performance counter."""
        since = self._since
        since[0] += read - start
        since[1] += packed - read
        since[2] += sent - packed
        since[3] += size
        if self.reads % READS == 0:
            log.debug(
                "relay",
                target=self._target,
                reads=READS,
                read_us=since[0] // 1000,
                pack_us=since[1] // 1000,
                send_us=since[2] // 1000,
                bytes=since[3],
                total=self.received,
            )
            self._since = [0, 0, 0, 0]

    def over(self, reason: str) -> None:
        """Log that the stream has ended."""
        log.info("relayed", target=self._target, ended=reason, received=self.summary(), sent_bytes=self.sent)

    def summary(self) -> str:
        """Return text such as `100MB in 2340ms (42.74 MB/s, 6400 reads)`; sizes under a MB are in bytes."""
        seconds = time.perf_counter() - self._began
        rate = self.received / MB / seconds if seconds else 0.0
        size = (
            f"{self.received / MB:.2f}".rstrip("0").rstrip(".") + "MB" if self.received >= MB else f"{self.received}B"
        )
        return f"{size} in {seconds * 1000:.0f}ms ({rate:.2f} MB/s, {self.reads} reads)"
