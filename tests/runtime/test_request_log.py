"""A line for each request: which are written, and where."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import capture_logs

from fastflight.errors import DeviceException, DeviceFull, FileMissing, RequestError
from fastflight.runtime.request_log import RequestLog


def ended(request_log: RequestLog, error: BaseException | None = None) -> None:
    request_log.ended(
        "device.file",
        trace=None,
        device="demo",
        identity="ada",
        outcome="finished" if error is None else "failed",
        seconds=0.5,
        error=error,
    )


def test_where_no_log_is_set_up_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    request_log = RequestLog()
    ended(request_log)
    ended(request_log, DeviceFull("no room"))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (None, "debug"),
        (RequestError("no such key"), "debug"),
        (FileMissing("no such file"), "debug"),
        (DeviceException("raised", kind="NameError", traceback=""), "debug"),
        (DeviceFull("no room"), "info"),
        (ZeroDivisionError(), "info"),
    ],
)
def test_what_was_no_fault_of_the_client_is_told_without_detail(error: BaseException | None, level: str) -> None:
    structlog.configure()
    with capture_logs() as lines:
        ended(RequestLog(), error)
    assert [(line["log_level"], line["event"]) for line in lines] == [(level, "request ended")]
