"""Write relu in the form that backends fuse."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.ops import FACTS
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

_BEFORE = frozenset({"Convolution", "Deconvolution", "FullyConnected", "BatchNorm", "elemwise_add"})


class RewriteRelu(PreparationPass):
    """Replace the operator ``relu`` by ``Activation`` behind layers that it can be fused with.

    Before::

        Convolution -> relu -> y

    After::

        Convolution -> Activation {act_type: relu} -> y

    Also behind Deconvolution, FullyConnected, BatchNorm and elemwise_add.

    Refuses: behind anything else; where the layer has other readers or is a graph output, since the backend
    then fuses nothing, or wrongly (:mod:`mxamp.targets.fusion_defect`); other dtypes than float32, float16
    and bfloat16; a node that a rule of the user's picks; the bodies of control flow. The node may be a graph
    output, for its name stays.

    Notes
    -----
    Why: MXNet's oneDNN backend runs and fuses ``Activation``. It knows no ``relu``, which in bfloat16 is up
    to 50 times slower than in float32, so that every one of them costs two casts.

    Bit-exact for every number. A NaN stays one in ``relu``; oneDNN's ``Activation`` makes it 0, here as in
    all networks that are written with ``Activation``. Linear in nodes.
    """

    step = "relu"
    operators = frozenset({"relu"})

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with activations."""
        edit = GraphEdit(graph, state.params)
        changes = []
        for position, node in enumerate(graph.nodes):
            if node.op != "relu" or len(node.inputs) != 1 or state.is_fixed(position):
                continue
            layer = node.inputs[0].node
            if (
                node.inputs[0].output == 0
                and FACTS.canonical(graph.nodes[layer].op) in _BEFORE
                and state.only_reader(layer) == position
                and state.dtypes[position][0] in (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
            ):
                attrs = {**node.attrs, "act_type": "relu"}
                edit.replace(position, node._replace(op="Activation", attrs=attrs))
                changes.append(self.changed(node, "Activation is what backends fuse with a layer"))
        return Done(edit.finish(), tuple(changes)) if changes else None
