"""`LivePlot`: a moving plot of the numbers that a device prints, in a notebook.

`display(client.live("demo"))` draws until `seconds` are over, the device is gone, or the cell is interrupted. Numbers
are found as on the live page: in lines of JSON and CSV. A gap in the output is a gap in the lines of the plot.

One thread reads; the thread that displays draws what has arrived, so that an interrupt ends the plot at once and slow
drawing does not slow down reading. Both are over when the cell is. With `await client.live("demo")` a thread draws, and
other tasks of the event loop run.
"""

from __future__ import annotations

import asyncio
import re
import threading
import warnings
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from textwrap import fill
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fastflight.client import call
from fastflight.client.notebook import Content, Show, is_notebook, new_display, visible
from fastflight.concurrency.offload import off_loop, unbroken
from fastflight.errors import FastFlightError, RequestError, Stopped, quantity
from fastflight.extras import needs
from fastflight.gap import Why
from fastflight.service.requests import DeviceSession
from fastflight.tables.columns import Columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fastflight.client.connection import ServerConnection
    from fastflight.client.stream import RowStream
    from fastflight.client.validation import Note

# How often the plot is drawn anew.
DRAW_SECONDS = 0.25
# The most milliseconds that output waits at the server, to be sent with more of it.
FLUSH_MS = 100
# How long the end of a plot waits for its reader, after the stream was cancelled.
LEAVE_SECONDS = 2.0
# Points that are kept, the newest ones: a minute of a board that prints 300 lines a second.
MAX_POINTS = 20_000
# Columns that are drawn below each other.
MAX_DRAWN = 8
# Inches.
WIDTH, ROW_HEIGHT, MARGIN_HEIGHT = 8.0, 1.5, 0.8
DPI = 100
# Columns that hold a time or count lines always grow: a plot of them says nothing. As on the live page.
CLOCK = re.compile(
    r"(ms|us|ns|ts|seq|seqno|sequence|millis|micros"
    r"|(ticks|time|timestamp|uptime|epoch|datetime|elapsed)(_?(s|ms|us|ns|sec|seconds|utc|unix))?)",
    re.IGNORECASE,
)


def live_plot(
    connection: ServerConnection,
    device: str,
    columns: Sequence[str] | None,
    seconds: float | None,
    window: float,
) -> LivePlot:
    """Return the plot of a device. It asks for nothing before it is displayed. `RequestError` for bad arguments."""
    with needs("plot", "`live`"):
        import matplotlib  # noqa: F401
    request = call.build(
        DeviceSession, device=device, since_seconds=window, limit_seconds=seconds, flush_ms=FLUSH_MS, reconnect=True
    )
    return LivePlot(partial(connection.stream, request), device, columns, window)


class LivePlot:
    """What `client.live` returns. Display it in a notebook, or let it be the last line of a cell.

    A plot that is displayed holds the event loop until its end. `await` it to let other tasks run.
    """

    def __init__(
        self, open_stream: Callable[[], RowStream], device: str, columns: Sequence[str] | None, window: float
    ) -> None:
        self._open = open_stream
        self._device = device
        self._columns = columns
        self._window = window

    def __repr__(self) -> str:
        return f"<a live plot of {self._device}: display it in a notebook. On a terminal, use `fastflight tail`>"

    def _ipython_display_(self) -> None:
        show = new_display()
        if is_notebook():
            self.draw(show)
        else:
            show({"text/plain": repr(self)})

    def __await__(self) -> Generator[Any, None, None]:
        if not is_notebook():
            raise RequestError("this is no notebook", where="live", hint="On a terminal, use `fastflight tail`")
        return self.adraw(new_display()).__await__()

    def draw(self, show: Show, every: float = DRAW_SECONDS) -> None:
        """Draw until the stream ends, or a `KeyboardInterrupt`. Raises the error that ended the stream.

        `show` is called with each picture, in place of the one before. `every` is in seconds.
        """
        with self._open() as stream:
            numbers = Numbers(self._device, stream, self._columns, self._window)
            numbers.start()
            with suppress(KeyboardInterrupt):
                while not numbers.ended.wait(every):
                    show(numbers.picture())
            numbers.stop()
            show(numbers.picture())
        if numbers.error is not None:
            raise numbers.error

    async def adraw(self, show: Show, every: float = DRAW_SECONDS) -> None:
        """As `draw`, until the stream ends or the task is cancelled."""
        with await off_loop(self._open, discard=lambda stream: stream.cancel()) as stream:
            numbers = Numbers(self._device, stream, self._columns, self._window)
            numbers.start()
            try:
                while not numbers.ended.is_set():
                    await asyncio.sleep(every)
                    show(await off_loop(numbers.picture))
            finally:
                await unbroken(off_loop(numbers.stop))
                show(numbers.picture())
        if numbers.error is not None:
            raise numbers.error


