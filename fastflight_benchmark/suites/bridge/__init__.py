"""What the suite `bridge` measures with: devices that only move bytes, servers in front of them, and clients."""
