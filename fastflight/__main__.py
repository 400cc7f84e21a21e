"""`python -m fastflight` is the command `fastflight`."""

from fastflight.cli.main import app

app()
