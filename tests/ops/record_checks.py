"""What an operator's record claims, held against MXNet's type inference for one call."""

from __future__ import annotations

import itertools
from typing import Iterator, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.graph import Graph
from mxamp.graph.infer import infer_dtypes
from mxamp.ops import FACTS, InputRole, OperatorFacts
from tests.ops.operator_cases import Case, Inferred, build, infer_with_mxnet, input_names

__all__ = ["LENIENT_INFERENCE", "LOW", "Call", "check_record", "possible_call"]

LOW = (DType.FLOAT16, DType.BFLOAT16)
FLOATS = (DType.FLOAT32, *LOW)
REST = (DType.FLOAT64, DType.INT64, DType.INT32, DType.INT8, DType.UINT8, DType.BOOL)
OTHER_DTYPES = (DType.FLOAT32, DType.INT32, *LOW)

LENIENT_INFERENCE = {
    ("_contrib_SyncBatchNorm", 0): "the kernel reads FP32 whatever the data's dtype is",
    ("BatchNorm_v1", 0): "the kernel reads FP32 whatever the data's dtype is",
    ("CTCLoss", 0): "the kernel reads FP32 whatever the data's dtype is",
    ("_contrib_index_copy", 0): "the kernel reads all three in the output's dtype",
    ("_contrib_index_copy", 2): "the kernel reads all three in the output's dtype",
    **{
        (f"_linalg_{name}", 0): "the kernel takes FP32 and FP64 alone"
        for name in (
            *("syrk", "potrf", "potri", "gelqf", "inverse", "sumlogdiag", "syevd", "extractdiag"),
            *("extracttrian", "makediag", "maketrian"),
        )
    },
    ("_contrib_fft", 0): "the kernel reads FP32 whatever the data's dtype is",
    ("_contrib_ifft", 0): "the kernel reads FP32 whatever the data's dtype is",
    ("_contrib_DeformablePSROIPooling", 2): "the kernel reads all three in the data's dtype",
    ("_histogram", 0): "the kernel reads both in the data's dtype",
    ("_histogram", 1): "the kernel reads both in the data's dtype",
    **{
        ("_contrib_quantized_elemwise_add", number): "the kernel reads the ranges as FP32"
        for number in range(2, 6)
    },
    **{
        (f"_npi_{name}", 0): "the kernel takes FP32 and FP64 alone"
        for name in ("cholesky", "svd", "tensorinv", "pinv", "pinv_scalar_rcond")
    },
    **{
        (f"_npi_{name}", 0): "type inference refuses FP16, and makes FP64 of BF16"
        for name in ("eig", "eigh", "eigvals", "eigvalsh", "solve", "tensorsolve")
    },
    **{
        (f"_npi_{name}", 1): "type inference refuses FP16, and makes FP64 of BF16"
        for name in ("solve", "tensorsolve")
    },
}
"""(operator, input) whose dtype type inference lets differ although the kernel then fails -> why it fails."""


class Call:
    """A call that was built, with what the record says of its inputs.

    Attributes
    ----------
    given, graph, facts
        The call, its graph, the operator's record.
    names, roles
        The names and roles of its inputs.
    index_dtypes
        The dtypes that INDEX inputs may have.
    data
        The first dtype that the record lets the data have.
    kept
        A dtype that MXNet takes for each KEPT input: these come as they are, and the record does not say how.
    """

    def __init__(self, given: Case) -> None:
        self.given = given
        self.graph: Graph = build(given)
        facts = FACTS.get(given.op)
        assert facts is not None, f"{given.op} has no record"
        self.facts: OperatorFacts = facts
        self.names: Sequence[str] = input_names(self.graph)
        node = self.graph.nodes[-1]
        self.roles = [facts.role(number, node.attrs) for number in range(len(node.inputs))]
        self.index_dtypes = given.index_dtypes
        self.data = next(dtype for dtype in (*FLOATS, *REST) if dtype not in facts.refuses)
        self.kept: Mapping[str, DType] = {}
        self._find_kept_dtypes()

    def _find_kept_dtypes(self) -> None:
        """Try a dtype for the first few KEPT inputs, with FP32 for the rest: ranges of quantized data."""
        names = [name for name, role in zip(self.names, self.roles) if role is InputRole.KEPT]
        for count, dtype in itertools.product(range(1, len(names) + 1), (DType.FLOAT32, *REST)):
            self.kept = {**dict.fromkeys(names, DType.FLOAT32), **dict.fromkeys(names[:count], dtype)}
            if any(self.takes(self.assign(self.data, index=index)) for index in self.index_dtypes):
                return

    def assign(
        self,
        data: DType,
        *,
        index: DType | None = None,
        other: DType = DType.INT32,
        parameter: DType = DType.FLOAT32,
    ) -> dict[str, DType]:
        """Give every input a dtype that its role allows."""
        by_role = {InputRole.PARAM_FP32: parameter, InputRole.INDEX: index or self.index_dtypes[0]}
        return {
            name: self.kept.get(name) or (data if role.shares_dtype else by_role.get(role, other))
            for name, role in zip(self.names, self.roles)
        }

    def assignments(self) -> Iterator[dict[str, DType]]:
        """Yield every assignment that MXNet must take, once."""
        seen: list[Mapping[str, DType]] = []  # most operators have no INDEX, LIKE or FREE input
        for data, index, other in itertools.product(FLOATS, self.index_dtypes, OTHER_DTYPES):
            variables = self.assign(data, index=index, other=other)
            if data not in self.facts.refuses and variables not in seen:
                seen.append(variables)
                yield variables

    def infer(self, variables: Mapping[str, DType]) -> Inferred | None:
        """Return what MXNet infers; None where it refuses or cannot tell."""
        from mxnet.base import MXNetError

        try:
            return infer_with_mxnet(self.graph, variables)
        except MXNetError:
            return None

    def keeps_integers(self) -> bool:
        """Whether the first KEPT input takes nothing but integers: that of an operator on quantized data."""
        return bool(self.kept) and not any(
            self.takes({**self.assign(self.data), next(iter(self.kept)): dtype}) for dtype in FLOATS
        )

    def takes(self, variables: Mapping[str, DType]) -> bool:
        """Whether MXNet takes these dtypes as they are."""
        found = self.infer(variables)
        return found is not None and found.variables == variables

    def outputs(self, variables: Mapping[str, DType]) -> tuple[DType | None, ...]:
        """Return the outputs' dtypes by our own inference."""
        return tuple(infer_dtypes(self.graph, variables)[-1])

    def is_lenient(self, number: int) -> bool:
        """Whether type inference takes dtypes for an input that the kernel then refuses."""
        return (self.given.op, number) in LENIENT_INFERENCE


