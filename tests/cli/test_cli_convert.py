"""``mxamp convert``: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mxamp import convert_model
from mxamp.cli import convert
from mxamp.dtypes import DType
from mxamp.model import Model, load
from mxamp.model.provenance import read_provenance
from mxamp.params.parameter import ArrayParameter
from mxamp.report.guard import GuardReport, MeasuredRatio
from mxamp.report.model import Report
from mxamp.report.short import short_summary
from tests.building import AUXILIARY, Net, parameters

ROOT = Path(__file__).resolve().parents[2]

RUN_WITHOUT_MXNET = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mxnet", "gluoncv"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
from mxamp.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_mxnet(*argv: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", RUN_WITHOUT_MXNET, *argv],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )


# ---------------------------------------------------------------------- what it writes


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_converts_a_pair_of_files(mxamp, folder, dtype):
    before = contents(folder)
    result = mxamp("convert", "net", "--dtype", dtype, "-o", "out")
    assert result.status == 0, result.err
    after = contents(folder)
    assert sorted(set(after) - set(before)) == ["out-0000.params", "out-mxamp.json", "out-symbol.json"]
    assert {name: after[name] for name in before} == before
    model = load("out")
    assert model.arg_params["conv0_weight"].dtype is DType.parse(dtype)
    assert model.arg_params["bn0_gamma"].dtype is DType.FLOAT32


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        (["--target", "cuda-fp16"], DType.FLOAT16),
        (["--target", "cpu-bf16"], DType.BFLOAT16),
        (["--target", "auto", "--low-precision", "none"], DType.FLOAT32),
        (["--low-precision", "none"], DType.FLOAT32),
    ],
)
def test_a_target_says_the_dtype_and_float32_needs_none(mxamp, folder, options, dtype):
    result = mxamp("convert", "net", "-o", "out", *options)
    assert result.status == 0, result.err
    assert load("out").arg_params["conv0_weight"].dtype is dtype


@pytest.mark.parametrize("options", [[], ["--target", "auto"], ["--low-precision", "required"]])
def test_without_a_dtype_it_says_where_one_comes_from(mxamp, folder, options):
    before = contents(folder)
    result = mxamp("convert", "net", "-o", "out", *options)
    assert result.status == 2
    for words in ("--dtype is missing", "bfloat16 for CPUs", "--target NAME", "--low-precision none"):
        assert words in result.err
    assert contents(folder) == before


def test_files_convert_and_inspect_without_mxnet(folder):
    converted = without_mxnet("convert", "net", "--dtype", "bfloat16", "-o", "out")
    assert converted.returncode == 0, converted.stderr
    inspected = without_mxnet("inspect", "out", "--json")
    assert inspected.returncode == 0, inspected.stderr
    assert json.loads(inspected.stdout)["parameters"]["bfloat16"]["arrays"] == 2


def test_what_needs_mxnet_says_so_without_it(folder):
    before = contents(folder)
    zoo = without_mxnet("convert", "zoo:resnet18_v1", "--dtype", "bfloat16", "-o", "out")
    assert zoo.returncode == 2
    assert zoo.stderr.startswith("mxamp: error: This needs MXNet, which cannot be imported")
    assert contents(folder) == before


def test_shapes_are_known_without_mxnet(folder):
    shapes = ("--input-shape", "data=1,4,2,2", "--report", "why.json")
    completed = without_mxnet("convert", "net", "--dtype", "bfloat16", "-o", "out", *shapes)
    assert completed.returncode == 0, completed.stderr
    report = json.loads((folder / "why.json").read_text())
    assert report["time"] is not None
    assert all(node["multiply_adds"] for node in report["nodes"] if node["op"] == "Convolution")
    wrong = without_mxnet(
        "convert", "net", "--dtype", "bfloat16", "-o", "out2", "--input-shape", "data=1,5,2,2"
    )
    assert wrong.returncode == 2
    assert "The shapes do not fit together at node 'conv0' (Convolution): the weight has" in wrong.stderr


def test_prefix_may_be_one_of_the_files(mxamp, folder):
    result = mxamp("convert", "net-symbol.json", "--dtype", "bfloat16", "-o", "out-0000.params")
    assert result.status == 0, result.err
    assert (folder / "out-symbol.json").is_file()


def test_epoch_picks_the_parameter_file(mxamp, folder):
    (folder / "net-0000.params").rename(folder / "net-0010.params")
    assert mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--epoch", "10").status == 0
    assert mxamp("convert", "net-0010.params", "--dtype", "bfloat16", "-o", "out2").status == 0


def test_force_replaces_a_previous_result(mxamp, folder):
    assert mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out").status == 0
    assert mxamp("convert", "net", "--dtype", "float16", "-o", "out", "--force").status == 0
    assert load("out").arg_params["conv0_weight"].dtype is DType.FLOAT16


@pytest.mark.parametrize(
    "option",
    [["--exclude", "conv1"], ["--exclude", "*nv1"], ["--exclude-regex", "^conv1$"]],
    ids=["name", "glob", "regex"],
)
def test_excluded_node_stays_float32(mxamp, folder, option):
    result = mxamp("convert", "net", "--dtype", "float16", "-o", "out", *option)
    assert result.status == 0, result.err
    params = load("out").arg_params
    assert params["conv1_weight"].dtype is DType.FLOAT32
    assert params["conv0_weight"].dtype is DType.FLOAT16


def test_excluded_operator_stays_float32(mxamp, folder):
    result = mxamp(
        "convert", "net", "--dtype", "float16", "-o", "out", "--exclude-op", "Convolution", "--quiet"
    )
    assert result.status == 0, result.err
    assert {value.dtype for value in load("out").arg_params.values()} == {DType.FLOAT32}


def test_policy_file_decides(mxamp, folder):
    (folder / "my.toml").write_text(
        'target_dtype = "float16"\nextends = "default"\n[red]\nConvolution = "because"\n'
    )
    result = mxamp("convert", "net", "--dtype", "float16", "-o", "out", "-v", "--policy", "my.toml")
    assert result.status == 0, result.err
    assert "because" in result.out


def test_cast_op_is_the_operator_that_casts(mxamp, folder):
    assert mxamp("convert", "net", "--dtype", "float16", "-o", "out", "--cast-op", "Cast").status == 0
    operators = {node.op for node in load("out").graph.nodes}
    assert "Cast" in operators
    assert "amp_cast" not in operators


def test_batch_norm_is_folded_unless_told_otherwise(mxamp, folder):
    net = Net()
    normal = net.bn(net.conv(net.var("data"), "conv0"), "bn0")
    graph = net.graph(net.op("Activation", normal, name="relu0", act_type="relu"))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    Model(graph, parameters(args), parameters(auxs)).save("foldable")
    folded = mxamp("convert", "foldable", "--dtype", "float16", "-o", "folded", "-v")
    kept = mxamp("convert", "foldable", "--dtype", "float16", "-o", "kept", "-v", "--no-fold-batch-norm")
    assert "1 BatchNorm folded into the layers before." in folded.out
    assert "folded" not in kept.out.partition("Converted")[2].partition("Written")[0]
    assert [
        any(node.op == "BatchNorm" for node in load(name).graph.nodes) for name in ("folded", "kept")
    ] == [False, True]


def test_passes_that_prepare_can_be_left_out(mxamp, folder):
    net = Net()
    data = net.op("Dropout", net.var("data"), name="drop", outputs=2)
    ends = [net.op("tanh", data, name=name) for name in ("first", "second")]
    Model(net.graph(net.op("elemwise_add", *ends, name="sum")), {}, {}).save("littered")

    def names(*options):
        result = mxamp("convert", "littered", "--dtype", "float16", "-o", "out", "--force", *options)
        assert result.status == 0, result.err
        return {node.name for node in load("out").graph.nodes} & {"drop", "second"}

    assert names() == set()
    assert names("--no-prepare", "drop_no_ops") == {"drop"}
    assert names("--no-prepare", "drop_no_ops", "--no-prepare", "common_subexpressions") == {"drop", "second"}
    assert names("--no-prepare", "all") == {"drop", "second"}
    refused = mxamp("convert", "littered", "--dtype", "float16", "-o", "out", "--no-prepare", "nonsense")
    assert refused.status == 2
    assert "invalid choice: 'nonsense'" in refused.err


def test_io_dtype_of_one_input(mxamp, folder):
    result = mxamp("convert", "net", "--dtype", "float16", "-o", "out", "--io-dtype", "data=low", "--json")
    assert result.status == 0, result.err
    report = json.loads(result.out)["report"]
    assert report["inputs"] == {"data": "float16"}
    assert report["outputs"] == {"exp0_output": "float32"}


def test_io_dtype_of_the_whole_model(mxamp, folder):
    result = mxamp("convert", "net", "--dtype", "float16", "-o", "out", "--io-dtype", "low", "--json")
    assert json.loads(result.out)["report"]["outputs"] == {"exp0_output": "float16"}


# ---------------------------------------------------------------------- what it says


def test_ten_lines_at_most_say_what_matters(mxamp, folder):
    result = mxamp("convert", "net", "--dtype", "bf16", "-o", "out")
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert len(lines) <= 10
    labels = [line.partition(":")[0] for line in lines if line[:1].isalpha()]
    assert labels == ["converted", "float32", "size", "speed", "error", "written", "more"]
    report = read_provenance("out").report
    assert f"{report.low_nodes} of 5 operator nodes in bfloat16 for cpu-bf16" in result.out
    assert "not measured" in result.out
    assert "out-symbol.json, out-0000.params, out-mxamp.json" in result.out


def test_the_few_lines_say_what_was_measured(mxamp, folder):
    timed = MeasuredRatio(10.0, 5.0, 2.0, 1.9, 2.1, 1.95, 2.05, 30)
    report = replace(
        Report("bfloat16", "cpu-bf16", (), (), (), {}, {}),
        guard=GuardReport("converted", "it is faster", timed, timed, machine={"cpu": "a CPU"}),
    )
    assert (
        "speed",
        "measured: 10.00 ms -> 5.00 ms, 2.00 times as fast (1.90 to 2.10) on a CPU.",
    ) in short_summary(report)


@pytest.mark.filterwarnings("ignore:The target cpu-bf16-emulated", "ignore:Nothing was converted")
def test_where_nothing_is_low_the_few_lines_say_what_became_of_the_graph():
    net = Net()
    layer = net.op("_copy", net.bn(net.conv(net.var("x"), "conv"), "bn"), name="copy")
    flat = net.op("Flatten", net.op("Activation", layer, name="relu", act_type="relu"), name="flat")
    weight = net.param("fc_weight", 10, 4 * 32 * 32)
    graph = net.graph(
        net.op("FullyConnected", flat, weight, name="fc", num_hidden=10, no_bias=True, flatten=True)
    )
    args = {name: value for name, value in net.params.items() if not name.endswith(AUXILIARY)}
    auxs = {name: value for name, value in net.params.items() if name.endswith(AUXILIARY)}
    report = convert_model(graph, args, auxs, "bfloat16", target="cpu-bf16-emulated").report
    assert short_summary(report)[1] == (
        "prepared",
        "in float32, 2 nodes dropped, merged or rewritten and 1 BatchNorm folded into the layers before.",
    )
    assert "The graph was prepared for assumed shapes: x (1, 4, 32, 32)" in " ".join(str(report).split())


def test_verbose_prints_the_steps_and_a_summary(mxamp, folder):
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--verbose")
    steps = [line.split(":")[0] for line in result.out.splitlines()[:4]]
    assert steps == ["reading", "deciding", "casting", "writing"]
    assert "of 5 operator nodes compute in bfloat16" in result.out
    assert "Parameters: " in result.out
    assert "casts at run time" in result.out
    assert "out-0000.params (" in result.out
    assert result.err == ""


def test_quiet_prints_nothing(mxamp, folder):
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--quiet")
    assert result == (0, "", "")


def test_warnings_are_printed_even_when_quiet(mxamp, folder):
    result = mxamp(
        "convert", "net", "--dtype", "bfloat16", "-o", "out", "--quiet", "--exclude-regex", "nothing_such"
    )
    assert result.status == 0
    assert result.err == ("mxamp: warning: The rule for patterns nothing_such picks no node of this model.\n")


def test_json_is_all_of_standard_output(mxamp, folder):
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--json")
    document = json.loads(result.out)
    assert document["files"] == ["out-symbol.json", "out-0000.params", "out-mxamp.json"]
    assert document["parameter_bytes_after"] < document["parameter_bytes_before"]
    assert document["nodes"] == len(document["report"]["nodes"]) == 5


def test_report_file_reads_back(mxamp, folder):
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--report", "why.json")
    assert result.status == 0, result.err
    report = Report.from_json((folder / "why.json").read_text("utf-8"))
    assert report.node("exp0").compute == "float32"
    assert "why.json" in result.out


def test_input_shape_counts_multiply_adds(mxamp, folder):
    pytest.importorskip("mxnet")
    command = ("convert", "net", "--dtype", "bfloat16", "-o", "out", "--input-shape", "data=1,4,8,8")
    command = (*command, "--no-guard")  # what a measurement finds is no matter here
    result = mxamp(*command, "--low-precision", "required", "--json")
    assert result.status == 0, result.err
    assert json.loads(result.out)["low_multiply_add_share"] == 1.0


@pytest.mark.parametrize("has_gpu", [False, True])
def test_float16_without_a_gpu_says_where_it_runs(mxamp, folder, monkeypatch, has_gpu):
    monkeypatch.setattr(convert, "has_gpu", lambda: has_gpu)
    result = mxamp("convert", "net", "--dtype", "float16", "-o", "out")
    assert ("note:       no GPU was found here" in result.out) is not has_gpu


def test_bfloat16_needs_no_note(mxamp, folder, monkeypatch):
    monkeypatch.setattr(convert, "has_gpu", lambda: False)
    assert "note:" not in mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out").out


# ---------------------------------------------------------------------- what it refuses


def rewrite_symbol(folder: Path, change) -> None:
    path = folder / "net-symbol.json"
    document = json.loads(path.read_text("utf-8"))
    change(document)
    path.write_text(json.dumps(document), "utf-8")


def truncate_symbol(folder: Path) -> None:
    path = folder / "net-symbol.json"
    path.write_text(path.read_text("utf-8")[:-100], "utf-8")


def replace_symbol(folder: Path) -> None:
    (folder / "net-symbol.json").write_text('{"weights": []}', "utf-8")


def close_a_cycle(folder: Path) -> None:
    def change(document):
        names = [node["name"] for node in document["nodes"]]
        document["nodes"][names.index("conv0")]["inputs"][0] = [names.index("exp0"), 0, 0]

    rewrite_symbol(folder, change)


def drop_a_parameter(folder: Path) -> None:
    model = load(folder / "net")
    kept = {name: value for name, value in model.arg_params.items() if name != "conv1_weight"}
    type(model)(model.graph, kept, model.aux_params).save(folder / "net")


def change_a_shape(folder: Path) -> None:
    model = load(folder / "net")
    wrong = ArrayParameter(np.zeros((4, 4, 3, 3), np.float32))
    type(model)(model.graph, {**model.arg_params, "conv1_weight": wrong}, model.aux_params).save(
        folder / "net"
    )


def remove_params(folder: Path) -> None:
    (folder / "net-0000.params").unlink()


def cut_params(folder: Path) -> None:
    path = folder / "net-0000.params"
    path.write_bytes(path.read_bytes()[:-20])


DAMAGE = [
    (truncate_symbol, ["net-symbol.json", "is not valid JSON", "the file is truncated"]),
    (replace_symbol, ["is JSON but not a symbol", "'weights'"]),
    (close_a_cycle, ["cycle", "conv0"]),
    (drop_a_parameter, ["'conv1_weight'", "is missing", "conv1"]),
    (change_a_shape, ["'conv1_weight'", "(4, 4, 3, 3)", "(4, ?, 1, 1)"]),
    (remove_params, ["There is no parameter file 'net-0000.params'"]),
    (cut_params, ["net-0000.params, byte", "the file ends"]),
]


@pytest.mark.parametrize(("damage", "expected"), DAMAGE, ids=[damage.__name__ for damage, _ in DAMAGE])
@pytest.mark.parametrize("command", ["convert", "inspect"])
def test_damaged_input_is_named_and_nothing_is_written(mxamp, folder, command, damage, expected):
    damage(folder)
    before = contents(folder)
    arguments = ["net"] if command == "inspect" else ["net", "--dtype", "bfloat16", "-o", "out"]
    result = mxamp(command, *arguments)
    assert result.status == 2
    assert result.err.startswith("mxamp: error: ")
    assert "Traceback" not in result.err
    for words in expected:
        assert words in result.err
    assert contents(folder) == before


REFUSALS = {
    "missing file": (["nett"], ["There is no symbol file 'nett-symbol.json'", "'net-symbol.json'"]),
    "folder": (["."], ["There is no symbol file"]),
    "unknown dtype": (["net", "--dtype", "bflot16"], ["'bflot16' is not a low precision", "'bfloat16'"]),
    "integer dtype": (["net", "--dtype", "int8"], ["'int8' is not a low precision"]),
    "unknown node": (["net", "--exclude", "conv00"], ["no such node", "Did you mean 'conv0'"]),
    "variable": (["net", "--exclude", "conv0_weight"], ["is a variable", "It is read by: conv0"]),
    "unknown operator": (
        ["net", "--exclude-op", "Convolutin"],
        ["Did you mean 'Convolution'"],
    ),
    "bad expression": (["net", "--exclude-regex", "(("], ["'((' is not a regular expression"]),
    "unknown target": (["net", "--target", "cpu-bf61"], ["no target 'cpu-bf61'", "'cpu-bf16'"]),
    "target of other dtype": (
        ["net", "--target", "cuda-fp16"],
        ["must be for the same dtype. Give --dtype float16"],
    ),
    "missing policy": (["net", "--policy", "my.toml"], ["There is no policy file 'my.toml'"]),
    "unknown io name": (["net", "--io-dtype", "dat=low"], ["'dat'", "Did you mean 'data'"]),
    "io dtype twice": (
        ["net", "--io-dtype", "low", "--io-dtype", "data=low"],
        ["whole model ('low')"],
    ),
    "bad shape": (["net", "--input-shape", "data:1"], ["not of the form NAME=SIZES"]),
    "unnamed shape twice": (
        ["net", "--input-shape", "1,2", "--input-shape", "2"],
        ["the only input", "twice"],
    ),
    "shape twice": (["net", "--input-shape", "data=1", "--input-shape", "data=2"], ["gives 'data' twice"]),
    "missing folder": (["net", "-o", "no/out"], ["The folder 'no' does not exist", "Create it first"]),
    "missing report folder": (["net", "--report", "no/why.json"], ["The folder 'no' does not exist"]),
    "overwriting the input": (["net", "-o", "net"], ["would overwrite the input", "net-bfloat16"]),
    "overwriting it by force": (["net", "-o", "./net", "--force"], ["would overwrite the input"]),
    "report over the input": (["net", "--report", "net-symbol.json"], ["would overwrite the input"]),
    "report over the result": (["net", "--report", "out-symbol.json"], ["written twice"]),
    "report over the provenance": (["net", "--report", "out-mxamp.json"], ["written twice"]),
    "report over the samples": (
        ["net", "--data", "taken-symbol.json", "--report", "taken-symbol.json", "--force"],
        ["would overwrite the input"],
    ),
    "report over the policy": (
        ["net", "--policy", "taken-symbol.json", "--report", "taken-symbol.json", "--force"],
        ["would overwrite the input"],
    ),
    "no name": (["net", "-o", ""], ["-o is empty", "-o net-bf16"]),
    "existing result": (["net", "-o", "taken"], ["'taken-symbol.json' already exists", "--force"]),
    "impossible epoch": (["net", "--epoch", "12345"], ["epoch must be from 0 to 9999"]),
    "other epoch": (["net", "--epoch", "1"], ["'net-0001.params'", "net-0000.params"]),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_request_is_explained_and_nothing_is_written(mxamp, folder, case):
    arguments, expected = REFUSALS[case]
    (folder / "taken-symbol.json").write_text("mine")
    before = contents(folder)
    # Of an option that is given twice the last one holds.
    result = mxamp("convert", arguments[0], "--dtype", "bfloat16", "-o", "out", *arguments[1:])
    assert result.status == 2
    assert result.err.startswith("mxamp: error: ")
    assert result.out == "" or result.out.startswith("reading:")
    for words in expected:
        assert words in result.err
    assert contents(folder) == before


def test_hard_link_to_the_input_is_not_overwritten(mxamp, folder):
    os.link(folder / "net-0000.params", folder / "out-0000.params")
    before = contents(folder)
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--force")
    assert result.status == 2
    assert "would overwrite the input" in result.err
    assert contents(folder) == before


def test_symbolic_link_to_the_input_is_not_overwritten(mxamp, folder):
    (folder / "out-symbol.json").symlink_to("net-symbol.json")
    before = contents(folder)
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--force")
    assert result.status == 2
    assert "would overwrite the input" in result.err
    assert contents(folder) == before
    assert (folder / "out-symbol.json").is_symlink()


def test_without_provenance_none_is_written_and_none_is_left(mxamp, folder):
    command = ["convert", "net", "--dtype", "bfloat16", "-o", "out"]
    assert mxamp(*command, "--no-provenance").status == 0
    assert not (folder / "out-mxamp.json").exists()
    assert mxamp(*command, "--force").status == 0
    assert (folder / "out-mxamp.json").exists()
    assert mxamp(*command, "--force", "--no-provenance").status == 0
    assert not (folder / "out-mxamp.json").exists()


def test_other_epochs_of_the_input_are_not_overwritten(mxamp, folder):
    (folder / "net-0007.params").write_bytes((folder / "net-0000.params").read_bytes())
    before = contents(folder)
    result = mxamp("convert", "net", "--epoch", "7", "--dtype", "bfloat16", "-o", "net", "--force")
    assert result.status == 2
    assert contents(folder) == before


def test_failure_while_writing_leaves_the_old_result(mxamp, folder, monkeypatch):
    assert mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out").status == 0
    before = contents(folder)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = mxamp("convert", "net", "--dtype", "float16", "-o", "out", "--force")
    assert result.status == 2
    assert "No space left on device" in result.err
    assert contents(folder) == before


def test_interruption_while_writing_leaves_nothing(mxamp, folder, monkeypatch):
    before = contents(folder)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    assert mxamp("convert", "net", "--dtype", "float16", "-o", "out").status == 130
    assert contents(folder) == before


# ---------------------------------------------------------------------- the number of the result


@pytest.mark.parametrize(
    ("options", "written"),
    [
        (["net", "--epoch", "7", "-o", "out"], 7),
        (["net-0007.params", "-o", "out"], 7),
        (["net", "--epoch", "7", "-o", "out", "--out-epoch", "0"], 0),
        (["net", "-o", "out", "--out-epoch", "3"], 3),
        (["net", "--epoch", "7", "-o", "out-0002.params"], 2),
        (["net", "-o", "out"], 0),
    ],
)
def test_the_result_has_the_number_of_what_was_read_or_the_one_given(mxamp, folder, options, written):
    (folder / "net-0007.params").write_bytes((folder / "net-0000.params").read_bytes())
    result = mxamp("convert", *options, "--dtype", "bfloat16")
    assert result.status == 0, result.err
    assert [path.name for path in folder.glob("out-*.params")] == [f"out-{written:04d}.params"]
    assert mxamp("verify", "out", "--epoch", str(written)).status == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "out", "--out-epoch", "12345"], "--out-epoch must be from 0 to 9999, not 12345"),
        (["-o", "out-0001.params", "--out-epoch", "2"], "-o names epoch 1, and --out-epoch 2"),
        (["-o", "out", "--io-dtype", "dta=low"], "--io-dtype names 'dta'"),
        (["-o", "out", "--io-dtype", "data=int8"], "--io-dtype data is int8"),
        (["-o", "out", "--low-precision", "profitable"], "--low-precision profitable weighs"),
        (["-o", "out", "--input", "dta"], "--input names 'dta', which is no variable"),
        (["-o", "out", "--epoch", "12345"], "--epoch must be from 0 to 9999"),
        (["-o", "out", "--epoch", "3"], "There is net-0000.params: give its number as --epoch"),
    ],
)
def test_an_error_names_the_option_and_not_the_argument_of_python(mxamp, folder, options, said):
    result = mxamp("convert", "net", "--dtype", "bfloat16", *options)
    assert result.status == 2
    assert said in result.err


def test_errors_that_need_mxnet_name_options_too(mxamp, folder):
    pytest.importorskip("mxnet", reason="it profiles")
    command = ["convert", "net", "--dtype", "bfloat16", "-o", "out"]
    for options, said in [
        (["--input-shape", "dta=1,4,8,8"], "--input-shape names 'dta'"),
        (["--input-shape", "data=1,3,8,8"], "Check --input-shape against"),
        (["--profile"], "--profile runs the model to time it"),
    ]:
        result = mxamp(*command, *options)
        assert result.status == 2, options
        assert said in result.err
        assert "input_shapes" not in result.err


def test_the_shape_of_the_only_input_needs_no_name(mxamp, folder):
    def converted(shape: str) -> object:
        result = mxamp(
            "convert",
            "net",
            "--dtype",
            "bf16",
            "-o",
            "out",
            "--force",
            "--json",
            "--no-guard",
            "--input-shape",
            shape,
        )
        assert result.status == 0, result.err
        return json.loads(result.out)["report"]

    assert converted("1,4,8,8") == converted("data=1,4,8,8")
    pytest.importorskip("onnx")
    for shape in ("1,4,8,8", "data=1,4,8,8"):
        result = mxamp("export", "net", "-o", "net.onnx", "--force", "--input-shape", shape)
        assert result.status == 0, result.err


def test_a_shape_without_a_name_is_refused_where_it_could_mean_two(mxamp, folder):
    net = Net()
    graph = net.graph(net.op("broadcast_add", net.var("left"), net.var("right"), name="add0"))
    Model(graph, {}, {}).save("two")
    result = mxamp("convert", "two", "--dtype", "bf16", "-o", "out", "--input-shape", "1,4")
    assert result.status == 2
    assert (
        "has no name, and the model has 2 inputs: left, right. Name each, as in --input-shape left=1,4"
        in result.err
    )
