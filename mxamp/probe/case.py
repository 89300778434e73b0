"""What the probe measures: cases, each an operator with its attributes, or a chain that may be fused.

A case is a value and knows nothing of MXNet: which inputs there are, of what shapes and values, and which
operators follow each other. :mod:`mxamp.runtime.probe_cases` turns it into a Symbol.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping, NamedTuple, Sequence, Union

LOW = "low"
"""The attribute value that stands for the low dtype's name."""


class Dims(NamedTuple):
    """Batch, channels and spatial size of one run."""

    n: int
    c: int
    s: int


CHECK_DIMS = (Dims(1, 32, 14), Dims(2, 24, 14), Dims(2, 20, 14), Dims(1, 3, 14))
"""Sizes to check: channels that fill oneDNN's blocks of 16, that half fill one, and that do not."""

VOLUME_DIMS = (Dims(1, 32, 6), Dims(2, 24, 6), Dims(1, 20, 6), Dims(1, 3, 6))
"""The same for volumes, which have one axis more."""

TIME_DIMS = (Dims(1, 64, 56), Dims(1, 256, 56))
"""Sizes to time."""

_DEPTH = 4
"""The axis that a volume has more."""

_PART = re.compile(r"(\d*)([ncs])(?:/(\d+))?")


@dataclass(frozen=True)
class Shape:
    """A shape that depends on the dimensions.

    Attributes
    ----------
    parts
        Numbers, or ``"c"`` for that dimension, ``"2c"`` for twice, ``"c/2"`` for half of it.
    """

    parts: tuple[int | str, ...]

    def __call__(self, dims: Dims) -> tuple[int, ...]:
        """Return the shape for these dimensions."""
        return tuple(_resolve(part, dims) for part in self.parts)

    @property
    def is_image(self) -> bool:
        """Whether it is batch, channels, height and width of a feature map, or broadcasts over one."""
        return (
            len(self.parts) == 4
            and self.parts[0] in ("n", 1)
            and (self.parts[2:] == (1, 1) or "s" in str(self.parts[2:]) or self.parts[2:] == (9, 9))
        )

    def volume(self) -> Shape:
        """Return the shape with one spatial axis more."""
        depth = 1 if self.parts[2:] == (1, 1) else _DEPTH
        return Shape((*self.parts[:2], depth, *self.parts[2:]))


def _resolve(part: int | str, dims: Dims) -> int:
    if isinstance(part, int):
        return part
    match = _PART.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} is not a dimension")
    return int(match[1] or 1) * int(getattr(dims, match[2])) // int(match[3] or 1)


@dataclass(frozen=True)
class Input:
    """One variable of a case.

    Attributes
    ----------
    shape
        Its shape.
    role
        ``data`` (low, may come from a convolution), ``weight`` (low, a parameter), ``fp32`` (never cast).
    values
        Which values are drawn (:mod:`mxamp.probe.values`).
    """

    shape: Shape
    role: str = "data"
    values: str = "normal"


@dataclass(frozen=True)
class Ref:
    """An earlier value of the chain: 0 is the first input, k the output of step k."""

    step: int


@dataclass(frozen=True)
class Step:
    """One operator of a chain; its first input is the value so far.

    Attributes
    ----------
    op
        MXNet's name.
    inputs
        What it reads besides.
    attrs
        Attributes; a function of the dimensions where they depend on them.
    low_only
        Whether it is a cast, which the FP32 graph has not.
    """

    op: str
    inputs: tuple[Input | Ref, ...]
    attrs: Mapping[str, Any]
    low_only: bool = False


