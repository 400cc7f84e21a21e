"""What a notebook shows without code by its user: the devices of a client, and a bar while a long read runs.

Nothing here imports IPython: a notebook has imported it already.
"""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fastflight.client.answers import Device, device_of
from fastflight.errors import FastFlightError, quantity

if TYPE_CHECKING:
    from fastflight.client.connection import ServerConnection
    from fastflight.client.progress import Report

# What is displayed: content by MIME type.
Content = Mapping[str, str]
Show = Callable[[Content], None]
# A cell that shows a client does not wait longer for a server that is away.
DEVICES_SECONDS = 2.0
# Devices that are listed; a fleet can have thousands.
MAX_LISTED = 20
# A read that is over sooner shows no bar.
BAR_AFTER_SECONDS = 1.0
BAR_EVERY_SECONDS = 0.2
# What to type, for one device: the code, `client` and `{device}` in it, and what it gives.
NEXT = (
    ("client.ls({device})", "its files"),
    ("client.read({device}, '/FILE.csv').to_pandas()", "a file as a table"),
    ("client.live({device})", "a moving plot of the numbers that it prints"),
    ("client.exec({device}, 'print(1 + 1)').to_pandas()", "run code"),
)
NEXT_ASYNC = (
    ("await client.ls({device})", "its files"),
    ("await (await client.read({device}, '/FILE.csv')).to_pandas()", "a file as a table"),
    ("await client.live({device})", "a moving plot of the numbers that it prints"),
    ("await (await client.exec({device}, 'print(1 + 1)')).to_pandas()", "run code"),
)
NO_DEVICES = (("client.add_device('name', 'PORT')", "add a board; `fastflight ports` lists the serial ports"),)


def is_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def visible(text: str) -> str:
    """Return `text` for HTML or a plot, on one line: other characters than printable ones become a box."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def client_html(connection: ServerConnection, examples: Sequence[tuple[str, str]] = NEXT) -> str:
    """Return a client as HTML: its server, the devices, and what to type next; or why there is no answer."""
    where = f"<p>Server <code>{_escape(connection.location)}</code></p>"
    try:
        devices = [device_of(each) for each in connection.results("devices", b"{}", DEVICES_SECONDS)]
    except FastFlightError as error:
        return f"{where}<p><b>No answer:</b> {_escape(str(error))}</p>"
    rows = "".join(_device_row(each) for each in devices[:MAX_LISTED])
    more = len(devices) - MAX_LISTED
    return (
        where
        + (f"<table>{_row('th', 'device', 'url', 'state')}{rows}</table>" if rows else "<p>No devices.</p>")
        + (f"<p>and {more:,} more: <code>client.devices()</code></p>" if more > 0 else "")
        + _next(devices, examples)
    )


def _device_row(device: Device) -> str:
    state = [device.holder and f"in use by {device.holder}", device.recording]
    cells = (device.name, device.url, ", ".join(filter(None, ("open" if device.open else "not open", *state))))
    return _row("td", *map(_escape, cells))


def _row(tag: str, *cells: str) -> str:
    """Return a row of a table. `cells` are HTML."""
    return "<tr>" + "".join(f'<{tag} style="text-align: left">{cell}</{tag}>' for cell in cells) + "</tr>"


def _next(devices: Sequence[Device], examples: Sequence[tuple[str, str]]) -> str:
    name = repr(next((each.name for each in devices if each.open), devices[0].name if devices else ""))
    rows = (
        _row("td", f"<code>{_escape(code.replace('{device}', name))}</code>", _escape(what))
        for code, what in (examples if devices else NO_DEVICES)
    )
    return f"<p>Next:</p><table>{''.join(rows)}</table>"


def _escape(text: str) -> str:
    return html.escape(visible(text))


@contextmanager
def reading_bar(report: Report | None) -> Iterator[Report | None]:
    """Yield the report for a read in the block: that of the caller, or in a notebook one that shows a bar, or None."""
    if report is not None or not is_notebook():
        yield report
        return
    bar = Bar(new_display())
    complete = False
    try:
        yield bar.report
        complete = True
    finally:
        bar.end(complete=complete)


class Bar:
    """A bar for a read. `show` is called with what is to be shown in place of what was shown before."""

    def __init__(self, show: Show, clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._began = clock()
        self._due = self._began + BAR_AFTER_SECONDS
        self._is_shown = False
        self._rows = self._bytes = 0
        self._total: int | None = None

    def report(self, rows: int, size: int, total: int | None) -> None:
        """Take the counts so far, and show them when that is due. A `Report`."""
        self._rows, self._bytes, self._total = rows, size, total
        if self._clock() >= self._due:
            self._due = self._clock() + BAR_EVERY_SECONDS
            self._is_shown = True
            self._draw("" if total is None else f' max="{total}" value="{size}"')

    def end(self, *, complete: bool) -> None:
        """Show the last counts, if the bar was shown: as a full bar if `complete`, else as an empty one."""
        if self._is_shown:
            self._draw(f' max="1" value="{int(complete)}"', "" if complete else "stopped after ")

    def _draw(self, value: str, outcome: str = "") -> None:
        read = f"{quantity(self._rows, 'row')}, {_size(self._bytes)}"
        if self._total is not None:  # bytes of a file
            read = f"{_size(self._bytes)} of {_size(self._total)}"
        text = f"{outcome}{read} in {self._clock() - self._began:.0f} s"
        shown = f'<div><progress style="width: 20em"{value}></progress> {text}</div>'
        self._show({"text/html": shown, "text/plain": text})


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


def new_display() -> Show:
    """Return a function that displays content in the running cell, in place of what it has displayed before."""
    import IPython.display

    display: Any = IPython.display.display
    handle: Any = None

    def show(content: Content) -> None:
        nonlocal handle
        if handle is None:
            handle = display(content, raw=True, display_id=True)
        else:
            handle.update(content, raw=True)

    return show
