"""One NATS server for the tests of a module, with an empty store for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.log.engines import JetStreamEngine


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JetStreamEngine]:
    with JetStreamEngine.started(tmp_path_factory.mktemp("nats")) as engine:
        yield engine


@pytest.fixture
def engine(started: JetStreamEngine) -> JetStreamEngine:
    started.clear()
    return started
