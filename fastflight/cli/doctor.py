"""`fastflight doctor`: what works, and what to do about the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from fastflight.app.settings import DEVICE_NAME
from fastflight.cli import checkup, screen
from fastflight.cli.asking import HERE, Server, asking
from fastflight.cli.checkup import Subject
from fastflight.cli.exits import REFUSED, told_in_one_line
from fastflight.cli.target import AsJson, Interrupt

MARKS = {"ok": ("ok", "green"), "note": ("--", "yellow"), "problem": ("!!", "bold red")}


@asking
def doctor(
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="[NAME=]URL", help="A device to examine; may be given again."),
    ] = None,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = HERE,
) -> None:
    """Examine this installation, its serial ports and the given devices.

    Devices are opened directly, so stop a server that has them. Exit code 1 if the installation or a given device
    has a problem.
    """
    seen: list[Subject] = []
    with told_in_one_line():
        for subject in _subjects(device or [], interrupt, server):
            seen.append(subject)
            if not json:
                _show(subject)
    healthy = all(subject.healthy for subject in seen if subject.asked)
    if json:
        subjects = [{**asdict(subject), "healthy": subject.healthy} for subject in seen]
        screen.as_json({"healthy": healthy, "subjects": subjects})
    if not healthy:
        raise typer.Exit(REFUSED)


def _subjects(devices: list[str], interrupt: bool, server: Server) -> Iterator[Subject]:
    yield checkup.installation()
    yield checkup.device("simulated board", "sim:", asked=True, interrupt=False)
    given = dict(_named(text) for text in devices)
    for name, url in given.items():
        yield checkup.device(name, url, asked=True, interrupt=interrupt)
    known, bare = checkup.serial_ports()
    others = {port: text for port, text in known.items() if port not in given.values()}
    for port, description in others.items():
        yield checkup.device(description, port, asked=False, interrupt=interrupt)
    if not others and not given:
        found = f"no board found; ports without a known device: {', '.join(bare)}" if bare else "none found"
        advice = f"Plug a board in, or name one: --device {bare[0] if bare else 'socket://host:port'}"
        yield Subject("serial ports", False, [checkup.Finding("note", found, advice)])
    yield checkup.server(server.location, server.credentials)


def _named(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    return (name, url) if equals and DEVICE_NAME.fullmatch(name) else (text, text)


def _show(subject: Subject) -> None:
    screen.show(screen.cell(subject.name, "bold"))
    for finding in subject.findings:
        mark, style = MARKS[finding.level]
        text = Text("  ").append(mark, style=style).append_text(screen.cell(f"  {finding.what}"))
        if finding.advice:
            text.append("\n").append_text(screen.cell(f"      {finding.advice}", "dim"))
        screen.show(text)
