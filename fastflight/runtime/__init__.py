"""What a running server keeps account of: admission, streams, metrics, request ids and the log of requests."""
