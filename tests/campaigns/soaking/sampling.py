"""Samples a server's process every few seconds, and estimates whether its memory grows."""

from __future__ import annotations

import contextlib
import itertools
import math
import stat
import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from fastflight.client import FastFlightClient
from fastflight.errors import FastFlightError

MB = 1e6
# Of samples so close in time each knows what the one before was: they are averaged to so many before a slope is taken.
BLOCKS = 30
# What a slope's interval is to hold with.
CONFIDENCE = 0.95
# Memory that grows by less is called flat: a day of it is about what a server has before its first client comes.
FLAT_MB_PER_HOUR = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """`seconds` since the first; memory, descriptors and threads of the process; tasks and streams by its `stats`.

    `compacted`: files that the recordings were compacted to by then; `compacting`: one more was being written.
    `stolen`: percent of the processors' time since the sample before that the host of a virtual machine gave to
    others; 0 where it does not say.
    """

    seconds: float
    rss_mb: float
    descriptors: int
    threads: int
    lasting_threads: int
    tasks: int
    streams: int
    disk_mb: float
    compacted: int = 0
    compacting: bool = False
    stolen: float = 0.0


@dataclass(frozen=True, slots=True)
class Slope:
    """MB per hour, with its confidence interval."""

    mb_per_hour: float
    low: float
    high: float

    @property
    def flat(self) -> bool | None:
        """Whether it is below what is called flat, by all of its interval; None where that reaches to both sides."""
        if self.high < FLAT_MB_PER_HOUR:
            return True
        return False if self.low > FLAT_MB_PER_HOUR else None


class Sampling:
    """A thread that samples every `interval` seconds, while the context lasts.

    What ends it before, as the end of the process does, is raised at the end of the context: samples that stop are no
    samples of the rest.
    """

    def __init__(self, pid: int, location: str, folder: Path, interval: float) -> None:
        self.samples: list[Sample] = []
        self._process = psutil.Process(pid)
        self._location = location
        self._folder = folder
        self._interval = interval
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampling")
        self._failed: Exception | None = None

    def take(self) -> Sample:
        """Take one sample. The client that asks `stats` has left when the process is looked at."""
        tasks = streams = pooled = -1
        try:
            with FastFlightClient(self._location) as client:
                told = client.stats()
            tasks = sum(shard["tasks"] for shard in told["shards"])
            streams = told["open"]
            pooled = told["threads"]["offload"] + told["threads"]["other"]
        except FastFlightError:
            pass  # it has no room for it just now
        files = list(_files(self._folder))
        with self._process.oneshot():
            threads = self._process.num_threads()
            compacted, compacting = compaction(name for name, _ in files)
            return Sample(
                round(time.monotonic() - self._began, 1),
                self._process.memory_info().rss / MB,
                self._process.num_fds(),
                threads,
                -1 if pooled < 0 else threads - pooled,
                tasks,
                streams,
                sum(size for _, size in files) / MB,
                compacted,
                compacting,
                getattr(psutil.cpu_times_percent(), "steal", 0.0),
            )

    def __enter__(self) -> Sampling:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._failed is not None and error is None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._over.wait(self._interval):
                self.samples.append(self.take())
        except Exception as error:
            self._failed = error


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield names and sizes."""
    for file in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it was compacted meanwhile
            if stat.S_ISREG((status := file.stat()).st_mode):
                yield file.name, status.st_size


def compaction(names: Iterable[str]) -> tuple[int, bool]:
    """Return how many Parquet files a store has, and whether another one is being written."""
    named = list(names)
    return sum(name.endswith(".parquet") for name in named), any(name.endswith(".parquet.new") for name in named)


def slope(samples: Sequence[Sample]) -> Slope:
    """Theil-Sen by season: the median of the slopes between all pairs of averaged samples that are alike.

    A step up and down again, of a large answer that was being sent, hardly moves it. Alike are those while recordings
    are compacted, and those while they are not: compacting takes much for minutes and gives it back, and where a run
    happens to begin and end in that is no growth. What a server keeps of it shows in both. (Hirsch and Slack 1984, with
    Sen's interval of 1968.)
    """
    points = _blocks(samples)
    seasons = [[(at, mb) for season, at, mb in points if season == each] for each in (False, True)]
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0]) * 3600
        for season in seasons
        for earlier, later in itertools.combinations(season, 2)
    )
    if not slopes:
        return Slope(math.nan, -math.inf, math.inf)
    pairs = len(slopes)
    z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    half = z * math.sqrt(sum(n * (n - 1) * (2 * n + 5) for n in map(len, seasons)) / 18)
    low, high = math.floor((pairs - half) / 2), math.ceil((pairs + half) / 2)
    return Slope(
        statistics.median(slopes),
        slopes[low] if low >= 0 else -math.inf,
        slopes[high] if high < pairs else math.inf,
    )


def _blocks(samples: Sequence[Sample]) -> list[tuple[bool, float, float]]:
    """Whether recordings were compacted, the second, and the MB, of about `BLOCKS` blocks of neighbours that are alike.

    A stretch that does not fill half a block is none: it would weigh as much as one.
    """
    size = max(1, len(samples) // BLOCKS)
    groups = []
    for _, alike in itertools.groupby(samples, key=lambda each: each.compacting):
        stretch = list(alike)
        blocks = round(len(stretch) / size)
        groups += [stretch[len(stretch) * n // blocks : len(stretch) * (n + 1) // blocks] for n in range(blocks)]
    return [
        (
            group[0].compacting,
            statistics.fmean(each.seconds for each in group),
            statistics.fmean(each.rss_mb for each in group),
        )
        for group in groups
    ]
