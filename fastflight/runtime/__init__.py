"""The state of a running server: admission, streams, metrics, request ids and the log of requests."""
