"""The parts of `soak`: clients that come and go, and samples of the server's process."""
