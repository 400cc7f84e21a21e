"""One target under atheris, in a process that may crash.

    python -m tests.campaigns.fuzz.child NAME FOLDER [option]...

The options are libFuzzer's. Each execution is counted in the file `executions` of FOLDER before it begins: the count
outlives the process. An input that raises is kept in `found` at once: libFuzzer keeps it only as the process ends, and
what runs beside it may end it sooner.
"""

from __future__ import annotations

import gc
import importlib
import logging
import mmap
import sys
from hashlib import sha1
from pathlib import Path

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]


def main() -> None:
    name, place, *options = sys.argv[1:]
    folder = Path(place)
    from tests.campaigns.fuzz.target import load

    with atheris.instrument_imports(include=["fastflight"], enable_loader_override=False):
        target = load(name)
    if "pyarrow" in sys.modules:
        # Arrow's first array loads it, which takes seconds of whatever execution that is.
        importlib.import_module("pandas")
    # What a server writes to its log for each refusal would be most of the work.
    logging.disable(logging.CRITICAL)
    with (folder / "executions").open("r+b") as file:
        count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")

    def once(data: bytes) -> None:
        count[0] += 1
        try:
            target.run(data)
        except BaseException:
            (folder / "found" / f"crash-{sha1(data, usedforsecurity=False).hexdigest()}").write_bytes(data)
            raise

    # atheris ends the process by itself: what was running goes with it.
    running = target.running()
    running.__enter__()
    gc.freeze()
    atheris.Setup([name, *options], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
