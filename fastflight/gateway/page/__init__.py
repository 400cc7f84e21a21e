"""The live page: its files, and the state and output of all devices that it shows."""
