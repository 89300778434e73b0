"""The facts table: look-up, registration, attribute rules, names."""

from __future__ import annotations

import pytest

from mxamp.dtypes import DType
from mxamp.errors import OperatorError
from mxamp.ops import FACTS, FactsTable, InputRole, OperatorFacts, Registration, SameAsData, ValueKind
from mxamp.ops.facts_table import OperatorFamily
from mxamp.ops.roles import FromAttribute
from mxamp.ops.tables import ALL_RECORDS

ZOO_OPERATORS = (
    *("Activation", "BatchNorm", "BlockGrad", "Cast", "Concat", "Convolution", "Deconvolution", "Dropout"),
    *(
        "Flatten",
        "FullyConnected",
        "L2Normalization",
        "LeakyReLU",
        "Pad",
        "Pooling",
        "Reshape",
        "SliceChannel",
    ),
    *("SwapAxis", "UpSampling", "_arange", "_contrib_AdaptiveAvgPooling2D", "_contrib_BilinearResize2D"),
    *("_contrib_ModulatedDeformableConvolution", "_contrib_ROIAlign", "_contrib_SyncBatchNorm"),
    *("_contrib_box_decode", "_contrib_box_nms", "_div_scalar", "_equal_scalar", "_greater_scalar"),
    *(
        "_lesser_scalar",
        "_maximum_scalar",
        "_minus_scalar",
        "_mul_scalar",
        "_plus_scalar",
        "add_n",
        "argsort",
    ),
    *("batch_dot", "broadcast_add", "broadcast_axis", "broadcast_div", "broadcast_equal", "broadcast_like"),
    *("broadcast_minimum", "broadcast_mod", "broadcast_mul", "clip", "elemwise_add", "elemwise_mul"),
    *("elemwise_sub", "exp", "expand_dims", "floor", "gather_nd", "log2", "max", "mean", "ones_like", "relu"),
    *("repeat", "reshape_like", "reverse", "shape_array", "sigmoid", "slice", "slice_axis", "slice_like"),
    *("softmax", "sqrt", "squeeze", "stack", "sum", "tile", "topk", "transpose", "where", "zeros_like"),
)
"""Every operator that a GluonCV 0.10.5 zoo model holds."""


def facts_of(op: str) -> OperatorFacts:
    facts = FACTS.get(op)
    assert facts is not None
    return facts


@pytest.mark.parametrize("op", ZOO_OPERATORS)
def test_every_zoo_operator_has_a_record_under_its_own_name(op: str) -> None:
    assert facts_of(op).name == op


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("reshape", "Reshape"),
        ("identity", "_copy"),
        ("stop_gradient", "BlockGrad"),
        ("ElementWiseSum", "add_n"),
        ("split", "SliceChannel"),
        ("cumsum", "_np_cumsum"),
        ("_NotEqualScalar", "_not_equal_scalar"),
        ("_Not_Equal", "_not_equal"),
        ("Softmax", "SoftmaxOutput"),
        ("ctc_loss", "CTCLoss"),
        ("_sparse_relu", "relu"),
    ],
)
def test_alias_leads_to_its_operator(alias: str, name: str) -> None:
    assert FACTS.get(alias) is FACTS.get(name)
    assert FACTS.canonical(alias) == name


def test_different_operators_with_similar_names_are_apart() -> None:
    for one, other in (
        ("Convolution", "Convolution_v1"),
        ("Pooling", "Pooling_v1"),
        ("MakeLoss", "make_loss"),
        ("Crop", "crop"),
        ("softmax", "Softmax"),
    ):
        assert FACTS.canonical(one) != FACTS.canonical(other)


def test_unknown_operator_has_no_facts_and_keeps_its_name() -> None:
    assert FACTS.get("my_operator") is None
    assert FACTS.canonical("my_operator") == "my_operator"


def test_names_lists_aliases_and_records_lists_each_operator_once() -> None:
    assert {"Reshape", "reshape"} <= set(FACTS.names())
    assert list(FACTS.names()) == sorted(FACTS.names())
    assert len(FACTS.records()) == len(ALL_RECORDS)


def test_name_claimed_twice_is_rejected() -> None:
    mine = OperatorFacts("my_operator", (InputRole.DATA,), aliases=("Concat",))
    with pytest.raises(OperatorError, match=r"'Concat' has facts already, under 'Concat'.*replace=True"):
        FactsTable([*ALL_RECORDS, mine])


def test_rejected_record_leaves_the_table_as_it_was() -> None:
    table = FactsTable(ALL_RECORDS)
    with pytest.raises(OperatorError):
        table.entries(OperatorFacts("my_operator", (InputRole.DATA,), aliases=("Concat",)))
    assert table.get("my_operator") is None


