"""A headless Chromium for tests of the page: where it is, and what it needs to run as root in a container.

`chromium()` raises `TargetMissing` where there is none, as the firmware targets do. It is driven by playwright, whose
wheel brings its driver; no browser is downloaded.
"""

from __future__ import annotations

import os
import shutil

from tests.support.targets import TargetMissing

VARIABLE = "FASTFLIGHT_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# A container has no user namespaces for its sandbox, and little shared memory.
OPTIONS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


def chromium() -> str:
    """The browser's path."""
    named = os.environ.get(VARIABLE)
    for name in (named,) if named else NAMES:
        if found := shutil.which(name):
            return found
    raise TargetMissing("chromium", named or NAMES[0], f"Install Debian's chromium, or set {VARIABLE} to a browser")
