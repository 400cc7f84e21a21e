"""Which of a source's functions serves a request, and what the catalog knows."""

from __future__ import annotations

import pytest

from fastflight.errors import RequestError
from fastflight.service import Catalog
from fastflight_benchmark import mock
from fastflight_benchmark.mock import Mock
from tests.support.function_source import FunctionSource


def test_both_modes_of_a_source_that_has_both() -> None:
    assert mock.SOURCE.function("read", "sync") == ("sync", mock.SOURCE.read)
    assert mock.SOURCE.function("read", "async") == ("async", mock.SOURCE.aread)
    assert mock.SOURCE.function("write", "sync") == ("sync", mock.SOURCE.write)
    assert mock.SOURCE.function("write", "async") == ("sync", mock.SOURCE.write)


def test_a_source_with_one_mode_serves_all_requests_in_it() -> None:
    only_sync = FunctionSource(Mock, read=mock.SOURCE.read)
    assert only_sync.function("read", "async") == ("sync", mock.SOURCE.read)
    only_async = FunctionSource(Mock, aread=mock.SOURCE.aread)
    assert only_async.function("read", "sync") == ("async", mock.SOURCE.aread)


def test_what_a_source_does_not_support() -> None:
    for doing, done in (("read", "read"), ("write", "written"), ("exchange", "exchanged")):
        with pytest.raises(RequestError, match=f"type: mock cannot be {done}"):
            FunctionSource(Mock).function(doing, "sync")


def test_a_catalog_keeps_its_sources_by_wire_name() -> None:
    catalog = Catalog()
    catalog.add(mock.SOURCE)
    assert catalog.names == ["mock"]
    assert catalog.source_of(Mock()) is mock.SOURCE
    assert list(catalog) == [mock.SOURCE]
    with pytest.raises(ValueError, match="two sources"):
        catalog.add(mock.SOURCE)