def test_replacement_takes_over_the_aliases() -> None:
    table = FactsTable(ALL_RECORDS)
    mine = OperatorFacts("Concat", (), rest=InputRole.DATA, kind=ValueKind.COMPUTE)
    table.by_name.update(table.entries(mine, replace=True))
    assert table.get("Concat") is mine
    assert table.get("concat") is mine
    assert len(table.records()) == len(ALL_RECORDS)


def test_role_beyond_those_listed_is_the_repeated_one_or_free() -> None:
    assert facts_of("Concat").role(17) is InputRole.DATA
    assert facts_of("Convolution").role(3) is InputRole.FREE


@pytest.mark.parametrize(
    ("mode", "roles"),
    [
        ("lstm", [InputRole.DATA, InputRole.INDEX]),
        ("gru", [InputRole.INDEX, InputRole.FREE]),
        ("rnn_relu", [InputRole.INDEX, InputRole.FREE]),
    ],
)
def test_sequence_lengths_come_after_the_cell_state_only_an_lstm_has(
    mode: str, roles: list[InputRole]
) -> None:
    rnn = facts_of("RNN")
    assert [rnn.role(number, {"mode": mode}) for number in (3, 4)] == roles


def test_role_without_attributes_is_the_general_one() -> None:
    assert facts_of("RNN").role(4) is InputRole.INDEX
    assert facts_of("Convolution").role(1, {"kernel": "(1, 1)"}) is InputRole.DATA


def test_output_dtype_follows_data() -> None:
    for dtype in (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.INT8, None):
        assert facts_of("Reshape").output_dtypes({}, dtype, 1) == (dtype,)


def test_further_outputs_follow_the_last_rule() -> None:
    assert facts_of("SliceChannel").output_dtypes({}, DType.FLOAT16, 3) == (DType.FLOAT16,) * 3
    assert facts_of("BatchNorm").output_dtypes({}, DType.FLOAT16, 3) == (
        DType.FLOAT16,
        DType.FLOAT32,
        DType.FLOAT32,
    )


@pytest.mark.parametrize(
    ("data", "statistics"),
    [
        (DType.FLOAT16, DType.FLOAT32),
        (DType.BFLOAT16, DType.FLOAT32),
        (DType.FLOAT32, DType.FLOAT32),
        (DType.FLOAT64, DType.FLOAT64),
        (None, None),
    ],
)
def test_statistics_are_at_least_float32(data: DType | None, statistics: DType | None) -> None:
    assert facts_of("BatchNorm").output_dtypes({}, data, 2) == (data, statistics)


@pytest.mark.parametrize(
    ("attrs", "dtype"),
    [
        ({}, DType.BFLOAT16),
        ({"dtype": "None"}, DType.BFLOAT16),
        ({"dtype": "float32"}, DType.FLOAT32),
        ({"dtype": "float16"}, DType.FLOAT16),
    ],
)
def test_dtype_attribute_decides_and_none_means_absent(attrs: dict[str, str], dtype: DType) -> None:
    assert facts_of("softmax").output_dtypes(attrs, DType.BFLOAT16, 1) == (dtype,)


def test_dtype_attribute_has_a_default_of_its_own() -> None:
    assert facts_of("_arange").output_dtypes({}, None, 1) == (DType.FLOAT32,)
    assert facts_of("argsort").output_dtypes({}, DType.FLOAT16, 1) == (DType.FLOAT32,)
    assert facts_of("norm").output_dtypes({"out_dtype": "float32"}, DType.FLOAT16, 1) == (DType.FLOAT32,)


def test_bad_dtype_attribute_names_operator_attribute_and_value() -> None:
    with pytest.raises(OperatorError, match=r"softmax has the attribute dtype='float17'") as caught:
        facts_of("softmax").output_dtypes({"dtype": "float17"}, DType.FLOAT32, 1)
    assert "Did you mean 'float16'" in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("code", ["float16", "99", ""])
def test_bad_dtype_code_names_operator_and_value(code: str) -> None:
    with pytest.raises(OperatorError, match=rf"_zeros_without_dtype has the attribute dtype='{code}'"):
        facts_of("_zeros_without_dtype").output_dtypes({"dtype": code}, None, 1)


def test_zeros_without_dtype_have_an_unknown_dtype() -> None:
    zeros = facts_of("_zeros_without_dtype")
    assert zeros.output_dtypes({}, None, 1) == (None,)
    assert zeros.output_dtypes({"dtype": "-1"}, None, 1) == (None,)
    assert zeros.output_dtypes({"dtype": "2"}, None, 1) == (DType.FLOAT16,)


