"""The benchmark. It uses public names of `fastflight`; tests/benchmark/test_public_names.py lists the exceptions."""
