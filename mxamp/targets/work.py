"""What one operator does in a forward pass, as numbers: all that a cost depends on."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxamp.targets.image_layout import PLAIN, WIDEST_BLOCK

Shapes = Sequence[Tuple[Optional[Tuple[int, ...]], ...]]
"""For every node of a graph the shape of each output; None where it is not known."""


class Work(NamedTuple):
    """What one operator, or a fused chain of them, does in a forward pass.

    Attributes
    ----------
    multiply_adds
        Its multiply-adds; 0 where it is no sum of products.
    elements
        The values it reads and writes, parameters included.
    channels
        The channels of its first input, where that has any; else 0.
    is_depthwise
        Whether it is a convolution with one input channel a group.
    has_bias
        Whether a layer has a bias.
    rank
        The number of axes of its first input.
    attributes
        The node's attributes.
    inputs
        The shapes of its inputs, data first; empty where only the numbers above are known.
    output
        The shape of its first output.
    is_blocked
        Whether its data come in the blocked layout that a convolution writes, at least where in FP32.
    arrives_in
        The order that its data come in (:mod:`mxamp.targets.image_layout`) where the layer that wrote them
        computed in FP32, and where in the low dtype. Plain where no layer did.
    around
        The values that the model reads and writes from one node of this kind to the next, or to the same one
        in the next forward pass: which code a cache may have lost until then. 0 where the node is looked at
        alone.
    model
        The values that the model reads and writes in a forward pass, parameters that nodes share once: where
        that is more than the caches hold, a node's parameters come from memory, however many nodes are like
        it. 0 where the node is looked at alone.
    operators
        How many operators the model is made of: among many, a node finds the code of its own in no cache near
        the core. 0 where the node is looked at alone.
    has_activation
        Whether an activation is fused behind a layer.
    is_cast_plain
        Whether low data come in plain order though FP32 ones come in blocks: what writes them is FP32, and
        behind the cast order is plain.
    block
        The channels in the widest block of images on the machine that it runs on.
    """

    multiply_adds: int
    elements: int
    channels: int = 0
    is_depthwise: bool = False
    has_bias: bool = False
    rank: int = 0
    attributes: Mapping[str, str] = {}
    inputs: tuple[tuple[int, ...], ...] = ()
    output: tuple[int, ...] = ()
    is_blocked: bool = False
    arrives_in: tuple[int, int] = (PLAIN, PLAIN)
    around: int = 0
    model: int = 0
    operators: int = 0
    has_activation: bool = False
    is_cast_plain: bool = False
    block: int = WIDEST_BLOCK

    def finds_blocks(self, *, low: bool) -> bool:
        """Return whether its data come in blocks of channels where it computes low, or where in FP32."""
        return self.is_blocked and not (low and self.is_cast_plain)

    def to_document(self) -> dict[str, Any]:
        """Return it as plain data; see :meth:`from_document`."""
        return {**self._asdict(), "attributes": dict(self.attributes)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Work:
        """Return what :meth:`to_document` made plain."""
        changed = {
            name: document[name] for name in document if name not in ("inputs", "output", "arrives_in")
        }
        first, second = document.get("arrives_in", (0, 0))
        return cls(
            **changed,
            arrives_in=(first, second),
            inputs=tuple(tuple(shape) for shape in document.get("inputs", ())),
            output=tuple(document.get("output", ())),
        )
