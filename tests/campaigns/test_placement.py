"""The short form of the campaign `placement`."""

from __future__ import annotations

from tests.campaigns.placement import simulate


def test_few_devices_move_when_servers_come_and_go() -> None:
    moves = simulate(devices=20_000, servers=20, changes=10)
    assert moves.holds, moves
    assert moves.died == moves.least_died
    assert moves.fullest < 1.2
