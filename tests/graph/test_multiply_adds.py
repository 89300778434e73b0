"""Multiply-adds are counted from shapes, in NumPy mode as elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.graph.multiply_adds import multiply_adds
from tests.building import Net


@pytest.mark.parametrize(
    ("op", "shapes", "output", "attrs", "expected"),
    [
        ("dot", [(2, 3), (3, 5)], (2, 5), {}, 30),
        ("_np_dot", [(2, 3), (3, 5)], (2, 5), {}, 30),
        ("_npi_matmul", [(7, 2, 3), (7, 3, 5)], (7, 2, 5), {}, 210),
        ("_npi_tensordot_int_axes", [(2, 3, 4), (3, 4, 5)], (2, 5), {"axes": "2"}, 120),
        (
            *("_npi_tensordot", [(3, 2, 4), (5, 4, 3)], (2, 5)),
            *({"a_axes_summed": "(0, 2)", "b_axes_summed": "(2, 1)"}, 120),
        ),
        ("_npi_einsum", [(2, 3), (3, 5)], (2, 5), {"subscripts": "ij, jk -> ik"}, 30),
        ("_npi_einsum", [(2, 3), (3, 5), (5, 4)], (2, 4), {"subscripts": "ij,jk,kl"}, 240),
        ("_npi_einsum", [(2, 3), (3, 5)], (2, 5), {"subscripts": "...j,jk->...k"}, None),
        ("_npi_einsum", [(2, 3), None], (2, 5), {"subscripts": "ij,jk->ik"}, None),
        ("exp", [(2, 3)], (2, 3), {}, None),
    ],
)
def test_multiply_adds(
    op: str, shapes: Any, output: Any, attrs: dict[str, str], expected: int | None
) -> None:
    net = Net()
    inputs = [net.var(f"x{number}") for number in range(len(shapes))]
    graph = net.graph(net.op(op, *inputs, **attrs))
    known = [(shape,) for shape in (*shapes, output)]
    assert multiply_adds(graph, len(shapes), known) == expected
