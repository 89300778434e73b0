"""Random graphs emulate: soundly, with low values on their format's grid, and as bfloat16 computes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.conversion.emulation import emulate_model
from mxamp.dtypes import EMULATED_ONLY, DType
from mxamp.graph import Entry, verify_graph
from mxamp.graph.infer import infer_dtypes
from mxamp.graph.library_operators import emulated_dtypes
from mxamp.graph.output_names import output_names
from mxamp.model import Model
from mxamp.ops.reference import round_to
from mxamp.ops.rounding import is_rounding
from mxamp.passes import Emulation
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, F16, capable, convert, variables_of
from tests.property.strategies import SHAPE, Sample, kept_params, samples

FORMATS = (F16, BF16, *EMULATED_ONLY)

pytestmark = [
    pytest.mark.filterwarnings("ignore:mxamp knows nothing about the operator _mystery"),
    pytest.mark.filterwarnings("ignore:io_dtype"),
]


def emulated(sample: Sample, dtype: DType, **options: object) -> Model:
    emulation = options.pop("emulation", Emulation())
    target = options.setdefault("target", capable(dtype))
    model = convert(sample.graph, kept_params(sample), dtype, **options)
    assert isinstance(emulation, Emulation)
    assert isinstance(target, Target)
    return emulate_model(model, target, emulation)


@given(
    sample=samples(unknown=True),
    dtype=st.sampled_from(FORMATS),
    pure=st.booleans(),
    fold=st.booleans(),
    io_dtype=st.sampled_from([None, "low"]),
    cast_op=st.sampled_from(["amp_cast", "Cast"]),
)
def test_every_graph_emulates_to_a_sound_one(
    sample: Sample, dtype: DType, pure: bool, fold: bool, io_dtype: str | None, cast_op: str
) -> None:
    policy = Policy.pure(dtype) if pure else Policy.default(dtype)
    options = {"fold_batch_norm": fold, "io_dtype": io_dtype, "cast_op": cast_op}
    model = emulated(sample, dtype, policy=policy, **options)
    verify_graph(model.graph)
    assert output_names(model.graph) == output_names(sample.graph)
    for kinds in infer_dtypes(model.graph, variables_of(model)):
        assert not any(kind is not None and kind.is_low_precision for kind in kinds)
    outputs = {head.node for head in model.graph.heads}
    rounded = [
        (node.inputs, node.attrs["format"])
        for position, node in enumerate(model.graph.nodes)
        if is_rounding(node.op) and position not in outputs
    ]
    assert len(rounded) == len(set(rounded)), "a value is rounded twice"


@pytest.mark.parametrize("dtype", [F16, DType.parse("float8_e5m2", emulated=True)], ids=str)
@given(sample=samples(), pure=st.booleans())
def test_values_that_should_be_on_the_grid_are(dtype: DType, sample: Sample, pure: bool) -> None:
    pytest.importorskip("mxnet", reason="runs the graphs")
    from mxamp.runtime.entries import run_entries

    policy = Policy.pure(dtype) if pure else Policy.default(dtype)
    model = emulated(sample, dtype, policy=policy)
    kinds = emulated_dtypes(model.graph, infer_dtypes(model.graph, variables_of(model)))
    entries = [
        Entry(position)
        for position, node in enumerate(model.graph.nodes)
        if not node.is_variable and kinds[position][0] is dtype
    ]
    data = {"data": np.random.default_rng(3).uniform(-1, 1, SHAPE).astype(np.float32)}
    for entry, values in run_entries(model, data, entries):
        np.testing.assert_array_equal(
            round_to(values, dtype.label), values, err_msg=str(model.graph.nodes[entry.node])
        )


@given(sample=samples(continuous=True, casts=False))
def test_emulated_bfloat16_is_bfloat16_but_for_the_order_of_sums(sample: Sample) -> None:
    pytest.importorskip("mxnet", reason="runs the graphs")
    from mxamp.runtime.executor import run_outputs

    target = Target.for_dtype(BF16)
    data = {"data": np.random.default_rng(3).uniform(-1, 1, SHAPE).astype(np.float32)}
    real = convert(sample.graph, kept_params(sample), BF16, target=target)
    model = emulate_model(real, target, Emulation(fusion=False))
    for truth, found in zip(run_outputs(real, data, fusion=False), run_outputs(model, data, fusion=False)):
        # A flip of one rounding is 2**-8 of a value, and later layers may add several up.
        scale = max(float(np.abs(truth).max()), 1e-3)
        assert np.abs(truth - found).max() <= 2.0**-5 * scale
        assert np.mean(truth == found) > 0.5 or np.abs(truth - found).max() <= 2.0**-8 * scale
