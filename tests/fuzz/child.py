"""One target under atheris, in a process that may crash: `python -m tests.fuzz.child NAME COUNTER [option]...`.

The options are libFuzzer's. Each execution is counted in the file COUNTER before it begins: the count outlives the
process.
"""

from __future__ import annotations

import gc
import logging
import mmap
import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]


def main() -> None:
    name, counter, *options = sys.argv[1:]
    from tests.fuzz.target import load

    with atheris.instrument_imports(include=["fastflight"], enable_loader_override=False):
        target = load(name)
    # What a server writes to its log for each refusal would be most of the work.
    logging.disable(logging.CRITICAL)
    with Path(counter).open("r+b") as file:
        count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")

    def once(data: bytes) -> None:
        count[0] += 1
        target.run(data)

    # atheris ends the process by itself: what was running goes with it.
    running = target.running()
    running.__enter__()
    gc.freeze()
    atheris.Setup([name, *options], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
