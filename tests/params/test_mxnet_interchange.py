"""What MXNet writes we read, what we write MXNet reads, and both write the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.errors import ParamsError
from mxamp.params import StorageType, open_params, read_params, write_params

mx = pytest.importorskip("mxnet", reason="compares with MXNet's own reader and writer")

MXNET_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def to_mxnet(array):
    if DType.from_numpy(array.dtype) is not DType.BFLOAT16:
        return mx.nd.array(array, dtype=array.dtype)
    result = mx.nd.empty(array.shape, dtype=MXNET_BFLOAT16)
    result._sync_copyfrom(np.ascontiguousarray(array).view(np.uint16).view(MXNET_BFLOAT16))
    return result


def save_with_mxnet(path, args, auxs):
    stored = {f"arg:{name}": to_mxnet(array) for name, array in args.items()}
    stored.update({f"aux:{name}": to_mxnet(array) for name, array in auxs.items()})
    mx.nd.save(str(path), stored)


def sample(dtype, shape=(2, 3, 5), seed=0):
    values = np.random.default_rng(seed).standard_normal(shape) * 50
    return values.astype(np.int64).astype(dtype.numpy) if not dtype.is_float else values.astype(dtype.numpy)


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_files_are_byte_identical_for_every_dtype(tmp_path, dtype):
    args, auxs = {"b": sample(dtype), "a": sample(dtype, (7,))}, {"s": sample(dtype, (1, 1, 1, 1, 3))}
    save_with_mxnet(tmp_path / "theirs.params", args, auxs)
    write_params(tmp_path / "ours.params", args, auxs)
    assert (tmp_path / "ours.params").read_bytes() == (tmp_path / "theirs.params").read_bytes()


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_mxnet_reads_what_we_write(tmp_path, dtype):
    array = sample(dtype)
    write_params(tmp_path / "x.params", {"w": array}, {"s": array[0]})
    loaded = mx.nd.load(str(tmp_path / "x.params"))
    assert list(loaded) == ["arg:w", "aux:s"]
    assert DType.from_numpy(loaded["arg:w"].dtype) is dtype
    assert loaded["arg:w"].shape == array.shape
    assert loaded["arg:w"].asnumpy().tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_we_read_what_mxnet_writes(tmp_path, dtype):
    array = sample(dtype)
    save_with_mxnet(tmp_path / "x.params", {"w": array}, {"s": array[0]})
    args, auxs = read_params(tmp_path / "x.params")
    assert args["w"].dtype == dtype.numpy
    assert args["w"].tobytes() == array.tobytes()
    assert auxs["s"].tobytes() == array[0].tobytes()


def test_a_mixed_model_is_byte_identical(tmp_path):
    args = {f"w{index}_é": sample(dtype, (3,) * (1 + index % 4), index) for index, dtype in enumerate(DType)}
    auxs = {"mean": sample(DType.FLOAT32, (3,)), "none_left": sample(DType.FLOAT32, (0, 3))}
    save_with_mxnet(tmp_path / "theirs.params", args, auxs)
    write_params(tmp_path / "ours.params", args, auxs)
    assert (tmp_path / "ours.params").read_bytes() == (tmp_path / "theirs.params").read_bytes()


def test_no_parameters_at_all_is_byte_identical(tmp_path):
    mx.nd.save(str(tmp_path / "theirs.params"), {})
    write_params(tmp_path / "ours.params", {}, {})
    assert (tmp_path / "ours.params").read_bytes() == (tmp_path / "theirs.params").read_bytes()


def test_numpy_shapes_are_byte_identical_and_load_under_np_shape(tmp_path):
    args = {
        "scalar": np.array(2.5, np.float32),
        "none": np.zeros((0, 2), np.float32),
        "w": sample(DType.FLOAT32),
    }
    with mx.util.np_shape(True):
        save_with_mxnet(tmp_path / "theirs.params", args, {})
        write_params(tmp_path / "ours.params", args, {}, numpy_shapes=True)
        loaded = mx.nd.load(str(tmp_path / "ours.params"))
        assert loaded["arg:scalar"].shape == ()
    assert (tmp_path / "ours.params").read_bytes() == (tmp_path / "theirs.params").read_bytes()
    with pytest.raises(mx.MXNetError, match="np_shape"):
        mx.nd.load(str(tmp_path / "ours.params"))


def test_the_scalar_that_mxnet_writes_and_cannot_read_is_explained(tmp_path):
    mx.nd.save(str(tmp_path / "x.params"), {"arg:w": mx.nd.array(np.float32(3))})
    with pytest.raises(ParamsError, match="MXNet itself cannot load"):
        read_params(tmp_path / "x.params")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_mxnet_and_we_agree_on_every_dense_version(tmp_path, dense_record, params_list, version):
    array = sample(DType.FLOAT32)
    record = dense_record(array.shape, array.tobytes(), version=version)
    path = tmp_path / "x.params"
    path.write_bytes(params_list([record], ["arg:w"]))
    theirs = mx.nd.load(str(path))["arg:w"].asnumpy()
    ours = read_params(path)[0]["w"]
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("empty", [False, True], ids=["filled", "empty"])
@pytest.mark.parametrize("storage", [StorageType.ROW_SPARSE, StorageType.CSR])
def test_sparse_arrays_of_mxnet_are_indexed_and_not_loaded(tmp_path, storage, empty):
    dense = np.zeros((5, 3), np.float32)
    if not empty:
        dense[[1, 3]] = 1
    sparse = mx.nd.array(dense).tostype(storage.name.lower())
    path = tmp_path / "x.params"
    mx.nd.save(str(path), {"arg:emb": sparse, "arg:w": mx.nd.ones((2,))})
    with open_params(path) as file:
        assert file.index.tensors["arg:emb"].storage is storage
        assert file.index.tensors["arg:emb"].shape == (5, 3)
        assert file.load("arg:w").tolist() == [1, 1]
        with pytest.raises(ParamsError, match=f"'arg:emb' is stored as {storage.name.lower()}"):
            file.load("arg:emb")


def test_save_checkpoint_and_save_parameters_are_read(tmp_path):
    net = mx.gluon.nn.HybridSequential()
    with net.name_scope():
        net.add(mx.gluon.nn.Conv2D(4, 3), mx.gluon.nn.BatchNorm())
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 3, 8, 8)))
    net.export(str(tmp_path / "net"))
    args, auxs = read_params(tmp_path / "net-0000.params")
    assert sorted(name.rsplit("_", 1)[1] for name in args) == ["beta", "bias", "gamma", "weight"]
    assert sorted(name.rsplit("_", 2)[1] for name in auxs) == ["running", "running"]

    net.save_parameters(str(tmp_path / "net.params"))
    aux_names = {"1.running_mean", "1.running_var"}
    args, auxs = read_params(tmp_path / "net.params", aux_names=aux_names)
    assert set(auxs) == aux_names
    assert "0.weight" in args
