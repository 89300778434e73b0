"""What is recorded beside a saved model, and what saving checks and refuses."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
import pickle
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mxamp
from mxamp.cli.main import main
from mxamp.errors import DigestMissingError, ExportError, GraphError, MxampWarning, ParamsError, ReportError
from mxamp.files import StagedFile
from mxamp.files.digest import fastest_algorithm, new_digest
from mxamp.model import Model
from mxamp.model.provenance import PolicyRecord, Provenance, read_provenance
from mxamp.params.stream import stream_params
from mxamp.policy import Policy
from tests.building import Net, parameters


def small_model(scale=1.0):
    net = Net()
    graph = net.graph(net.fc(net.fc(net.var("data"), "fc0"), "fc1"))
    return Model(graph, parameters({name: value * scale for name, value in net.params.items()}), {})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the current folder, which holds an FP32 model named ``net``."""
    monkeypatch.chdir(tmp_path)
    small_model().save("net", provenance=False)
    return tmp_path


def converted(source=None, **options):
    model = mxamp.load("net") if source is None else source
    return mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "bfloat16", **options)


def record_of(path):
    content = path.read_bytes()
    return {
        "name": path.name,
        "bytes": len(content),
        fastest_algorithm().lower().replace("-", ""): digest_of(content),
    }


def digest_of(content):
    digest = new_digest(fastest_algorithm())
    digest.update(content)
    return digest.hexdigest()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# what is recorded


def test_written_and_source_files_are_recorded_as_b2sum_has_them(folder):
    converted().save("out")
    document = json.loads((folder / "out-mxamp.json").read_text("utf-8"))
    assert document["written"] == {
        "symbol": record_of(folder / "out-symbol.json"),
        "params": record_of(folder / "out-0000.params"),
    }
    assert document["source"] == {
        "kind": "files",
        "symbol": record_of(folder / "net-symbol.json"),
        "params": record_of(folder / "net-0000.params"),
    }
    assert document["verified"]["tensors"] == 2
    assert document["verified"]["nodes"] == len(mxamp.load("out").graph.nodes)
    assert document["verified"]["bytes_compared"] == sum(
        (folder / name).stat().st_size for name in ("out-symbol.json", "out-0000.params")
    )
    assert (document["target_dtype"], document["target"]) == ("bfloat16", "cpu-bf16")


@pytest.mark.parametrize("how", ["arrays", "other parameters", "another graph"])
def test_what_is_not_the_loaded_model_came_from_memory(folder, how):
    model = mxamp.load("net")
    if how == "arrays":
        args = {name: value.numpy() for name, value in model.arg_params.items()}
    elif how == "other parameters":
        args = {**model.arg_params, "fc0_weight": np.ones((4, 4), np.float32)}
    else:
        args = model.arg_params
    graph = copy.copy(model.graph) if how == "another graph" else model.graph
    mxamp.convert_model(graph, args, model.aux_params, "bfloat16").save("out")
    assert json.loads((folder / "out-mxamp.json").read_text("utf-8"))["source"] == {"kind": "memory"}


def test_a_loaded_model_that_is_saved_names_its_files_and_no_policy(folder):
    mxamp.load("net").save("copy")
    found = read_provenance("copy")
    assert found.source_params == dataclasses.replace(found.params, name="net-0000.params")
    assert (found.policy, found.report) == (None, None)


def test_the_same_conversion_writes_the_same_bytes(folder):
    converted().save("out")
    first = contents(folder)
    converted().save("out")
    assert contents(folder) == first


def test_it_reads_back_as_it_was_written(folder):
    converted(policy=Policy.default("bfloat16").excluding(names=["fc0"])).save("out")
    found = read_provenance("out")
    assert Provenance.from_json(found.to_json()) == found
    assert found.report.node("fc0").compute == "float32"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy.default("bfloat16"), ("default", None)),
        (Policy.pure("bfloat16"), ("pure", None)),
        (Policy.default("bfloat16").with_color_function(len), ("default", "len")),
    ],
    ids=["default", "pure", "color function"],
)
def test_a_built_in_policy_is_recorded_by_name(policy, expected):
    record = PolicyRecord.of(policy)
    assert (record.name, record.color_function) == expected
    assert record.toml is None


