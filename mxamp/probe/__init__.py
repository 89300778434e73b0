"""The probe: what a machine and its MXNet can run in low precision, and what it costs there.

Everything here is about cases, their results and the document they make; MXNet runs in processes of its own
(:mod:`mxamp.runtime.probe_child`).
"""

from mxamp.probe.run import ProbeSettings, Progress, run_probe

__all__ = ["ProbeSettings", "Progress", "run_probe"]
