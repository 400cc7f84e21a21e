"""Arrow's own Flight clients in other languages, as `tests/interop/build` left them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

BUILT = Path(__file__).parents[2] / "build" / "interop"
JAVA = (
    "java",
    # A run of a second or two does not repay what the compiler and threads that collect garbage cost.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "-cp",
    f"{BUILT}/java/classes:{BUILT}/java/jars/*",
    "Main",
)
# Client: the tool that builds it, what the build leaves, and the command that runs it.
CLIENTS: dict[str, tuple[str, Path, Sequence[str]]] = {
    "go": ("go", BUILT / "go-client", (str(BUILT / "go-client"),)),
    "rust": ("cargo", BUILT / "rust-client", (str(BUILT / "rust-client"),)),
    "java": ("mvn", BUILT / "java" / "classes" / "Main.class", JAVA),
}
# Arrow's JDBC driver, which speaks SQL and nothing else.
JDBC = ("mvn", BUILT / "java" / "classes" / "Jdbc.class", (*JAVA[:-1], "Jdbc"))
# An errand takes a second or two; a client that hangs is ended.
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Step:
    """One call of an errand. `file` is where rows are kept or come from; of an action, its name."""

    call: str
    request: Any = None
    file: str = ""


class ForeignClient:
    """One of `CLIENTS`, or `jdbc`, sent to a server."""

    def __init__(self, name: str, location: str, folder: Path) -> None:
        self._command = (CLIENTS | {"jdbc": JDBC})[name][2]
        self._location = location
        self._folder = folder

    def errand(self, *steps: Step) -> list[dict[str, Any]]:
        """Carry the steps out; what the server said to each."""
        (self._folder / "errand.json").write_text(json.dumps([vars(step) for step in steps]))
        done = subprocess.run(
            [*self._command, self._location, str(self._folder)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


def missing(name: str) -> None:
    """Skip by name where a client was not built; fail where CI could have."""
    tool, left, _ = (CLIENTS | {"jdbc": JDBC})[name]
    if left.exists():
        return
    why = f"the {name} client is not built: tests/interop/build does"
    if shutil.which(tool) and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        pytest.fail(why)
    pytest.skip(why)