def test_a_policy_of_the_users_is_recorded_whole():
    policy = Policy.default("float16").excluding(globs=["head_*"])
    record = PolicyRecord.of(policy)
    assert record.name == "custom"
    assert Policy.from_toml(record.toml) == policy


def test_deleting_it_harms_nothing(folder):
    converted().save("out")
    (folder / "out-mxamp.json").unlink()
    assert read_provenance("out") is None
    assert mxamp.load("out").graph.nodes


def test_without_it_an_old_one_goes(folder):
    converted().save("out")
    converted().save("out", provenance=False)
    assert sorted(contents(folder)) == [
        "net-0000.params",
        "net-symbol.json",
        "out-0000.params",
        "out-symbol.json",
    ]


def test_provenance_is_true_or_false(folder):
    with pytest.raises(ExportError, match=r"must be True or False, not 'out\.json'"):
        converted().save("out", provenance="out.json")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda document: document.update(mxamp=3), r"\$\.mxamp is no text but 3"),
        (lambda document: document["written"]["params"].update(bytes=-1), r"\$\.written\.params\.bytes"),
        (lambda document: document["written"].pop("symbol"), r"\$\.written\.symbol is missing"),
        (lambda document: document.update(verified=[]), r"\$\.verified is no object"),
        (lambda document: document.update(policy={"name": None}), r"\$\.policy\.name is missing"),
        (lambda document: document["source"].pop("params"), r"\$\.source\.params is missing"),
        (lambda document: document.update(decisions={"nodes": 1}), r"\$\.decisions is no report"),
    ],
    ids=["version", "size", "symbol", "verified", "policy", "source", "decisions"],
)
def test_a_wrong_value_is_an_error_with_its_place(folder, change, place):
    converted().save("out")
    document = json.loads((folder / "out-mxamp.json").read_text("utf-8"))
    change(document)
    with pytest.raises(ReportError, match=place):
        Provenance.from_json(json.dumps(document), name="out-mxamp.json")


def places(value, path=()):
    """Yield the path of every value in a document."""
    yield path
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=st.sampled_from([None, True, -1, 2**70, 1.5, "", "x", [], [[]], {}, {"a": 1}]))
def test_any_wrong_value_is_an_error_of_ours_or_none_at_all(folder, data, value):
    if not (folder / "out-mxamp.json").exists():
        converted().save("out")
    document = json.loads((folder / "out-mxamp.json").read_text("utf-8"))
    path = data.draw(st.sampled_from([path for path in places(document) if path]))
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    (folder / "changed-mxamp.json").write_text(json.dumps(document), "utf-8")
    for suffix in ("symbol.json", "0000.params"):
        (folder / f"changed-{suffix}").write_bytes((folder / f"out-{suffix}").read_bytes())
    assert main(["verify", "changed"]) in (0, 1, 2)
    for view in ([], ["--nodes"], ["--json"]):
        assert main(["inspect", "changed", *view]) == 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_is_saved_alike(folder, copied):
    converted().save("out")
    copied(converted()).save("copy")
    assert (folder / "copy-0000.params").read_bytes() == (folder / "out-0000.params").read_bytes()


# what loading takes


def test_a_symbols_whole_name_is_as_good_as_the_prefix(folder):
    assert mxamp.load("net-symbol.json").graph == mxamp.load(folder / "net-symbol.json").graph
    assert mxamp.load("net-symbol.json").graph == mxamp.load("net").graph


def test_a_loaded_model_that_is_not_unpacked_is_told_so(folder):
    pytest.importorskip("mxnet", reason="what is no graph is taken for one of MXNet's")
    with pytest.raises(GraphError, match=r"Unpack the model, .*convert_model\(\*model, \.\.\.\)"):
        mxamp.convert_model(mxamp.load("net"), {}, {}, "bfloat16")