class Numbers:
    """The newest numbers of a device, of the last `window` seconds.

    `read` collects them, here or in a thread (`start`); `picture` draws them.
    """

    def __init__(self, device: str, stream: RowStream, wanted: Sequence[str] | None, window: float) -> None:
        self.ended: threading.Event = threading.Event()
        self.error: FastFlightError | None = None
        self._device = device
        self._stream = stream
        self._wanted = wanted
        self._window = window
        self._columns = Columns()
        # None is a gap.
        self._points: deque[list[float | None] | None] = deque(maxlen=MAX_POINTS)
        self._lines = 0
        # The next bytes may continue a line whose beginning is missing.
        self._is_inside_line = True
        self._state = "live"
        self._changed = threading.Lock()
        self._reader = threading.Thread(target=self.read, name="fastflight-live", daemon=True)

    def start(self) -> None:
        """Collect numbers in a thread, until `stop`."""
        self._reader.start()

    def stop(self) -> None:
        """End the stream, and wait for what it still sends."""
        self._stream.cancel()
        self._reader.join(LEAVE_SECONDS)

    def read(self) -> None:
        """Collect numbers until the stream ends. An error of the stream is stored in `error`."""
        try:
            for batch, note in self._stream.pieces():
                with self._changed:
                    self._add(batch, note)
            self._state = str(self._stream.summary.get("ended", "ended"))
        except Stopped:
            self._state = "stopped"
        except FastFlightError as error:
            self.error = error
            self._state = "failed"
        finally:
            self.ended.set()

    def _add(self, batch: pa.RecordBatch, note: Note | None) -> None:
        if note is not None and "gap" in note:
            self._points.append(None)
            self._columns.cut()
            self._is_inside_line = note["gap"]["why"] == Why.NOT_READ  # after the others the device begins anew
        for row in batch.to_pylist():
            if row["direction"] == "rx" and row["time"] is not None:
                self._feed(int(row["time"].timestamp() * 1e9), row["data"])

    def _feed(self, time_ns: int, data: bytes) -> None:
        if self._is_inside_line:
            _, end, data = data.partition(b"\n")
            self._is_inside_line = not end
        lines, points = self._columns.feed([(time_ns, data)])
        self._lines += lines
        self._points.extend(points)
        oldest = time_ns / 1e6 - 1000 * self._window
        while self._points and (self._points[0] is None or (self._points[0][0] or 0) < oldest):
            self._points.popleft()

    def picture(self) -> Content:
        """Draw the numbers so far: a PNG, and a line of text for notebooks that show no pictures."""
        with self._changed:
            found = self._columns.names
            names = self.drawn()
            series = [self.series(name) for name in names]
            gaps = sum(point is None for point in self._points)
            newest = self._columns.line
        nothing = f"the newest line has no number: {newest}" if newest else "nothing was printed yet"
        if found:
            nothing = f"choose one of the columns {', '.join(found)}"
        title = f"{self._device}: {quantity(self._lines, 'line')}, {quantity(gaps, 'gap')}, {self._state}"
        # For this module alone, and not for a block: other threads may change the filters meanwhile.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning, re.escape(__name__))
        file = BytesIO()
        draw(visible(title), [*map(visible, names)], series, visible(nothing)).savefig(file, format="png")
        return {"image/png": b64encode(file.getvalue()).decode(), "text/plain": visible(title)}

    def drawn(self) -> list[str]:
        if self._wanted is not None:
            return [name for name in self._wanted if name in self._columns.names]
        return [name for name in self._columns.names if not CLOCK.fullmatch(name)][:MAX_DRAWN]

    def series(self, name: str) -> tuple[list[datetime], list[float]]:
        """Return the times and values of a column. A gap is a value that is not a number."""
        place = self._columns.names.index(name) + 1
        times: list[datetime] = []
        values: list[float] = []
        for point in self._points:
            if point is None:
                if times:
                    times.append(times[-1])
                    values.append(float("nan"))
            elif len(point) > place and (value := point[place]) is not None:
                times.append(datetime.fromtimestamp((point[0] or 0) / 1000, UTC))
                values.append(value)
        return times, values


def draw(
    title: str, names: Sequence[str], series: Sequence[tuple[list[datetime], list[float]]], nothing: str
) -> Figure:
    """Draw a plot for each of the `series`, below each other with one axis of times; if there is none, `nothing`."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    number = max(1, len(series))
    height = MARGIN_HEIGHT + ROW_HEIGHT * number
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    figure.suptitle(title, parse_math=False)
    # Fixed margins: it takes longer to compute them than to draw the plot.
    margins = {"left": 0.09, "right": 0.98, "bottom": 0.5 / height, "top": 1 - 0.6 / height, "hspace": 0.4}
    rows: Any = figure.subplots(number, sharex=True, squeeze=False, gridspec_kw=margins)[:, 0]
    for place, (name, (times, values)) in enumerate(zip(names, series, strict=True)):
        axes = rows[place]
        axes.plot(times, values, linewidth=1, color=f"C{place}")
        axes.set_title(name, loc="left", fontsize="medium", parse_math=False)
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.grid(alpha=0.3)
    if series:
        rows[-1].set_xlabel("time (UTC)")
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        rows[-1].xaxis.set_major_locator(locator)
        rows[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    else:
        rows[0].set_axis_off()
        rows[0].text(0.5, 0.5, fill(nothing, 100), ha="center", transform=rows[0].transAxes, parse_math=False)
    return figure
