"""The benchmark harness: runs on public names only."""