# what saving refuses


@pytest.mark.parametrize("how", ["same name", "another spelling", "symbolic link", "hard link"])
def test_a_converted_model_does_not_replace_what_it_was_converted_from(folder, how):
    prefix = {"same name": "net", "another spelling": f"../{folder.name}/./net"}.get(how, "alias")
    if how == "symbolic link":
        (folder / "alias-symbol.json").symlink_to("net-symbol.json")
    elif how == "hard link":
        os.link("net-0000.params", "alias-0000.params")
    model = converted()
    before = contents(folder)
    with pytest.raises(ExportError, match=r"would replace 'net-.*from which the model was converted"):
        model.save(prefix)
    assert contents(folder) == before


def test_one_that_was_made_of_loaded_arrays_replaces_their_files_neither(folder):
    pytest.importorskip("mxnet", reason="MXNet's arrays are converted")
    before = contents(folder)
    sym, args, auxs = mxamp.load("net")
    for name in args:
        args[name] = args[name] * 2  # so that they are not what the files hold any more
    model = mxamp.convert_model(sym, args, auxs, "bfloat16")
    with pytest.raises(ExportError, match=r"would replace 'net-.*from which the model was converted"):
        model.save("net")
    assert contents(folder) == before
    model.save("other")
    assert mxamp.load("other").report is not None
    assert "source_symbol" not in json.loads((folder / "other-mxamp.json").read_text("utf-8"))


def test_a_loaded_model_is_saved_over_its_own_files_and_stays_usable(folder):
    model = mxamp.load("net")
    before = contents(folder)
    model.save("net", provenance=False)
    assert contents(folder) == before
    np.testing.assert_array_equal(
        model.arg_params["fc0_weight"].numpy(), mxamp.load("net").arg_params["fc0_weight"].numpy()
    )


def test_a_symbol_that_other_epochs_need_is_not_replaced_in_silence(folder, recwarn):
    small_model().save("net", epoch=1)
    assert not recwarn.list, "it is the same symbol"
    other = Model(converted().graph, converted().arg_params, {})
    with pytest.warns(MxampWarning, match=r"net-symbol\.json is another symbol now, and net-0001\.params"):
        other.save("net")


def test_source_files_that_another_process_replaced_do_not_disturb(folder):
    model = converted()
    expected = digest_of((folder / "net-0000.params").read_bytes())
    small_model(2.0).save("net", provenance=False)
    model.save("out")
    assert read_provenance("out").source_params.digest == expected


def test_a_source_file_that_was_changed_in_place_is_an_error(folder):
    model = converted()
    path = folder / "net-0000.params"
    path.write_bytes(path.read_bytes() + b"x")
    before = contents(folder)
    with pytest.raises(ParamsError, match="was changed since it was opened"):
        model.save("out")
    assert contents(folder) == before


# what saving checks


def test_what_reads_back_differently_is_not_saved(folder, monkeypatch):
    small_model(3.0).save("out")
    before = contents(folder)
    sync = StagedFile.sync

    def sync_and_spoil(self):
        sync(self)
        with open(self.path, "r+b") as file:
            file.seek(200)
            file.write(b"\xff")

    monkeypatch.setattr(StagedFile, "sync", sync_and_spoil)
    with pytest.raises(ExportError, match="reads back differently from what was written"):
        converted().save("out")
    assert contents(folder) == before


@pytest.mark.parametrize("what", ["a node", "a shape", "a parameter"])
def test_a_file_that_holds_another_model_is_not_saved(folder, monkeypatch, what):
    other = small_model()
    if what == "a node":
        text = other.symbol_json().replace('"fc1"', '"fc9"')
        monkeypatch.setattr(Model, "symbol_json", lambda self: text)
        expected = "reads back with the node 'fc9' in place of 'fc1'"
    else:
        args = dict(other.arg_params)
        if what == "a shape":
            args["fc0_weight"] = parameters({"x": np.zeros((5, 4), np.float32)})["x"]
            expected = r"reads back with another parameter 'arg:fc0_weight' of float32 and shape \(4, 4\)"
        else:
            del args["fc0_weight"]
            expected = "reads back with no parameter 'arg:fc0_weight'"
        monkeypatch.setattr(
            "mxamp.model.model.stream_params",
            lambda file, _, auxs, **more: stream_params(file, args, auxs, **more),
        )
    before = contents(folder)
    with pytest.raises(ExportError, match=expected):
        other.save("out")
    assert contents(folder) == before


