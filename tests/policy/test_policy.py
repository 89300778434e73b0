"""The policy as a value: the built-in tables, text, TOML, and every mistake a file can hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxamp.dtypes import DType
from mxamp.errors import ModelFileNotFoundError, PolicyError
from mxamp.ops import FACTS
from mxamp.policy import AttributeCondition, Color, OperatorPolicy, Policy, Selector, UserRule
from tests.building import BF16, F16, LOW, Net, colors


@pytest.fixture(params=LOW, ids=str)
def default(request: pytest.FixtureRequest) -> Policy:
    return Policy.default(request.param)


def test_the_default_policy_has_greens_and_reds_with_reasons(default: Policy) -> None:
    assert default.operators["Convolution"].color is Color.GREEN
    assert default.operators["FullyConnected"].accumulation is DType.FLOAT32
    assert default.operators["_contrib_box_nms"].color is Color.RED
    assert all(entry.reason for entry in default.operators.values())
    assert all(condition.reason for condition in default.conditions)


def test_the_default_policy_knows_every_operator_with_facts_and_no_other(default: Policy) -> None:
    records = {record.name for record in FACTS.records()}
    assert set(default.operators) - records == set()
    left_out = [record for record in FACTS.records() if record.name not in default.operators]
    # There is nothing to decide about operators that no cast reaches.
    assert not [record.name for record in left_out if any(role.shares_dtype for role in record.roles)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "half", "", None, 16, DType.INT32])
def test_a_dtype_no_model_can_be_converted_to_is_refused(dtype: object) -> None:
    with pytest.raises(PolicyError, match=r"'float16' .* or 'bfloat16'"):
        Policy.default(dtype)
    with pytest.raises(PolicyError, match="cannot be converted to float64"):
        Policy(DType.FLOAT64, {})


def test_a_dtype_may_be_given_in_every_form_mxnet_users_write() -> None:
    import numpy as np

    assert Policy.default("float16") is Policy.default(np.float16) is Policy.default(F16)


# ---------------------------------------------------------------------- TOML


def rich() -> Policy:
    policy = Policy(
        BF16,
        {
            "exp": OperatorPolicy(Color.RED, "overflows"),
            "softmax": OperatorPolicy(Color.GRAY, "keeps", DType.FLOAT32, DType.FLOAT32),
            "dot": OperatorPolicy(Color.GREEN, 'a "quoted"\nreason', DType.FLOAT32),
        },
        (AttributeCondition("Activation", "act_type", ("softrelu", "x"), Color.RED, "grows"),),
        widest_operators=frozenset({"add_n", "Concat"}),
    )
    selector = Selector.make(
        names=["a"], globs=["s_*"], patterns=["^b.$"], operators=["reshape"], attributes={"axis": "-1"}
    )
    return policy.with_rules([UserRule(selector, Color.GRAY, "mine")]).excluding(globs=["head_*"])


def test_a_policy_survives_toml() -> None:
    assert Policy.from_toml(rich().to_toml()) == rich()


def test_the_default_policy_survives_toml(default: Policy) -> None:
    assert Policy.from_toml(default.to_toml()) == default


def test_a_policy_survives_a_file(tmp_path: Path) -> None:
    rich().save(tmp_path / "policy.toml")
    assert Policy.load(tmp_path / "policy.toml") == Policy.load(str(tmp_path / "policy.toml")) == rich()


def test_a_file_that_extends_the_default_holds_only_the_differences(default: Policy) -> None:
    text = f"""
        target_dtype = "{default.target_dtype}"
        extends = "default"
        [green]
        exp = "bounded inputs in my model"
        [[condition]]
        op = "Pooling"
        attribute = "kernel"
        values = ["(7, 7)"]
        color = "red"
    """
    policy = Policy.from_toml(text)
    changed = {name for name, entry in policy.operators.items() if default.operators.get(name) != entry}
    assert changed == {"exp"}
    assert policy.operators["exp"] == OperatorPolicy(Color.GREEN, "bounded inputs in my model")
    assert policy.conditions[:-1] == default.conditions
    assert policy.conditions[-1].values == ("(7, 7)",)


def test_a_color_stated_for_an_operator_drops_the_defaults_exceptions_for_it() -> None:
    policy = Policy.from_toml('target_dtype = "float16"\nextends = "default"\n[green]\nActivation = "mine"')
    assert "Activation" not in {condition.op for condition in policy.conditions}


def test_aliases_in_a_file_are_the_canonical_operator() -> None:
    policy = Policy.from_toml('target_dtype = "float16"\n[red]\nreshape = "a"\n_plus = "b"\nconcat = "c"')
    assert set(policy.operators) == {"Reshape", "elemwise_add", "Concat"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target_dtype = ", "not valid TOML"),
        ('target_dtype = "float16"\ngren = {}', r"unknown key 'gren'\. Did you mean 'green'"),
        ("", "does not say its target_dtype"),
        ('target_dtype = "float61"', "target_dtype: 'float61' is not a dtype of MXNet"),
        ('target_dtype = "float64"', "cannot be converted to float64"),
        ('target_dtype = "float16"\nextends = "mine"', "only 'default' can be extended"),
        (
            'target_dtype = "float16"\n[green]\nReshape = "a"\n[red]\nreshape = "b"',
            r"'reshape' in both \[green\] and \[red\].*Remove it",
        ),
        ('target_dtype = "float16"\n[red]\nReshape = "a"\nreshape = "b"', "'reshape' in both"),
        ('target_dtype = "float16"\nred = ["exp"]', r"\[red\] must be a table"),
        ('target_dtype = "float16"\n[red]\nexp = 3', r"\[red\] exp must be a reason"),
        (
            'target_dtype = "float16"\n[red]\nexp = { color = "x" }',
            r"\[red\] exp must be a reason, or a table",
        ),
        ('target_dtype = "float16"\n[gray]\nexp = { output = "f32" }', "exp: output: 'f32' is not a dtype"),
        ('target_dtype = "float16"\n[[condition]]\nop = "exp"', "condition 0 needs op, attribute, values"),
        (
            'target_dtype = "float16"\n[[condition]]\nop = "a"\nattribute = "b"\nvalues = []\ncolor = "rde"',
            "'rde' is not a color. Did you mean 'red'",
        ),
        ('target_dtype = "float16"\n[[rule]]\nnames = ["a"]', "rule 0 needs a color"),
        ('target_dtype = "float16"\n[[rule]]\ncolor = "red"', "must select something"),
        (
            'target_dtype = "float16"\n[[rule]]\nname = ["a"]\ncolor = "red"',
            "selects by names, globs.*not by name",
        ),
        ('target_dtype = "float16"\n[[rule]]\nnames = "a"\ncolor = "red"', "must be a list of strings"),
        ('target_dtype = "float16"\n[[rule]]\npatterns = ["("]\ncolor = "red"', "not a regular expression"),
        ('target_dtype = "float16"\nrule = 3', "rule"),
        ('target_dtype = "float16"\ncondition = 3', "condition"),
        ('target_dtype = "float16"\nwidest_operators = 3', "widest_operators"),
        (
            'target_dtype = "float16"\n[[condition]]\nop = "a"\nattribute = "b"\nvalues = 3\ncolor = "red"',
            "values",
        ),
        ('target_dtype = "float16"\n[[rule]]\nattributes = 3\ncolor = "red"', "attributes"),
        ('target_dtype = "float16"\n[[rule]]\nnames = 3\ncolor = "red"', "names"),
        ("target_dtype = 3", "target_dtype"),
    ],
)
def test_a_mistake_in_a_file_is_named(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Policy.from_toml(text, source="policy.toml")


def test_a_missing_policy_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileNotFoundError, match="no policy file"):
        Policy.load(tmp_path / "policy.toml")


def test_a_color_function_cannot_be_saved_and_the_message_says_what_can() -> None:
    policy = rich().with_color_function(lambda node: None)
    with pytest.raises(PolicyError, match=r"with_color_function\(None\)"):
        policy.to_toml()
    assert Policy.from_toml(policy.with_color_function(None).to_toml()) == rich()


def test_a_policy_prints_what_it_holds() -> None:
    def careful(node: object) -> None:
        return None

    text = str(rich().with_color_function(careful))
    assert text.splitlines()[:4] == [
        "policy for bfloat16",
        "  green: 1 operators: dot",
        "  gray: 1 operators: softmax",
        "  red: 1 operators: exp",
    ]
    assert "  widest: Concat, add_n" in text
    assert "  Activation with act_type in softrelu, x: red (grows)" in text
    assert "  globs head_*: red (excluded by the user)" in text
    assert "  color function: careful" in text


def test_variants_leave_the_original_alone(default: Policy) -> None:
    before = default.to_toml()
    default.excluding(names=["a"])
    default.with_operators(Color.RED, ["Convolution"], "mine")
    default.with_color_function(lambda node: Color.RED)
    assert default.to_toml() == before


def test_an_operator_given_a_color_has_it_whatever_its_attributes(default: Policy) -> None:
    policy = default.with_operators(Color.GREEN, ["Activation"], "mine")
    net = Net()
    graph = net.graph(net.op("Activation", net.var("x"), name="a", act_type="softrelu"))
    assert colors(graph, {}, default.target_dtype)["a"].color is Color.RED
    assert colors(graph, {}, default.target_dtype, policy)["a"][:3] == (Color.GREEN, "operator table", "mine")
