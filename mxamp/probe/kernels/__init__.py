"""Random kernels to time: what the costs of a target are fitted on, and judged by."""

from mxamp.probe.kernels.kernel import Kernel, Operand, kernel
from mxamp.probe.kernels.sampling import FAMILIES, draw_kernels

__all__ = ["FAMILIES", "Kernel", "Operand", "draw_kernels", "kernel"]
