"""Flipped bits between a client and a server with TLS: a typed error, or what was to come."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from fastflight.client import FastFlightClient
from fastflight.errors import TransportClosed
from tests.campaigns import flips
from tests.campaigns.flips import CONTENT, RIGHT, TYPED, WORKS, WRONG, FlippedLine, campaign
from tests.support.chaos import Fault, Kind, Way

FLIPS = 18
SEED = 1


def never(*_: object) -> bool:
    raise TransportClosed("gone")


def test_a_typed_error_that_leaves_half_a_file_is_wrong_and_so_is_one_that_nothing_struck(tmp_path: Path) -> None:
    untouched = Fault(Kind.FLIP, Way.OUT, 10**9, 0)
    with FlippedLine(tmp_path, tls=False) as line:
        assert line.struck(untouched, never) == (TYPED, "transport.closed", False)
        (line.board / "to.bin").write_bytes(CONTENT[:-1])
        assert line.struck(untouched, never) == (WRONG, "transport.closed", False)


class IdleWork:
    """Says that it has put a file."""

    def put_file(self, *_: object, **__: object) -> None:
        pass


def test_a_file_that_an_earlier_flip_has_put_is_not_taken_for_the_next_ones(tmp_path: Path) -> None:
    with FlippedLine(tmp_path, tls=False) as line:
        with FastFlightClient(line.server.location) as client:
            assert line.put(client)
        assert not line.put(cast(FastFlightClient, IdleWork()))


def test_what_goes_wrong_is_counted_also_where_nothing_struck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flips, "WORKS", {"rows": never})
    monkeypatch.setattr(FlippedLine, "struck", lambda line, fault, work: (WRONG, "", False))
    assert campaign(tmp_path / "plain", 2, SEED, tls=False) == {("rows", WRONG, ""): 2}


def test_a_flipped_bit_under_tls_is_a_typed_error(tmp_path: Path) -> None:
    found = campaign(tmp_path / "tls", FLIPS, SEED, tls=True)
    assert {result for _, result, _ in found} <= {RIGHT, TYPED}
    assert {name for name, result, _ in found if result == TYPED} == set(WORKS)
