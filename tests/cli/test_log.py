"""What the commands that run until told to stop write to stderr."""

from __future__ import annotations

import json
import os
import sys

import pytest
import structlog

from fastflight.cli import screen
from fastflight.cli.log import log_to_stderr


@pytest.mark.parametrize(("debug", "told"), [(False, ["info"]), (True, ["debug", "info"])])
def test_details_are_logged_where_they_are_asked_for(
    debug: bool, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr(as_json=True, debug=debug)
    log = structlog.get_logger("test")
    log.debug("relay", reads=100)
    log.info("relayed")
    assert [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()] == told


@pytest.mark.parametrize("as_json", [False, True])
def test_a_traceback_has_no_values_of_variables(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(authorization: str) -> None:
        raise RuntimeError(f"not expected of {len(authorization)}")

    log_to_stderr(as_json=as_json)
    try:
        fail("Bearer ff_" + "".join(["se", "cret"]))
    except RuntimeError:
        structlog.get_logger("test").exception("request failed")
    said = capsys.readouterr().err
    assert "not expected of 16" in said and "in fail" in said.replace('"name": "fail"', "in fail")
    assert "ff_secret" not in said


@pytest.mark.skipif(os.name != "posix", reason="a pipe that nobody reads is another error there")
@pytest.mark.parametrize("how", ["log", "complaint"])
def test_who_says_something_goes_on_when_nobody_reads_it(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind `2>&1 | tee` when that was ended: a background thread would end with its next log line.

    It can be closed, too: Python does that as it ends, and made what it still held the exit code 120.
    """
    read, write = os.pipe()
    os.close(read)
    gone = open(write, "w")
    monkeypatch.setattr(sys, "stderr", gone)
    log_to_stderr(as_json=True)
    for _ in range(2):
        if how == "log":
            structlog.get_logger("test").warning("a device failed")
        else:
            screen.complain("stopping")
    gone.close()
