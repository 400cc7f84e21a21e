"""What others may use of the log."""

from __future__ import annotations

import fastflight.log


def test_every_name_is_there_and_in_order() -> None:
    assert fastflight.log.__all__ == sorted(fastflight.log.__all__, key=lambda name: (not name.isupper(), name))
    assert all(hasattr(fastflight.log, name) for name in fastflight.log.__all__)
