"""Every operator record says what MXNet's own registry and type inference say."""

from __future__ import annotations

from typing import Mapping

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the facts are compared with MXNet's own type inference")

from mxnet.base import MXNetError

from mxamp.dtypes import DType
from mxamp.graph import write_symbol
from mxamp.graph.infer import infer_dtypes
from tests.ops import core_cases, numpy_cases, other_cases
from tests.ops.generated_cases import generated_cases
from tests.ops.operator_cases import Case, build, case, infer_with_mxnet, input_names
from tests.ops.record_checks import LENIENT_INFERENCE, LOW, Call, check_record
from tools.registered_operators import registered_operators

CASES = (*core_cases.CASES, *numpy_cases.CASES, *other_cases.CASES)
CASE_IDS = [str(given) for given in CASES]
by_case = pytest.mark.parametrize("given", CASES, ids=CASE_IDS)


def test_no_case_is_given_twice() -> None:
    assert len(set(CASE_IDS)) == len(CASES)


@by_case
def test_name_is_canonical_and_inputs_come_in_order(given: Case) -> None:
    graph = build(given)
    assert graph.nodes[-1].op == given.op
    assert input_names(graph) == tuple(f"n_{name}" for name in given.inputs)


@by_case
def test_output_names_are_mxnets(given: Case) -> None:
    graph = build(given)
    names = mx.sym.load_json(write_symbol(graph)).list_outputs()
    facts, count = Call(given).facts, graph.nodes[-1].num_outputs
    assert names == [f"n_{facts.output_name(index, count)}" for index in range(count)]


@by_case
def test_record_says_what_type_inference_says(given: Case) -> None:
    check_record(Call(given))


def test_statistics_follow_float64_data() -> None:
    graph = build(case("BatchNorm", "data gamma beta moving_mean moving_var", output_mean_var=True))
    variables = dict.fromkeys(input_names(graph), DType.FLOAT64)
    found = infer_with_mxnet(graph, variables)
    assert found is not None
    assert infer_dtypes(graph, variables)[-1] == found.outputs == (DType.FLOAT64,) * 3


ON_GPUS_ALONE = ("_contrib_fft", "_contrib_ifft")

INTO_FLOAT64 = ("_npi_eig", "_npi_eigh", "_npi_eigvals", "_npi_eigvalsh", "_npi_solve", "_npi_tensorsolve")
"""Operators that take low precision, and compute with FP64."""

NORMALISED = [(1, 2, 1, 1), (2,), (2,), (2,), (2,)]
SHAPES = {
    "BatchNorm_v1": NORMALISED,
    "CTCLoss": [(4, 1, 3), (1, 1)],
    "_contrib_DeformablePSROIPooling": [(1, 1, 4, 4), (1, 5), (1, 2, 1, 1)],
    "_contrib_SyncBatchNorm": NORMALISED,
    "_contrib_index_copy": [(3, 2), (1,), (1, 2)],
    "_contrib_quantized_elemwise_add": [(2, 2), (2, 2), (1,), (1,), (1,), (1,)],
    "_histogram": [(4,), (2,)],
    "_linalg_maketrian": [(3,)],
    "_npi_pinv": [(2, 2), ()],
    "_npi_tensorinv": [(2, 2, 2, 2)],
    "_npi_tensorsolve": [(2, 2), (2,)],
}
"""Operator -> shapes of inputs with which it runs; two rows and two columns where nothing is said."""


def forward(call: Call, variables: Mapping[str, DType]) -> list[DType]:
    """Run a call once, with a matrix where it takes matrices; return the dtypes that come out."""
    sym = mx.sym.load_json(write_symbol(call.graph))
    arrays = {}
    for name, shape in zip(call.names, SHAPES.get(call.given.op, [(2, 2)] * len(call.names))):
        size = int(np.prod(shape))
        rows = int(np.sqrt(size))
        is_square = len(shape) % 2 == 0 and rows * rows == size
        values = (2 * np.eye(rows) if is_square else np.arange(1.0, 1 + size)).reshape(shape)
        arrays[name] = mx.nd.array(values)
        if variables[name] is not DType.FLOAT32:
            arrays[name] = mx.nd.amp_cast(arrays[name], dtype=str(variables[name]))
    auxs = {name: arrays.pop(name) for name in sym.list_auxiliary_states()}
    outputs = sym.bind(mx.cpu(), arrays, aux_states=auxs).forward()
    for output in outputs:
        output.wait_to_read()
    return [DType.from_numpy(output.dtype) for output in outputs]


@pytest.mark.parametrize(
    ("op", "number"), [key for key in LENIENT_INFERENCE if key[0] not in ON_GPUS_ALONE], ids=str
)
def test_kernel_refuses_what_inference_lets_pass_or_makes_it_float64(op: str, number: int) -> None:
    given = next((given for given in CASES if given.op == op), None)
    call = Call(given or next(generated_cases(registered_operators()[op])))
    variables = call.assign(DType.FLOAT32, other=DType.FLOAT32)
    passing = [low for low in LOW if call.takes({**variables, call.names[number]: low})]
    assert passing
    with mx.util.np_shape(op.startswith("_npi_")):
        forward(call, variables)
        for low in passing:
            if op in INTO_FLOAT64:
                assert DType.FLOAT64 in forward(call, {**variables, call.names[number]: low})
            else:
                with pytest.raises(MXNetError):
                    forward(call, {**variables, call.names[number]: low})
