"""Suite `cluster`: several servers that share devices, and how many devices they can have."""
