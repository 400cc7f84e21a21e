"""Descriptors of a server: how many it takes, and what it says when there are none left."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from fastflight.cli import descriptors
from fastflight.runtime.process import has_descriptors
from fastflight.runtime.stream_registry import StreamRegistry

resource = pytest.importorskip("resource", reason="Windows has no such limit")

SECONDS = 60


@contextlib.contextmanager
def without_any() -> Iterator[None]:
    """This process may open no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(2)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_soft_limit_becomes_the_hard_one() -> None:
    code = (
        "import resource\n"
        "from fastflight.cli.descriptors import raise_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))\n"
        "raise_limit()\n"
        "raise_limit()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout == "(300, 300)\n"


def test_a_server_without_descriptors_is_overloaded_for_as_long() -> None:
    registry = StreamRegistry()
    with without_any():
        assert not has_descriptors()
        assert registry.state == "overloaded"
    assert has_descriptors()
    assert registry.state == "serving"


def test_a_shortage_is_told_once_and_not_again_within_a_minute() -> None:
    now, some = 0.0, True
    shortages = descriptors.ShortageLog(lambda: some, lambda: now)

    def told(seconds: float, has_some: bool) -> bool:
        nonlocal now, some
        now, some = now + seconds, has_some
        with capture_logs() as lines:
            shortages.look()
        return [line["log_level"] for line in lines] == ["warning"]

    assert not told(2, True)
    assert told(2, False)
    assert not told(100, False)  # the same shortage
    assert not told(2, True)
    assert told(2, False)
    assert not told(2, True)
    assert not told(2, False)  # another one, so soon
    assert not told(2, True)
    assert told(60, False)


def test_whoever_watches_leaves_no_thread() -> None:
    with descriptors.watched():
        pass