@pytest.mark.parametrize(
    ("returns", "dtypes", "seeds"),
    [
        ("indices", (DType.INT64,), (0,)),
        ("both", (DType.FLOAT16, DType.INT64), (1,)),
        ("value", (DType.FLOAT16, DType.INT32), (1,)),
        ("mask", (DType.FLOAT16,), ()),
    ],
)
def test_topk_outputs_depend_on_ret_typ(
    returns: str, dtypes: tuple[DType, ...], seeds: tuple[int, ...]
) -> None:
    topk, attrs = facts_of("topk"), {"ret_typ": returns, "dtype": "int64"}
    assert topk.output_dtypes(attrs, DType.FLOAT16, len(dtypes)) == dtypes
    assert topk.seed_outputs(attrs) == seeds


def test_topk_returns_indices_by_default() -> None:
    assert facts_of("topk").output_dtypes({}, DType.FLOAT16, 1) == (DType.FLOAT32,)
    assert facts_of("topk").seed_outputs({}) == (0,)


def test_seeds_are_the_same_for_all_attributes_elsewhere() -> None:
    assert facts_of("_arange").seed_outputs({"start": "0"}) == (0,)


@pytest.mark.parametrize(
    ("op", "count", "names"),
    [
        ("Convolution", 1, ["output"]),
        ("moments", 2, ["output0", "output1"]),
        ("BatchNorm", 3, ["output", "mean", "var"]),
        ("LayerNorm", 3, ["output", "mean", "std"]),
        ("Dropout", 2, ["output", "mask"]),
        ("SliceChannel", 1, ["output0"]),
        ("SliceChannel", 3, ["output0", "output1", "output2"]),
        ("_split_v2", 1, ["output"]),
        ("make_loss", 1, ["loss"]),
        ("_contrib_box_nms", 2, ["output0", "output1"]),
    ],
)
def test_output_names(op: str, count: int, names: list[str]) -> None:
    assert [facts_of(op).output_name(index, count) for index in range(count)] == names


@pytest.mark.parametrize("op", ["Crop", "InstanceNorm", "_contrib_SyncBatchNorm", "_contrib_MultiBoxPrior"])
def test_operator_that_exists_in_float32_alone_says_so(op: str) -> None:
    facts = facts_of(op)
    assert facts.only_float32
    assert facts.output_dtypes({}, None, 1) == (DType.FLOAT32,)


@pytest.mark.parametrize("op", ["BatchNorm", "Convolution", "Concat", "_arange", "one_hot", "Cast"])
def test_operator_of_several_dtypes_is_not_float32_alone(op: str) -> None:
    assert not facts_of(op).only_float32


def test_variadic_operator_of_float32_alone_says_so() -> None:
    facts = OperatorFacts("mine", (), rest=InputRole.PARAM_FP32, outputs=(DType.FLOAT32,))
    assert facts.only_float32


@pytest.mark.parametrize("facts", ALL_RECORDS, ids=lambda facts: facts.name)
def test_record_is_consistent(facts: OperatorFacts) -> None:
    roles = facts.roles if facts.rest is None else (*facts.roles, facts.rest)
    shares = any(role.shares_dtype for role in roles)
    # Of what comes as it is, nobody may know the dtype.
    if facts.outputs_by_attributes is None and not shares and InputRole.KEPT not in roles and not facts.apart:
        for rule in facts.outputs:
            default = rule.default if isinstance(rule, FromAttribute) else rule
            follows = default in (SameAsData.SAME, SameAsData.AT_LEAST_FLOAT32)
            assert not follows, "no input gives the output its dtype"
    if facts.kind is ValueKind.GENERATE:
        assert InputRole.DATA not in facts.roles, "what reads data computes or moves"
    assert facts.name not in facts.aliases
    assert len(set(facts.aliases)) == len(facts.aliases)


# ---------------------------------------------------------------------- families, and what stands apart


@pytest.mark.parametrize(
    "op",
    [
        *("_backward_Convolution", "_backward_npi_add", "_contrib_backward_quadratic", "_broadcast_backward"),
        *("_split_v2_backward", "_backward_my_library_operator"),
    ],
)
def test_family_answers_for_every_name_that_fits(op: str) -> None:
    facts = facts_of(op)
    assert facts.name == op
    assert facts.never_in_inference.startswith("a gradient")
    assert facts.role(7) is InputRole.KEPT
    assert facts.output_dtypes({}, None, 2) == (None, None)
    assert FACTS.canonical(op) == op
    assert FACTS.of(op, {}) == facts


@pytest.mark.parametrize("op", ["backward", "_backward_", "my_backward_pass", "x_backward"])
def test_family_answers_for_no_other_name(op: str) -> None:
    assert FACTS.get(op) is None


