"""Which of a source's functions serves a request, and what the catalog knows."""

from __future__ import annotations

import pytest

from fastflight.errors import RequestError
from fastflight.service import Catalog, SourceFunctions, dispatch
from fastflight.service.requests import Mock
from fastflight.sources import mock


def test_both_modes_of_a_source_that_has_both() -> None:
    assert dispatch.reader(mock.SOURCE) is mock.read
    assert dispatch.async_reader(mock.SOURCE) is mock.aread
    assert dispatch.writer(mock.SOURCE) is mock.write
    assert dispatch.async_writer(mock.SOURCE) is mock.awrite


def test_a_mode_that_was_not_registered_is_refused_with_the_one_that_was() -> None:
    only_sync = SourceFunctions(Mock, read=mock.read, write=mock.write)
    with pytest.raises(RequestError, match="mode: mock cannot be read with mode 'async'. Ask with mode 'sync'"):
        dispatch.async_reader(only_sync)
    with pytest.raises(RequestError, match="cannot be written with mode 'async'"):
        dispatch.async_writer(only_sync)
    only_async = SourceFunctions(Mock, aread=mock.aread)
    with pytest.raises(RequestError, match="Ask with mode 'async'"):
        dispatch.reader(only_async)


def test_what_cannot_be_written_at_all() -> None:
    with pytest.raises(RequestError, match="type: mock cannot be written"):
        dispatch.writer(SourceFunctions(Mock, read=mock.read))


def test_a_catalog_keeps_its_sources_by_wire_name() -> None:
    catalog = Catalog()
    catalog.add(mock.SOURCE)
    assert catalog.names == ["mock"]
    assert catalog.source_of(Mock()) is mock.SOURCE
    assert list(catalog) == [mock.SOURCE]
    with pytest.raises(ValueError, match="two sources"):
        catalog.add(mock.SOURCE)
