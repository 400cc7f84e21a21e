"""The parts of `soak`: clients that come and go, samples of the server's process, and a plot."""
