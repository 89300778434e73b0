"""Where MXNet 1.9.1 takes values that lie in an order of oneDNN's for plain ones.

Some operators say another shape of the same values, and leave them where they are. Where a convolution
wrote these in blocks of channels, they lie so still, and what oneDNN computes behind that reads the blocks as
if they had the new shape: a softmax is wrong, a transpose raises "could not create a primitive descriptor".
MXNet brings images into plain order for ``Reshape`` and its like, and nothing of five axes; for
``reshape_like`` and NumPy mode's ``reshape`` not even images. RNN cannot read blocks, and raises "We can't
generate TBlob for MKLDNN data".

References
----------
``SupportMKLDNNReshape`` in src/operator/nn/mkldnn/mkldnn_reshape.cc and ``FInplaceIdentity`` in
src/operator/tensor/elemwise_unary_op_basic.cc, MXNet 1.9.1; and execution, see the tests.
"""

from __future__ import annotations

from typing import Callable, Sequence

from mxamp.graph.graph import Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.targets.layout import KEEP_LAYOUT, WRITE_BLOCKS, WRITE_OVER, kernel_axes, writes_plain

_KNOW_IMAGES = frozenset({"Flatten", "Reshape", "expand_dims"})
"""Operators that say another shape, and bring images into plain order for it."""

_KNOW_NOTHING = frozenset({"_np_reshape", "_npx_reshape", "reshape_like"})
"""Operators that say another shape, and bring nothing into plain order."""

_RENAME = _KNOW_IMAGES | _KNOW_NOTHING

_MISREAD = frozenset(
    {"Flatten", "Pooling", "Reshape", "elemwise_add", "expand_dims", "log_softmax", "softmax", "transpose"}
)
"""oneDNN's operators that go by the order in which values lie, and by the shape that is said of them."""

_LEAVE_ORDER = KEEP_LAYOUT | WRITE_OVER | _RENAME | {"clip"}

_REFUSE_BLOCKS = frozenset({"RNN"})
"""Operators that raise where they find blocks of channels."""

_SEQUENCE, _IMAGE, _VOLUME = 1, 2, 3
"""Axes of a kernel."""

_LOOK_AROUND = 64
"""How many nodes are looked at for a layer, or a reader."""


def misread_orders(graph: Graph, is_plain: Callable[[int], bool]) -> Sequence[int]:
    """Return the operators that say another shape of what lies in blocks, and behind which it is misread.

    And those that cannot read such.

    Parameters
    ----------
    graph
        The graph.
    is_plain
        Whether a node's values lie in plain order though its operator would leave them in blocks, as those
        do that are cast.

    Notes
    -----
    May name operators behind which all comes out right. Linear in nodes.
    """
    return _Orders(graph, is_plain).misread()


class _Orders:
    """What lies in which order in a graph."""

    def __init__(self, graph: Graph, is_plain: Callable[[int], bool]) -> None:
        self._graph = graph
        self._is_plain = is_plain
        self._names = [FACTS.canonical(node.op) for node in graph.nodes]
        self._found: list[int] = []

    def misread(self) -> Sequence[int]:
        """Return where values are misread; what was found earlier counts as mended."""
        if WRITE_BLOCKS.isdisjoint(self._names):
            return ()
        for position, (node, name) in enumerate(zip(self._graph.nodes, self._names)):
            is_read = _says_fewer(node, name) and self._is_misread(position)
            if (is_read or name in _REFUSE_BLOCKS) and self._reads_blocks(position):
                self._found.append(position)
        return self._found

    def _reads_blocks(self, position: int) -> bool:
        """Return whether an operator finds its data in blocks of channels, and leaves them so."""
        nodes, name = self._graph.nodes, self._names[position]
        fewest = _VOLUME if name in _KNOW_IMAGES else _SEQUENCE if name in _REFUSE_BLOCKS else _IMAGE
        ahead, seen = [(nodes[position].inputs[0].node, fewest)], {position}
        while ahead and len(seen) < _LOOK_AROUND:
            at, least = ahead.pop()
            if at in seen or at in self._found or self._is_plain(at):
                continue
            seen.add(at)
            node, name = nodes[at], self._names[at]
            if name in WRITE_BLOCKS:
                if kernel_axes(node) >= least and not writes_plain(node):
                    return True
                continue
            if name in _KNOW_IMAGES:
                least = _VOLUME
            elif name == "BatchNorm":  # oneDNN's is of images, and fused with layers of volumes
                least = max(least, _IMAGE)
            ahead += [(source, least) for source, _ in node.inputs[: self._counted(name)]]
        return False

    def _is_misread(self, position: int) -> bool:
        """Return whether one of oneDNN's operators goes by the order of what lies behind a node."""
        ahead, seen = [position], {position}
        while ahead and len(seen) < _LOOK_AROUND:
            at = ahead.pop()
            for use in self._graph.uses[at].get(0, ()):
                name = self._names[use.node]
                if name in _MISREAD:
                    return True
                if self._leaves_order(name) and use.node not in seen:
                    seen.add(use.node)
                    ahead.append(use.node)
        return False

    def _counted(self, name: str) -> int | None:
        """Return how many of its inputs may lie in the order of a result, the first ones; None for all."""
        return 1 if name in _RENAME else None if self._leaves_order(name) else 0

    def _leaves_order(self, name: str) -> bool:
        """Return whether an operator may leave its result in the order in which it finds what it reads.

        A clip does where it is fused, and NumPy mode's operators where they write over what they read.
        """
        return name in _LEAVE_ORDER or name.startswith("_npi_")


def _says_fewer(node: Node, name: str) -> bool:
    """Return whether a node may say fewer axes, and is no Reshape to the shape that there is.

    Behind more axes than four oneDNN has no operator that misreads them.
    """
    shape = integers(node.attrs.get("shape", "()"))
    is_same = shape == (-2,) or (bool(shape) and not any(shape or ()))
    return name in _RENAME and name != "expand_dims" and not is_same