def possible_call(given: Case) -> Call | None:
    """Return a call whose index dtypes are those that MXNet takes; None where it takes the call with none."""
    call = Call(given)
    candidates = (DType.FLOAT32, *REST) if InputRole.INDEX in call.roles else given.index_dtypes[:1]
    call.index_dtypes = tuple(
        index for index in candidates if call.takes(call.assign(call.data, index=index))
    )
    return call if call.index_dtypes else None


def check_record(call: Call) -> None:
    """Check everything that the record says of dtypes, for one call."""
    _check_outputs(call)
    _check_shared_dtypes(call)
    _check_float32_inputs(call)
    _check_kept_inputs(call)
    _check_refused_dtypes(call)


def _check_outputs(call: Call) -> None:
    """Check that MXNet takes what the roles allow and gives the outputs the dtypes that we do.

    FP64, integers and truth values need not be taken, but where they are, the outputs must be right as well.
    """
    for variables in call.assignments():
        found = infer_with_mxnet(call.graph, variables)
        if found is None:
            assert not any(call.outputs(variables)), f"MXNet cannot tell the dtypes from {variables}"
            continue
        assert found.variables == variables, "MXNet put other dtypes in their place"
        _compare(call, variables, found)
    lenient = any(map(call.is_lenient, range(len(call.roles))))
    for data, parameter in itertools.product(REST, (DType.FLOAT32, DType.FLOAT64)):
        variables = call.assign(data, parameter=parameter)
        found = call.infer(variables)
        if found is not None and found.variables == variables and not lenient:
            _compare(call, variables, found)


def _compare(call: Call, variables: Mapping[str, DType], found: Inferred) -> None:
    ours = call.outputs(variables)
    assert len(ours) == len(found.outputs)
    for number, (mine, mxnets) in enumerate(zip(ours, found.outputs)):
        unknown = mine is None and call.keeps_integers()  # it is one of those integers' dtypes
        assert mine is mxnets or unknown, f"output {number} is {mxnets}, not {mine}, for {variables}"


def _check_shared_dtypes(call: Call) -> None:
    """Check that MXNet refuses, or promotes, two dtypes among the inputs that the record says share one."""
    sharing = [number for number, role in enumerate(call.roles) if role.shares_dtype]
    if len(sharing) < 2:
        return
    dtypes = [dtype for dtype in FLOATS if dtype not in call.facts.refuses]
    if len(dtypes) < 2:  # an operator on integers
        dtypes = [dtype for dtype in REST if call.takes(call.assign(dtype))][:3]
    for data, strange in itertools.permutations(dtypes, 2):
        for number in sharing:
            mixed = {**call.assign(data), call.names[number]: strange}
            if call.facts.promotes:
                found = infer_with_mxnet(call.graph, mixed)
                assert found is not None
                _compare(call, mixed, found)
            else:
                assert call.takes(mixed) is call.is_lenient(number), (call.names[number], data, strange)


def _check_float32_inputs(call: Call) -> None:
    """Check that MXNet refuses low precision in the inputs that the record says are FP32."""
    for low in LOW:
        for number, role in enumerate(call.roles):
            if role is InputRole.PARAM_FP32 and not call.is_lenient(number):
                variables = {**call.assign(low), call.names[number]: low}
                assert not call.takes(variables), (call.names[number], low)


def _check_kept_inputs(call: Call) -> None:
    """Check that an input which is left as it is takes integers alone, or every dtype there is.

    Of others the record could say more: that they are FP32, or have the dtype of the data.
    """
    for name in call.kept:
        variables = call.assign(call.data)
        taken = [dtype for dtype in (*FLOATS, *REST) if call.takes({**variables, name: dtype})]
        assert len(taken) == len(FLOATS) + len(REST) or not any(dtype.is_float for dtype in taken), (
            name,
            taken,
        )


def _check_refused_dtypes(call: Call) -> None:
    """Check that MXNet refuses the dtypes of data that the record says it refuses."""
    for dtype in call.facts.refuses:
        assert not call.takes(call.assign(dtype)), dtype
