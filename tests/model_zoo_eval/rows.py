"""Rows of results."""

from __future__ import annotations

from typing import Any


def head(error: float = 0.005, **more: Any) -> dict[str, Any]:
    """Return the measures of one output."""
    found = {"name": "logits", "relative_l2": error, "sqnr_db": 40.0, "nan": 0, "inf": 0}
    return {**found, **more}


def ok_row(*, error: float = 0.005, casts: int = 2, ratio: float = 1.8, **more: Any) -> dict[str, Any]:
    """Return the result of a model that went well."""
    spread = {"ratio_low": ratio * 0.98, "ratio_high": ratio * 1.02, "rounds": 5}
    bfloat16 = {
        "how": "executed",
        "casts": casts,
        "low_multiply_adds": 1.0,
        "parameter_bytes": 5_000_000,
        "heads": [head(error)],
        "task": {"same_top1": 8, "samples": 8},
        "latency": {"fp32_ms": 18.0, "converted_ms": 18.0 / ratio, "ratio": ratio, **spread},
    }
    float16 = {**bfloat16, "how": "emulated", "heads": [head(error / 10)]}
    del float16["latency"]
    return {
        "weights": "random",
        "weights_from": "random, seed 0",
        "inputs": {"data": [1, 3, 224, 224]},
        "samples": 8,
        "notes": [],
        "parameter_bytes": 10_000_000,
        "results": {
            "float32": {"how": "executed", "heads": [head(1e-6)]},
            "bfloat16": bfloat16,
            "float16": float16,
        },
        "status": "ok",
        "reason": "",
        "seconds": 3.0,
        "peak_memory": 1000,
        **more,
    }
