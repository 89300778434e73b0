"""The demonstration, benchmarks, measurements and generators: run them as ``python -m tools.NAME``."""
