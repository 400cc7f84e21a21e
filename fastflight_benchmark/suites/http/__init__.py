"""Suite `http`: the gateway beside a plain FastAPI endpoint, and beside Flight."""
