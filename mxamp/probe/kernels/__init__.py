"""Random kernels to time: what the costs of a target are fitted on, and judged by."""

from mxamp.probe.kernels.kernel import Kernel, Operand, kernel
from mxamp.probe.kernels.sampling import FAMILIES, GUESTS, draw_guest, draw_kernels, seat_guests

__all__ = ["FAMILIES", "GUESTS", "Kernel", "Operand", "draw_guest", "draw_kernels", "kernel", "seat_guests"]
