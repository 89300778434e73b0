"""Operators that move, select or look up values."""

from __future__ import annotations

from typing import Any, Iterator

from mxamp.probe.case import PER_IMAGE, X2, X3, X5, Case, Dims, Input, X, count, of, single, weight


def layout_cases() -> Iterator[Case]:
    """Yield operators that only move data."""
    for dim in (1, 0, 2, 3, -1):
        yield single(f"Concat dim={dim}", X, "Concat", Input(X), dim=dim, num_args=2)
    mixed = (Input(of("n", "c/2", "s", "s")), Input(of("n", 7, "s", "s")))
    yield single("Concat dim=1 mixed sizes", X, "Concat", *mixed, dim=1, num_args=3)
    yield single("Concat dim=2 mixed sizes", X, "Concat", Input(of("n", "c", 5, "s")), dim=2, num_args=2)
    yield single("Concat 3-D dim=1", X3, "Concat", Input(of("n", "2c", "s")), dim=1, num_args=2)
    yield single("Concat 3-D dim=2", X3, "Concat", Input(X3), dim=2, num_args=2)
    yield single("Concat 2-D dim=1", X2, "Concat", Input(X2), dim=1, num_args=2, timing=(Dims(1, 2048, 1),))
    yield single("Concat 5-D dim=1", X5, "Concat", Input(X5), dim=1, num_args=2, timing=(Dims(1, 32, 28),))
    yield single("stack axis=1", X, "stack", Input(X), axis=1, num_args=2)
    yield single("stack axis=0", X, "stack", Input(X), axis=0, num_args=2)
    codes = (
        (0, -1),
        (0, 0, -1),
        (-1, 0),
        (0, -4, 4, -1, -2),
        (-3, 0, 0),
        (0, 0, -3),
        (-2,),
        (-1,),
        (0, -3, -2),
    )
    for code in codes:
        yield single(f"Reshape {code}", X, "Reshape", shape=code)
    yield single("Reshape 2-D to 4-D", X2, "Reshape", shape=(0, 0, 1, 1), timing=(Dims(1, 4096, 1),))
    yield single("reshape_like", X, "reshape_like", Input(of("n", "s", "c", "s")))
    for axis in (1, 2, 3):
        yield single(f"SliceChannel 2 axis={axis}", X, "SliceChannel", num_outputs=2, axis=axis)
    yield single("SliceChannel 4 axis=1", X, "SliceChannel", num_outputs=4, axis=1)
    yield single(
        "SliceChannel squeeze",
        X,
        "SliceChannel",
        num_outputs=count("c"),
        axis=1,
        squeeze_axis=True,
        timing=(),
    )
    yield single("_split_v2 axis=1", X, "_split_v2", indices=(0, 5), axis=1, squeeze_axis=False)
    yield single("SwapAxis 1 2", X, "SwapAxis", dim1=1, dim2=2)
    yield single("SwapAxis 2 3", X, "SwapAxis", dim1=2, dim2=3)
    yield single("SwapAxis 1 2, 5-D", of("n", 2, "c/2", "s", "s"), "SwapAxis", dim1=1, dim2=2)
    yield single("SwapAxis 1 2, 3-D", X3, "SwapAxis", dim1=1, dim2=2)
    for axes in ((0, 2, 3, 1), (0, 2, 1, 3), (0, 3, 1, 2)):
        yield single(f"transpose {axes}", X, "transpose", axes=axes)
    yield single("transpose (0, 2, 1)", X3, "transpose", axes=(0, 2, 1), timing=(Dims(1, 256, 512),))
    yield single("transpose (1, 0)", X2, "transpose", axes=(1, 0), timing=(Dims(64, 512, 1),))
    yield single("transpose 5-D", of("n", 2, "c/2", "s", "s"), "transpose", axes=(0, 2, 1, 3, 4))
    yield single("expand_dims axis=1", X, "expand_dims", axis=1)
    yield single("expand_dims 2-D axis=2", X2, "expand_dims", axis=2, timing=(Dims(1, 4096, 1),))
    yield single("squeeze", PER_IMAGE, "squeeze", axis=(2, 3), timing=(Dims(1, 4096, 1),))
    yield single("slice", X, "slice", begin=(None, 1, 1), end=(None, 17, 9))
    yield single(
        "slice step", X, "slice", begin=(0, 0, 0, 0), end=(None, None, None, None), step=(1, 1, 2, 2)
    )
    for axis, end in ((1, 16), (1, 13), (2, 9), (3, 9), (-1, 9), (0, 1)):
        yield single(f"slice_axis axis={axis} end={end}", X, "slice_axis", axis=axis, begin=0, end=end)
    yield single("slice_axis axis=1 begin=5", X, "slice_axis", axis=1, begin=5, end=None)
    yield single(
        "slice_axis 3-D axis=2", X3, "slice_axis", axis=2, begin=0, end=9, timing=(Dims(1, 256, 512),)
    )
    yield single(
        "slice_axis 2-D axis=1", X2, "slice_axis", axis=1, begin=2, end=9, timing=(Dims(1, 4096, 1),)
    )
    yield single("slice_like", X, "slice_like", Input(of(1, 1, 9, 9)), axes=(2, 3))
    yield single("tile", X, "tile", reps=(1, 2, 1, 1))
    yield single("repeat", X, "repeat", repeats=2, axis=1)
    yield single("reverse", X, "reverse", axis=3)
    for mode in ("reflect", "constant", "edge"):
        yield single(f"Pad {mode}", X, "Pad", mode=mode, pad_width=(0, 0, 0, 0, 1, 1, 1, 1), constant_value=0)
    yield single("UpSampling nearest", X, "UpSampling", scale=2, sample_type="nearest", num_args=1)
    yield single("depth_to_space", X, "depth_to_space", block_size=2)
    yield single("space_to_depth", X, "space_to_depth", block_size=2)
    yield single("Crop", X, "Crop", num_args=1, h_w=(9, 9), center_crop=True)


