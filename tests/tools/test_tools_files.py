from __future__ import annotations

import argparse

import numpy as np
import pytest

from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.graph.verify import verify_graph
from mxamp.model import load, model_paths
from mxamp.params.check import check_params
from tools import benchmark_files
from tools.large_model import INPUT_SHAPE, large_model, main, parse_size, write_large_model


@pytest.mark.parametrize("size", [1_000_000, 30_000_000, 4_000_000_000])
def test_a_large_model_has_the_size_that_was_asked_for(size):
    assert large_model(size).nbytes == pytest.approx(size, rel=0.1)


def test_a_quarter_of_a_large_model_is_one_tensor():
    model = large_model(4_000_000_000)
    assert 4 * np.prod(model.args["fc1_weight"]) == pytest.approx(1_000_000_000, rel=0.1)
    assert sum(node.op == "BatchNorm" for node in model.graph.nodes) > 50


def test_what_is_written_is_a_model_with_its_parameters(tmp_path):
    write_large_model(str(tmp_path / "net"), 2_000_000, seed=3)
    model = load(tmp_path / "net")
    verify_graph(model.graph)
    params = {**model.arg_params, **model.aux_params}
    check_params(model.graph, params)
    infer_dtypes(
        model.graph, variable_dtypes(model.graph, {name: value.dtype for name, value in params.items()})
    )
    assert all((value.values() > 0).all() for name, value in params.items() if name.endswith("moving_var"))


def test_mxnet_runs_a_large_model(tmp_path):
    mx = pytest.importorskip("mxnet", reason="runs the model")
    write_large_model(str(tmp_path / "net"), 1_000_000)
    block = mx.gluon.SymbolBlock.imports(
        f"{tmp_path}/net-symbol.json", ["data"], f"{tmp_path}/net-0000.params"
    )
    scores = block(mx.nd.random.normal(shape=INPUT_SHAPE)).asnumpy()
    assert scores.shape == (1, 1000)
    assert scores.sum() == pytest.approx(1.0, rel=1e-4)


def test_the_same_seed_gives_the_same_file(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_large_model(str(tmp_path / name), 1_000_000, seed=seed)
    one, same, other = (model_paths(tmp_path / name)[1].read_bytes() for name in "abc")
    assert one == same != other


def test_the_command_says_what_it_wrote(tmp_path, capsys):
    assert main([str(tmp_path / "net"), "--size", "1MB"]) == 0
    assert "parameters, 0.00" in capsys.readouterr().out
    assert main([str(tmp_path / "net"), "--size", "1KB"]) == 1
    assert "at least a megabyte" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 4 * 10**9), ("300 mb", 3 * 10**8), ("1.5GiB", 3 * 2**29), ("1000000", 10**6)]
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "4XB", "-4GB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no size"):
        parse_size(text)


def test_the_benchmark_measures_and_cleans_up(tmp_path, capsys):
    folder, written = tmp_path / "work", tmp_path / "out.json"
    arguments = ["--size", "2MB", "--rounds", "1", "--folder", str(folder), "--json", str(written)]
    assert benchmark_files.main(arguments) == 0
    text = capsys.readouterr().out
    assert "times the time of cp" in text
    assert "MXNet was not imported" in text
    assert list(tmp_path.iterdir()) == [written]


def test_the_benchmark_says_what_failed(tmp_path):
    with pytest.raises(RuntimeError, match="There is no"):
        benchmark_files.convert_in_child(
            [str(tmp_path / "none"), "--dtype", "bfloat16", "-o", str(tmp_path / "out")]
        )
