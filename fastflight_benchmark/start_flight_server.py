"""Start the server that the benchmark measures: `fastflight serve` with the table, and all its options."""

from __future__ import annotations

import sys

from fastflight.cli.entry import main

if __name__ == "__main__":
    sys.argv[1:1] = ["serve", "--source", "fastflight_benchmark.mock:SOURCE"]
    main()