def index_cases() -> Iterator[Case]:
    """Yield operators that sort, select or look up."""
    distinct = Input(of("n", 100), values="distinct")
    sorting: dict[str, Any] = {"check": (Dims(1, 1, 1), Dims(2, 1, 1)), "timing": (Dims(16, 1, 1),)}
    yield single("argsort", distinct, "argsort", **sorting)
    yield single("argmax", distinct, "argmax", axis=1, **sorting)
    for kind in ("indices", "value", "both", "mask"):
        yield single(f"topk {kind}", distinct, "topk", k=10, ret_typ=kind, **sorting)
    table = weight(50, "c")
    lookup: dict[str, Any] = {"check": (Dims(3, 32, 1), Dims(7, 20, 1)), "timing": (Dims(128, 768, 1),)}
    index = Input(of("n"), "fp32", "index:50")
    yield single("Embedding", index, "Embedding", table, input_dim=50, output_dim=count("c"), **lookup)
    yield single(
        "take axis=0", Input(of(50, "c")), "take", Input(of("n"), "fp32", "index:50"), axis=0, **lookup
    )
    yield single(
        "take axis=1", Input(of("c", 50)), "take", Input(of("n"), "fp32", "index:50"), axis=1, **lookup
    )
    yield single(
        "gather_nd", Input(of(50, "c")), "gather_nd", Input(of(1, "n"), "fp32", "index:50"), **lookup
    )
    yield single("pick", Input(of("n", 50)), "pick", index, axis=1, **lookup)
    lengths = Input(of("n"), "fp32", "index:10")
    masking: dict[str, Any] = {"use_sequence_length": True, "axis": 1, "value": -1.0, **lookup}
    yield single("SequenceMask", Input(of("n", 14, "c")), "SequenceMask", lengths, **masking)
