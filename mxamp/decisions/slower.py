"""Where low precision is slower than float32 whatever a model's shapes are.

On a CPU without bfloat16 instructions oneDNN imitates bfloat16 by float32: everything takes several times as
long. On Intel's CPUs with avx512_bf16 that do not use AMX products take longer in bfloat16, and what gains
there is told by shapes alone.
"""

from __future__ import annotations

from mxamp.targets import CostModel

WHY_IMITATED = "is only imitated on the target's machines, and slower than float32 whatever is computed"
WHY_SLOWER = "multiplies more slowly than float32 on the target's machines, and no shapes say where it pays"
"""Why a node stays FP32 on such a machine; the dtype stands before it."""


def why_low_is_slower(cost: CostModel | None, *, are_weighed: bool) -> str | None:
    """Return why nothing should be low that need not be; None where low precision may pay.

    Parameters
    ----------
    cost
        What the target's operators cost, where that is known.
    are_weighed
        Whether shapes tell what every node takes.
    """
    if cost is None or cost.gain_of_products >= 1:
        return None
    if cost.low_over_float32:
        return WHY_IMITATED
    return None if are_weighed else WHY_SLOWER
