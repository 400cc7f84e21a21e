"""Suite `requests`: small requests per second, and what they cost."""
