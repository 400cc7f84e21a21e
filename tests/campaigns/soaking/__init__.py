"""The parts of `soak`: clients that come and go, samples of the server's process, and what they say in the end."""
