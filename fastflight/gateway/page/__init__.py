"""The live page: its files, and the fleet as it shows it."""
