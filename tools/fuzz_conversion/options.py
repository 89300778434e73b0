"""Options of a conversion, drawn at random, as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxamp.conversion import PREPARATIONS
from mxamp.graph.output_names import output_names
from mxamp.measuring.machine import has_avx512
from mxamp.passes import Emulation
from tools.fuzz_conversion.model import RandomModel

__all__ = ["arguments", "described", "random_options"]

_TARGETS = {
    "bfloat16": ("cpu-bf16", "cpu-bf16-zen5", "cpu-bf16-amx", "cpu-bf16-amx", "cpu-bf16-intel"),
    "float16": ("cuda-fp16", "cuda-fp16", "cuda-fp16-sm70", "cuda-fp16-sm86", "generic-fp16"),
}

_WITHOUT_AVX512 = "cpu-bf16-avx2"
"""What a case is for that is run where MXNet has no bfloat16: the graph is prepared, and nothing is low."""

_LOW_ALL_THE_SAME = ("io_dtype", "low_precision", "policy")
"""Options by which values would be bfloat16 even so."""

_OF_LOW = (*_LOW_ALL_THE_SAME, "saturate")
"""Options that say how to be low, which a model that is to stay float32 is not."""

_NARROW = ("columns", "explicit_padding", "skipped_places", "short_rows", "take_rows")
"""The passes that are for CPUs without AVX-512 alone."""

_PASSES = tuple([name for name in PREPARATIONS if name not in _NARROW])
"""Those that any target may run."""

_EMULATED_ONLY = ("tfloat32", "float8_e4m3fn", "float8_e5m2")


def random_options(seed: int, model: RandomModel) -> dict[str, Any]:
    """Return keyword arguments of :func:`mxamp.convert_model`, as plain data.

    ``shapes`` says whether ``input_shapes`` are given, and ``emulate`` holds the fields of
    :class:`mxamp.passes.Emulation`, or None for a conversion that is run as it is.
    """
    random = np.random.default_rng([seed, 1])

    def chance(probability: float) -> bool:
        return bool(random.random() < probability)

    def choice(items: Any) -> Any:
        return items[int(random.integers(len(items)))]

    dtype = "bfloat16" if chance(0.6) else "float16"
    options: dict[str, Any] = {"target_dtype": dtype, "shapes": chance(0.5), "emulate": None}
    if dtype == "float16" or chance(0.25):
        options["emulate"] = {
            "fusion": chance(0.7),
            "overflow": "saturate" if chance(0.2) else "inf",
        }
        if chance(0.12):
            options["target_dtype"] = choice(_EMULATED_ONLY)
    if chance(0.5) and options["target_dtype"] == dtype:
        options["target"] = choice(_TARGETS[dtype])
    if chance(0.12):
        options["policy"] = "pure"
    if chance(0.2):
        operators = [node.name for node in model.graph.nodes if not node.is_variable]
        options["exclude"] = [choice(operators) for _ in range(int(random.integers(1, 3)))]
    if chance(0.25):
        options["fold_batch_norm"] = False
    if chance(0.3):
        options["prepare"] = [name for name in _PASSES if chance(0.5)]
    for name, probability in (("saturate", 0.15), ("rewrite_masks", 0.8), ("cast_optional_params", 0.85)):
        if chance(0.3):
            options[name] = chance(probability)
    if options.get("saturate"):
        options.pop("cast_optional_params", None)  # clamps what is cast now
    if chance(0.2):
        # Only where costs are known can they be weighed, and no shape behind a loop is.
        weighs = options["target_dtype"] == "bfloat16" and options["shapes"] and "policy" not in options
        weighs = weighs and not any(node.subgraphs for node in model.graph.nodes)
        options["low_precision"] = choice(["required", "profitable"]) if weighs else "required"
    if chance(0.08):
        options["cast_op"] = "Cast"
    if chance(0.2):
        named = [*model.data[0], *output_names(model.graph)]
        options["io_dtype"] = "low" if chance(0.5) else {choice(named): choice(["low", "float32"])}
    if options["emulate"] is None and has_avx512() is False:
        options = {name: value for name, value in options.items() if name not in _LOW_ALL_THE_SAME}
        options["target"] = _WITHOUT_AVX512
    if options["emulate"] is None and chance(0.15):
        options = {name: value for name, value in options.items() if name not in _OF_LOW}
        options["low_precision"] = "none"
    return options


def arguments(options: dict[str, Any], model: RandomModel) -> dict[str, Any]:
    """Return what the options stand for."""
    given = dict(options)
    shapes, emulate = given.pop("shapes"), given.pop("emulate")
    # A weight that is an input looks like a parameter that is missing.
    given["inputs"] = sorted(model.data[0])
    if shapes:
        given["input_shapes"] = model.input_shapes
    if emulate is not None:
        given["emulate"] = Emulation(**emulate)
    return given


def described(options: dict[str, Any]) -> list[str]:
    """Return the options as words, to count them by."""
    words = []
    for name, value in options.items():
        if name == "emulate":
            words.append("executed" if value is None else "emulated")
        elif name in ("prepare", "exclude"):
            words.append(f"{name} some")
        elif name == "io_dtype":
            words.append(f"io_dtype {value if isinstance(value, str) else 'mapping'}")
        else:
            words.append(f"{name} {value}")
    return words
