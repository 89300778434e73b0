"""Random models, converted with random options, against FP32: ``python -m tools.fuzz_conversion``."""
