"""Measure models of the zoo: FP32, prepared FP32, MXNet's own converter at both settings, and mxamp."""
