"""Suite `transfer`: files to and from a simulated board."""
