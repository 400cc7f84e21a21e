"""The environment of programs that are started for devices: this process's own, but for what is not theirs to know."""

from __future__ import annotations

import os

# The token that the user's commands show to servers (`fastflight.cli.asking`). A shell that exports it starts servers,
# too, and the program of a device may print all that it inherits to whoever may hear the device.
SECRETS = frozenset(("FASTFLIGHT_TOKEN",))


def inherited() -> dict[str, str]:
    """For `subprocess.Popen(env=...)`."""
    return {name: value for name, value in os.environ.items() if name not in SECRETS}
