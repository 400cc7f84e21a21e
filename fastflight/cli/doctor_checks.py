"""The checks of `fastflight doctor`: this installation, its serial ports, devices, and a server.

Each check returns a `Subject` with its findings, and advice about each problem. Devices are opened directly, without a
server, so that a result depends only on the line and the board.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa

import fastflight
from fastflight.app.device_address import device_address
from fastflight.cli import screen
from fastflight.client import Credentials, FastFlightClient
from fastflight.device import Capabilities, Device, Inventory, Session
from fastflight.errors import BusyError, FastFlightError, TransportTimeout
from fastflight.extras import conflicting_package
from fastflight.protocol import Conversation, Receive
from fastflight.transport import run
from fastflight.transport.identity import system_ports
from fastflight.transport.url import LINES, public_url

Level = Literal["ok", "note", "problem"]

# Much shorter than the time limit of a transfer: a server on this computer answers within milliseconds.
SERVER_SECONDS = 3.0
# Nothing else in this process uses the device, and a board answers at once unless it runs a program.
LEASE_SECONDS = 2.0
# A device that prints does so every few seconds.
LISTEN_SECONDS = 3.0
# Calls that are timed for the round trip. The fastest counts: the others also measure the scheduler.
ROUND_TRIPS = 5
# Ways for a board to compute a file's digest, best first: the board's feature and its name for people.
DIGESTS = (("hashlib.sha256", "sha256"), ("binascii.crc32", "crc32"))


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check, and what to do about it."""

    level: Level
    what: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that was checked. `asked`: its health decides the exit code of `doctor`."""

    name: str
    asked: bool
    findings: list[Finding] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return all(finding.level != "problem" for finding in self.findings)


def installation() -> Subject:
    """Return the versions that belong in a bug report, and whether another package is in the way."""
    versions = f"fastflight {fastflight.__version__}, Python {platform.python_version()}, pyarrow {pa.__version__}"
    findings = [Finding("ok", f"{versions}, {platform.system()} {platform.machine()}")]
    if (conflict := conflicting_package()) is not None:
        findings.append(Finding("note", *conflict))
    return Subject("installation", True, findings)


def serial_ports() -> tuple[dict[str, str], list[str]]:
    """Return the serial ports with an identified device (path to description), and the paths of the others."""
    ports = system_ports()
    known = {port.device: port.description for port in ports if port.hwid != "n/a"}
    return known, sorted(port.device for port in ports if port.device not in known)


def device(name: str, url: str, *, asked: bool, interrupt: bool) -> Subject:
    """Open a device and try the features that reading and writing files need."""
    visible_url = public_url(url)
    subject = Subject(visible_url if name == url else f"{name} ({visible_url})", asked)
    try:
        with Inventory({name: url}, parse=device_address) as inventory:
            opened = inventory.device(name)
            if opened.kind == LINES:
                subject.findings.append(_check_lines(opened))
                return subject
            with opened.lease("doctor", timeout=LEASE_SECONDS, interrupt=interrupt) as session:
                subject.findings.extend(_check_board(session))
    except FastFlightError as error:
        subject.findings.append(Finding("problem", error.what, _advice(error, url)))
    return subject


def _check_board(session: Session) -> Iterator[Finding]:
    info, capabilities = session.info(), session.capabilities
    yield Finding("ok", f"raw REPL: {info.version or 'MicroPython'} on {info.machine or info.platform or 'a board'}")
    if info.raw_paste:
        yield Finding("ok", "raw paste")
    else:
        yield Finding("note", "no raw paste: code is sent in the slower raw mode")
    yield _check_file_system(session)
    yield _check_digest(capabilities)
    yield Finding("ok", f"round trip {_round_trip(session) * 1000:.1f} ms")
    if info.free_memory:
        yield Finding(
            "ok", f"{screen.size(info.free_memory)} of memory free: blocks of {capabilities.block_bytes} bytes"
        )
    if info.storage_free is not None and info.storage_bytes is not None:
        level: Level = "ok" if info.storage_free else "problem"
        text = f"{screen.size(info.storage_free)} of {screen.size(info.storage_bytes)} of storage free"
        yield Finding(level, text, "" if info.storage_free else "Remove files before writing new ones")


def _check_lines(device: Device) -> Finding:
    """Listen to a device that only prints. Nothing is sent to it."""
    try:
        with device.line("doctor", timeout=LEASE_SECONDS) as port:
            run(_receive(), port)
    except TransportTimeout:
        what = f"it has printed nothing within {LISTEN_SECONDS:g} s"
        return Finding("note", what, "Does it print by itself, and is the baud rate right?")
    return Finding("ok", "it prints; nothing was sent to it, because its address has kind=lines")


def _receive() -> Conversation[bytes]:
    return (yield Receive(LISTEN_SECONDS))


def _check_file_system(session: Session) -> Finding:
    try:
        entries = len(session.list("/"))
    except FastFlightError as error:
        return Finding("problem", f"file system: {error.what}", error.hint)
    return Finding("ok", f"file system: {'1 entry' if entries == 1 else f'{entries} entries'} at the top")


def _check_digest(capabilities: Capabilities) -> Finding:
    for feature, name in DIGESTS:
        if capabilities.has(feature):
            return Finding("ok", f"digest: {name}")
    return Finding("note", "no digest on the board: written files are verified by reading them back")


def _round_trip(session: Session) -> float:
    """Return the shortest time, in seconds, in which the board ran an empty statement."""
    times = []
    for _ in range(ROUND_TRIPS):
        began = time.perf_counter()
        session.exec("pass")
        times.append(time.perf_counter() - began)
    return min(times)


def _advice(error: FastFlightError, url: str) -> str:
    if isinstance(error, BusyError):
        return (
            "Stop its program with --interrupt, or wait until it ends. Is it a board with MicroPython, and is the baud "
            "rate right? If it only prints, add ?kind=lines to its address"
        )
    if isinstance(error, TransportTimeout):
        return (
            "Is it a board with MicroPython, and is the baud rate right? If a program runs on it, give --interrupt or "
            "reset the board"
        )
    holders = ", ".join(_holders(url))
    return f"{error.hint}. Open in: {holders}" if holders else error.hint


def _holders(url: str) -> list[str]:
    """Return the programs that have a port open: on Linux only, and programs of other users only for root."""
    port = Path(url.removeprefix("serial://").partition("?")[0])
    if not port.is_char_device():
        return []
    names = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = [link.readlink() for link in (process / "fd").iterdir()]
            if int(process.name) != os.getpid() and port.resolve() in files:
                names.append(f"{(process / 'comm').read_text().strip()} (process {process.name})")
        except OSError:
            continue
    return names


def server(location: str, credentials: Credentials) -> Subject:
    """Check whether a server answers, and list its devices. `asked` is False: no server need be running."""
    subject = Subject(f"server {location}", False)
    try:
        with FastFlightClient(location, timeout=SERVER_SECONDS, credentials=credentials) as client:
            status = client.health().get("status")
            names = ", ".join(device.name for device in client.devices()) or "none"
        subject.findings.append(Finding("ok", f"{status}; devices: {names}"))
    except FastFlightError as error:
        subject.findings.append(Finding("note", error.what, error.hint))
    return subject
