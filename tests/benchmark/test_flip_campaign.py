"""Flipped bits between a client and a server with TLS: a typed error, or what was to come."""

from __future__ import annotations

from pathlib import Path

from fastflight_benchmark.flip_campaign import RIGHT, TYPED, WORKS, campaign

FLIPS = 18
SEED = 1


def test_a_flipped_bit_under_tls_is_a_typed_error(tmp_path: Path) -> None:
    found = campaign(tmp_path / "tls", FLIPS, SEED, tls=True)
    assert {result for _, result, _ in found} <= {RIGHT, TYPED}
    assert {name for name, result, _ in found if result == TYPED} == set(WORKS)