def test_record_goes_before_its_family() -> None:
    family = OperatorFamily("my_.*", "never")
    mine = OperatorFacts("my_operator", (InputRole.DATA,))
    table = FactsTable([mine], [family, OperatorFamily(".*", "at all")])
    assert table.get("my_operator") is mine
    assert table.records() == [mine]
    assert table.names() == ["my_operator"]
    assert [table.get(op).never_in_inference for op in ("my_other", "yours")] == ["never", "at all"]
    assert table.families == (family, OperatorFamily(".*", "at all"))


@pytest.mark.parametrize(
    ("op", "why"),
    [
        *(("amp_cast", "a cast"), ("amp_multicast", "a cast")),
        *((op, "control flow") for op in ("_foreach", "_while_loop", "_cond")),
        *((op, "code of the user's") for op in ("Custom", "_npi_Custom", "_Native", "_CachedOp")),
    ],
)
def test_operator_that_code_decides_about_has_a_record_that_converts_nothing(op: str, why: str) -> None:
    assert why in facts_of(op).apart
    assert FACTS.of(op, {"op_type": "swish"}) is None


def test_casts_that_are_ordinary_operators_are_not_apart() -> None:
    assert FACTS.of("Cast", {}) is FACTS.get("Cast")


def test_canonical_name_of_a_python_operator_holds_its_type() -> None:
    table = FactsTable([*ALL_RECORDS, OperatorFacts("Custom:swish", (InputRole.DATA,))])
    assert table.canonical_of("Custom", {"op_type": "swish"}) == "Custom:swish"
    assert table.canonical_of("Custom", {"op_type": "other"}) == "Custom"
    assert table.canonical_of("concat", {}) == "Concat"


def test_registration_can_be_taken_back() -> None:
    table = FactsTable(ALL_RECORDS)
    before = dict(table.by_name)
    mine = OperatorFacts("_copy", (InputRole.COORDINATE,), aliases=("my_copy",))
    entries = table.entries(mine, replace=True)
    assert set(entries) == {"_copy", "my_copy", *facts_of("_copy").aliases}
    with Registration("_copy", mine, (table.by_name, entries)):
        assert {name: table.get(name) for name in entries} == entries
    assert table.by_name == before


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (DType.FLOAT64, DType.FLOAT64),
        (DType.FLOAT32, DType.FLOAT32),
        (DType.FLOAT16, DType.FLOAT32),
        (None, DType.FLOAT32),
    ],
)
def test_linear_algebra_is_float32_or_float64(given: DType | None, expected: DType) -> None:
    facts = facts_of("_linalg_gemm2")
    assert facts.only_float32
    assert facts.data_dtype({}, [given, given]) is given
    assert facts.output_dtypes({}, given, 1) == (expected,)


@pytest.mark.parametrize(
    ("op", "attrs", "outputs"),
    [
        ("_contrib_quantize_v2", {"out_type": "auto"}, (DType.INT8, DType.FLOAT32, DType.FLOAT32)),
        (
            *("_contrib_quantize_v2", {"out_type": "auto", "min_calib_range": "0", "max_calib_range": "1"}),
            (DType.UINT8, DType.FLOAT32, DType.FLOAT32),
        ),
        (
            *("_contrib_requantize", {"out_type": "auto", "min_calib_range": "None", "max_calib_range": "1"}),
            (DType.INT8, DType.FLOAT32, DType.FLOAT32),
        ),
        ("_contrib_quantized_elemwise_mul", {"enable_float_output": "True"}, (DType.FLOAT32,)),
        ("_sg_mkldnn_conv", {"quantized": "true"}, (DType.INT32, DType.FLOAT32, DType.FLOAT32)),
        ("_sg_mkldnn_conv", {"quantized": "true", "enable_float_output": "true"}, (DType.FLOAT32,)),
        (
            *("_sg_mkldnn_conv", {"quantized": "true", "min_calib_range": "0", "max_calib_range": "1"}),
            (None, DType.FLOAT32, DType.FLOAT32),
        ),
    ],
)
def test_quantized_outputs_follow_the_attributes(
    op: str, attrs: dict[str, str], outputs: tuple[DType | None, ...]
) -> None:
    assert facts_of(op).output_dtypes(attrs, None, len(outputs)) == outputs


@pytest.mark.parametrize("quantized", ["False", "True"])
def test_fused_operator_computes_in_its_datas_dtype_unless_it_is_quantized(quantized: str) -> None:
    facts, attrs = facts_of("_sg_mkldnn_fully_connected"), {"quantized": quantized}
    assert facts.role(0, attrs).shares_dtype is (quantized == "False")
    assert facts.role(1, attrs) is InputRole.KEPT
    assert not facts.only_float32
