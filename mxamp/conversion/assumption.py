"""Shapes to weigh costs by, where nobody gave any."""

from __future__ import annotations

from dataclasses import replace

from mxamp.conversion.options import Options
from mxamp.conversion.run import Source
from mxamp.installation import why_no_mxnet

__all__ = ["with_assumed_shapes"]


def with_assumed_shapes(source: Source, options: Options) -> Source:
    """Return what is converted, with the shapes that such a model usually has where its own are not known.

    Parameters
    ----------
    source
        What to convert.
    options
        How. Shapes are assumed where costs may decide, and were measured: those that were not are no reason
        to depart from the plan that is made without shapes.

    Returns
    -------
    Source
        The same where shapes are known, where MXNet is not installed, or where nothing fits.
    """
    cost = options.target.cost
    if source.shapes is not None or cost is None or not cost.is_measured:
        return source
    if options.low_precision is not None or options.policy.is_pure or why_no_mxnet() is not None:
        return source
    from mxamp.runtime.assumed_shapes import assume_shapes

    params = source.params
    inputs = source.inputs
    if inputs is None:
        inputs = [name for name in source.graph.variables if name not in params]
    found = assume_shapes(source.graph, params, inputs)
    return source if found is None else replace(source, shapes=found.shapes, assumed=found.inputs)
