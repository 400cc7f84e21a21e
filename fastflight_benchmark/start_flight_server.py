"""Start the server that the benchmark measures: `fastflight serve`, with all its options."""

from __future__ import annotations

import sys

from fastflight.cli.entry import main

if __name__ == "__main__":
    sys.argv.insert(1, "serve")
    main()
