"""Evaluate conversions over GluonCV's model zoo: ``python -m model_zoo_eval --help``."""
