"""`python -m fastflight` is the command `fastflight`."""

from fastflight.cli.entry import main

main()
