"""Long tests that are started by hand: faults, kills, soaks, fuzzing. README.md lists them."""
