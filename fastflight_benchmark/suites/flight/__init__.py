"""Suite `flight`: reading the benchmark's table on the sync and the async path, compared with peers."""