@dataclass(frozen=True)
class Case:
    """A chain of steps to measure.

    Attributes
    ----------
    name
        Unique.
    first
        The first input.
    steps
        The operators.
    check, timing
        The dimensions to check and to time it with.
    fused
        Whether the backend may fuse it; otherwise fusion is off.
    extra_heads
        Earlier values that are graph outputs too.
    feeds
        Whether inputs are also taken from a convolution; not where that would fuse with the chain.
    volume
        Whether it is the variant of another case on three-dimensional feature maps, which need not exist.
    """

    name: str
    first: Input
    steps: tuple[Step, ...]
    check: tuple[Dims, ...] = CHECK_DIMS
    timing: tuple[Dims, ...] = TIME_DIMS
    fused: bool = False
    extra_heads: tuple[int, ...] = ()
    feeds: bool = True
    volume: bool = False

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All its variables."""
        return (
            self.first,
            *(part for one in self.steps for part in one.inputs if isinstance(part, Input)),
        )

    def on_volumes(self) -> Case | None:
        """Return the case with one spatial axis more; None where it is about no feature maps."""
        if self.fused or not self.check or not (self.first.role == "data" and self.first.shape.is_image):
            return None
        return replace(
            self,
            name=f"{self.name}, on volumes",
            first=_with_volume(self.first),
            steps=tuple(
                replace(
                    one,
                    inputs=tuple(
                        _with_volume(part) if isinstance(part, Input) else part for part in one.inputs
                    ),
                )
                for one in self.steps
            ),
            check=VOLUME_DIMS,
            timing=(),
            volume=True,
        )


def _with_volume(given: Input) -> Input:
    return replace(given, shape=given.shape.volume()) if given.shape.is_image else given


def of(*parts: int | str) -> Shape:
    """Return a shape."""
    return Shape(parts)


def count(part: str) -> Callable[[Dims], int]:
    """Return an attribute that depends on the dimensions, for example ``num_filter=count("c")``."""
    return lambda dims: _resolve(part, dims)


X = of("n", "c", "s", "s")
X3 = of("n", "c", "s")
X5 = of("n", "c", _DEPTH, "s", "s")
X2 = of("n", "c")
PER_ENTRY = of("c")
PER_CHANNEL = of(1, "c", 1, 1)
PER_IMAGE = of("n", "c", 1, 1)


def weight(*parts: int | str) -> Input:
    """Return a parameter that is cast offline."""
    return Input(Shape(parts), role="weight", values="weight")


def step(op: str, *inputs: Input | Ref, low_only: bool = False, **attrs: Any) -> Step:
    """Return one operator of a chain."""
    return Step(op, inputs, attrs, low_only)


NORM_PARAMS = (
    Input(PER_ENTRY, "fp32", "gamma"),
    Input(PER_ENTRY, "fp32", "normal"),
    Input(PER_ENTRY, "fp32", "normal"),
    Input(PER_ENTRY, "fp32", "gamma"),
)
BATCH_NORM = step("BatchNorm", *NORM_PARAMS, fix_gamma=False, eps=1e-5)
RELU = step("Activation", act_type="relu")
CLIP6 = step("clip", a_min=0, a_max=6)

_Part = Union[str, int]


def convolution(
    kernel: Sequence[int],
    *,
    bias: bool = False,
    groups: _Part = 1,
    channels: _Part = "c",
    **attrs: Any,
) -> Step:
    """Return a Convolution from ``channels`` to ``c`` channels; ``groups="c"`` is depthwise."""
    per_group: _Part = 1 if groups == "c" else (channels if groups == 1 else f"c/{groups}")
    inputs = [weight("c", per_group, *kernel)]
    if bias:
        inputs.append(weight("c"))
    attrs.setdefault("pad", tuple(size // 2 for size in kernel))
    return step(
        "Convolution",
        *inputs,
        kernel=tuple(kernel),
        num_filter=count("c"),
        num_group=count("c") if groups == "c" else groups,
        no_bias=not bias,
        **attrs,
    )


def deconvolution(kernel: Sequence[int], *, bias: bool = False, groups: int = 1, **attrs: Any) -> Step:
    """Return a Deconvolution from ``c`` to ``c`` channels."""
    inputs = [weight("c", "c" if groups == 1 else f"c/{groups}", *kernel)]
    if bias:
        inputs.append(weight("c"))
    return step(
        "Deconvolution",
        *inputs,
        kernel=tuple(kernel),
        num_filter=count("c"),
        num_group=groups,
        no_bias=not bias,
        **attrs,
    )


def dense(*, bias: bool = True, flatten: bool = True, width: _Part = "c", units: _Part = "c") -> Step:
    """Return a FullyConnected."""
    inputs = [weight(units, width)] + ([weight(units)] if bias else [])
    hidden: Any = count(units) if isinstance(units, str) else units
    return step("FullyConnected", *inputs, num_hidden=hidden, no_bias=not bias, flatten=flatten)


def single(name: str, first: Input | Shape, op: str | Step, *inputs: Input | Ref, **options: Any) -> Case:
    """Return a case of one operator; ``check`` and ``timing`` are the case's, other options attributes."""
    first = first if isinstance(first, Input) else Input(first)
    check, timing = options.pop("check", CHECK_DIMS), options.pop("timing", TIME_DIMS)
    only = op if isinstance(op, Step) else step(op, *inputs, **options)
    return Case(name, first, (only,), check, timing)


def fused(name: str, *steps: Step, first: Input | Shape = X, **options: Any) -> Case:
    """Return a chain that the backend may fuse; chains are not timed."""
    return Case(
        f"fused: {name}",
        first if isinstance(first, Input) else Input(first),
        steps,
        fused=True,
        timing=(),
        **options,
    )
