"""Suite `boards`: files to and from many simulated boards at once."""
