"""A recommender: matrix factorisation, a product of two embeddings and nothing else."""

from __future__ import annotations

from typing import Any

import mxnet as mx

__all__ = ["matrix_factorisation"]


def matrix_factorisation(*, users: int, items: int, factors: int = 64) -> Any:
    """Return what scores pairs of a user and an item, with a layer over each embedding.

    References
    ----------
    Koren et al., "Matrix Factorization Techniques for Recommender Systems", Computer, 2009.
    """
    sides = []
    for name, size in (("user", users), ("item", items)):
        x = mx.sym.Embedding(mx.sym.var(name), input_dim=size, output_dim=factors, name=f"{name}_embedding")
        x = mx.sym.Activation(x, act_type="relu", name=f"{name}_relu")
        sides.append(mx.sym.FullyConnected(x, num_hidden=factors, flatten=False, name=f"{name}_fc"))
    return mx.sym.sum(sides[0] * sides[1], axis=-1, name="score")
