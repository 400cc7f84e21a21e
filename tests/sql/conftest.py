"""The engine over a board, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sql_engine import Sql, engine_over


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sql]:
    with engine_over(tmp_path_factory.mktemp("sql")) as made:
        yield made