def test_verify_is_true_for_an_intact_pair_alone(folder):
    converted().save("out")
    assert mxamp.verify("out")
    (folder / "out-symbol.json").write_text("{}")
    found = mxamp.verify("out")
    assert not found
    assert "out-symbol.json differs" in str(found)
    assert "out-0000.params: as written" in str(found)


@pytest.mark.parametrize(
    ("one", "other"),
    [("SHA-256", "BLAKE2b"), ("BLAKE2b", "SHA-256"), ("BLAKE3", "SHA-256"), ("SHA-256", "BLAKE3")],
)
def test_what_another_machine_hashed_otherwise_is_verified_as_it_was_hashed(folder, monkeypatch, one, other):
    if "BLAKE3" in (one, other):
        pytest.importorskip("blake3", reason="not every machine has a wheel of it")
    monkeypatch.setattr("mxamp.files.staged.fastest_algorithm", lambda: one)
    monkeypatch.setattr("mxamp.model.source_files.fastest_algorithm", lambda: one)
    converted().save("out")
    monkeypatch.undo()
    monkeypatch.setattr("mxamp.files.staged.fastest_algorithm", lambda: other)
    monkeypatch.setattr("mxamp.model.source_files.fastest_algorithm", lambda: other)
    content = (folder / "out-0000.params").read_bytes()
    expected = new_digest(one)
    expected.update(content)
    record = read_provenance(folder / "out")
    assert (record.params.algorithm, record.params.digest) == (one, expected.hexdigest())
    assert record.symbol.algorithm == record.source_params.algorithm == one
    found = mxamp.verify(folder / "out")
    assert found
    assert f"{one} {expected.hexdigest()[:12]}" in str(found)
    (folder / "out-0000.params").write_bytes(content[:-1] + b"x")
    assert not mxamp.verify(folder / "out")


def test_what_was_hashed_with_what_is_not_here_loads_and_is_not_called_intact(folder, monkeypatch):
    pytest.importorskip("blake3", reason="not every machine has a wheel of it")
    monkeypatch.setattr("mxamp.files.staged.fastest_algorithm", lambda: "BLAKE3")
    converted().save("out")
    monkeypatch.setitem(sys.modules, "blake3", None)
    monkeypatch.setattr("mxamp.model.source_files.fastest_algorithm", lambda: "SHA-256")
    assert mxamp.load("out").report is None
    with pytest.raises(DigestMissingError, match="pip install blake3"):
        mxamp.verify("out")


def test_what_an_earlier_version_recorded_with_sha256_is_read_and_verified(folder):
    converted().save("out")
    path = folder / "out-mxamp.json"
    document = json.loads(path.read_text("utf-8"))
    document["format"] = 1
    for part, prefix in (("written", "out"), ("source", "net")):
        for kind, name in (("symbol", "symbol.json"), ("params", "0000.params")):
            document[part][kind] = {name: document[part][kind][name] for name in ("name", "bytes")}
            content = (folder / f"{prefix}-{name}").read_bytes()
            document[part][kind]["sha256"] = hashlib.sha256(content).hexdigest()
    path.write_text(json.dumps(document), "utf-8")
    found = mxamp.verify("out")
    assert found
    assert "SHA-256 " in str(found)
    assert read_provenance("out").params.algorithm == "SHA-256"
    (folder / "out-0000.params").write_bytes((folder / "out-0000.params").read_bytes()[:-1] + b"x")
    assert [difference.count("SHA-256") for difference in mxamp.verify("out").differences] == [2]
