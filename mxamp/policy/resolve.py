"""The policy that the arguments of a conversion amount to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Sequence, Union

from mxamp.errors import PolicyError
from mxamp.graph.control_flow import graphs_within
from mxamp.graph.graph import Graph
from mxamp.messages.arguments import argument, items
from mxamp.policy.mxnet_lists import ConditionalOperators, apply_mxnet_lists
from mxamp.policy.parts import ColorFunction
from mxamp.policy.policy import PURE, Policy

GivenPolicy = Union[Policy, str, Path, None]
"""A policy, its name, or the path of its file."""


def resolve_policy(
    policy: GivenPolicy,
    target_dtype: Any,
    graph: Graph,
    *,
    exclude: Sequence[str] = (),
    color: ColorFunction | None = None,
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    widest_dtype_ops: Sequence[str] | None = None,
    conditional_fp32_ops: ConditionalOperators | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    emulated: bool = False,
) -> Policy:
    """Return the policy that the arguments of :func:`convert_model` amount to.

    Raises
    ------
    PolicyError
        When the policy is for another dtype than ``target_dtype``, or contradicts itself.
    """
    default = Policy.default(target_dtype)
    if policy is None:
        policy = default
    elif isinstance(policy, str) and policy == PURE:
        policy = Policy.pure(target_dtype)
    elif isinstance(policy, (str, os.PathLike)):
        policy = Policy.load(policy)
    elif not isinstance(policy, Policy):
        raise PolicyError(f"policy must be a Policy or the path of a TOML file, not {type(policy).__name__}.")
    if policy.target_dtype is not default.target_dtype:
        raise PolicyError(
            f"The policy is for {policy.target_dtype}, but {argument('target_dtype')} is "
            f"{default.target_dtype}. Give the {argument('target_dtype')} that the policy is for."
        )
    if policy.target_dtype.is_emulated_only and not emulated:
        raise PolicyError(
            f"{policy.target_dtype} is not a dtype of MXNet: it exists in emulation only. Use "
            f"mxamp.emulate(sym, args, auxs, {policy.target_dtype.label!r}), or mxamp convert --emulate, to "
            "measure what it would do; to convert, use 'float16' (GPUs) or 'bfloat16' (CPUs)."
        )
    excluded = names_given(exclude, "exclude")
    present = {node.name for top in graphs_within(graph) for node in top.nodes} if excluded else set()
    # A name may hold the signs of a pattern: then it is a name first.
    patterns = [name for name in excluded if name not in present and any(sign in name for sign in "*?[")]
    names = [name for name in excluded if name not in patterns]
    policy = apply_mxnet_lists(
        policy,
        target_dtype_ops=target_dtype_ops,
        fp32_ops=fp32_ops,
        widest_dtype_ops=widest_dtype_ops,
        conditional_fp32_ops=conditional_fp32_ops,
        excluded_sym_names=excluded_sym_names,
        known_operators={node.op for top in graphs_within(graph) for node in top.nodes},
    )
    if names:
        policy = policy.excluding(names=names)
    for pattern in patterns:
        policy = policy.excluding(globs=[pattern])
    return policy.with_color_function(color) if color is not None else policy


def names_given(given: Any, label: str) -> list[str]:
    """Return names given by the user as a list; a generator can be read once only."""
    if given is None:
        return []
    if isinstance(given, str):
        raise PolicyError(f"{label} must be a list of names, not the string {given!r}: write [{given!r}].")
    names = items(given)
    if names is None or not all(isinstance(name, str) for name in names):
        raise PolicyError(f"{label} must be a list of names, which are strings, not {given!r}.")
    return names
