"""Give regions of no image the values that MXNet leaves undefined on CPUs."""

from __future__ import annotations

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.passes.edit import GraphEdit

_ROI_ALIGN = "_contrib_ROIAlign"


def zero_regions_of_no_image(graph: Graph) -> Graph:
    """Return a graph that pools zeros where the index of a region's image is negative, on CPUs too.

    Before::

        ROIAlign(data, rois)

    After::

        where(image > -1, ROIAlign(data, [maximum(image, 0), box]), 0)

    ``image`` is the first column of ``rois`` and ``box`` the other four.

    Refuses: nothing; a graph without the operator is returned as it is. Bodies of control flow are not
    walked.

    Notes
    -----
    Networks with a feature pyramid give a region the index -1 on all levels but its own, and sum all levels.
    MXNet 1.9.1 on GPUs pools zeros then. On CPUs (ROIAlignForward in src/operator/contrib/roi_align.cc) it
    leaves the values as they were in memory and sets one value of another region to 0, so results hang on
    what the memory held before. This is for references, which must not: the values of all other regions are
    those of the graph before.
    """
    if not any(FACTS.canonical(node.op) == _ROI_ALIGN for node in graph.nodes):
        return graph
    edit = GraphEdit(graph, {})
    for position, node in enumerate(graph.nodes):
        if FACTS.canonical(node.op) != _ROI_ALIGN:
            continue
        data, rois = node.inputs

        def insert(op: str, suffix: str, *inputs: Entry, _at: int = position, **attrs: str) -> Entry:
            return edit.insert(Node(op, f"{graph.nodes[_at].name}_{suffix}", attrs, inputs), before=_at)

        image = insert("slice_axis", "image", rois, axis="1", begin="0", end="1")
        box = insert("slice_axis", "box", rois, axis="1", begin="1", end="5")
        first = insert("_maximum_scalar", "no_negative", image, scalar="0")
        inside = insert("Concat", "inside", first, box, dim="1", num_args="2")
        pooling = node._replace(name=f"{node.name}_pooled", inputs=(data, inside), control_deps=())
        pooled = edit.insert(pooling, before=position)
        of_image = insert("_greater_scalar", "of_image", image, scalar="-1")
        mask = insert("Reshape", "mask", of_image, shape="(-1,)")
        zeros = insert("zeros_like", "zeros", pooled)
        edit.replace(
            position,
            Node("where", node.name, {}, (mask, pooled, zeros), control_deps=node.control_deps),
        )
    return edit.finish().graph
