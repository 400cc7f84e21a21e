"""`fastflight doctor`: show what works, and what to do about the problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from fastflight.app.device_address import name_and_url
from fastflight.cli import doctor_checks, drawing, screen
from fastflight.cli.doctor_checks import Subject
from fastflight.cli.exit_codes import REFUSED, report_errors
from fastflight.cli.options import AsJson, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options

MARKS = {"ok": ("ok", "green"), "note": ("--", "yellow"), "problem": ("!!", "bold red")}


@with_server_options
def doctor(
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="[NAME=]URL", help="A device to check; may be given again."),
    ] = None,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Check this installation, its serial ports, the given devices and the server.

    Devices are opened directly, so stop a server that uses them.
    The exit code is 1 if the simulated board or a given device has a problem.
    """
    subjects: list[Subject] = []
    with report_errors():
        for subject in _subjects(device or [], interrupt, server):
            subjects.append(subject)
            if not json:
                _show(subject)
    healthy = all(subject.healthy for subject in subjects if subject.asked)
    if json:
        results = [{**asdict(subject), "healthy": subject.healthy} for subject in subjects]
        screen.as_json({"healthy": healthy, "subjects": results})
    if not healthy:
        raise typer.Exit(REFUSED)


def _subjects(devices: list[str], interrupt: bool, server: Server) -> Iterator[Subject]:
    yield doctor_checks.installation()
    yield doctor_checks.device("simulated board", "sim:", asked=True, interrupt=False)
    named = dict(name_and_url(text, text) for text in devices)
    for name, url in named.items():
        yield doctor_checks.device(name, url, asked=True, interrupt=interrupt)
    identified, unidentified = doctor_checks.serial_ports()
    others = {port: text for port, text in identified.items() if port not in named.values()}
    for port, description in others.items():
        yield doctor_checks.device(description, port, asked=False, interrupt=interrupt)
    if not others and not named:
        listed = ", ".join(unidentified)
        result = f"no board found; ports without a known device: {listed}" if unidentified else "none found"
        advice = f"Plug a board in, or name one: --device {unidentified[0] if unidentified else 'socket://host:port'}"
        yield Subject("serial ports", False, [doctor_checks.Finding("note", result, advice)])
    yield doctor_checks.server(server.location, server.credentials())


def _show(subject: Subject) -> None:
    drawing.show(drawing.cell(subject.name, "bold"))
    for finding in subject.findings:
        mark, style = MARKS[finding.level]
        text = Text("  ").append(mark, style=style).append_text(drawing.cell(f"  {finding.what}"))
        if finding.advice:
            text.append("\n").append_text(drawing.cell(f"      {finding.advice}", "dim"))
        drawing.show(text)
