"""The folders of this user, for files whose place no setting names. `RuntimeError` if the user has no home."""

from __future__ import annotations

from pathlib import Path

from platformdirs import PlatformDirs


def for_recordings() -> Path:
    """Return the default folder of recordings. They stay on this computer: no profile of the user moves with them."""
    return _in_home(PlatformDirs("fastflight", appauthor=False).user_data_path) / "recordings"


def for_settings() -> Path:
    """Return the folder of settings, such as tokens."""
    return _in_home(PlatformDirs("fastflight", appauthor=False, roaming=True).user_config_path)


def _in_home(path: Path) -> Path:
    if not path.is_absolute():  # `~` could not be replaced
        raise RuntimeError("this user has no home folder")
    return path
