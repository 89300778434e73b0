"""Whatever can be stored: MXNet's writer and ours give the same bytes, and each reads the other's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxamp.dtypes import DType
from mxamp.params import ParamsEncoder, SparseTensor, open_params, read_params, write_params

mx = pytest.importorskip("mxnet", reason="compares with MXNet's own reader and writer")

STORED = tuple(dtype for dtype in DType if not getattr(dtype, "is_emulated_only", False))
MXNET_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
SETTINGS = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

names = st.text(st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=12).filter(
    lambda name: ".." not in name and not name.startswith(("arg:", "aux:"))
)


@st.composite
def arrays(draw, *, smallest=1):
    dtype = draw(st.sampled_from(STORED))
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=smallest, max_size=5)))
    # Any bits at all, NaNs with payloads among them.
    bits = np.random.default_rng(draw(st.integers(0, 99))).integers(
        0, 256, (*shape, dtype.itemsize), np.uint8
    )
    if dtype is DType.BOOL:
        bits &= 1
    return np.ascontiguousarray(bits).view(dtype.numpy).reshape(shape)


def to_mxnet(array):
    dtype = DType.from_numpy(array.dtype)
    made = mx.nd.empty(array.shape, dtype=MXNET_BFLOAT16 if dtype is DType.BFLOAT16 else array.dtype)
    if array.size:
        source = np.asarray(array, order="C")
        made._sync_copyfrom(
            source.view(np.uint16).view(MXNET_BFLOAT16) if dtype is DType.BFLOAT16 else source
        )
    return made


def assert_both_ways(folder, args, auxs, *, numpy_shapes):
    theirs, ours = folder / "theirs.params", folder / "ours.params"
    stored = {f"arg:{name}": to_mxnet(array) for name, array in args.items()}
    stored.update({f"aux:{name}": to_mxnet(array) for name, array in auxs.items()})
    mx.nd.save(str(theirs), stored)
    write_params(ours, args, auxs, numpy_shapes=numpy_shapes)
    assert ours.read_bytes() == theirs.read_bytes()
    read_args, read_auxs = read_params(theirs)
    loaded = mx.nd.load(str(ours))
    assert list(loaded) == list(stored) or (not stored and not loaded)
    for name, array in [*args.items(), *auxs.items()]:
        read = read_args.get(name) if name in args and array is args.get(name) else read_auxs[name]
        assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())
    for name, array in args.items():
        assert loaded[f"arg:{name}"].shape == array.shape
        if array.size:
            assert loaded[f"arg:{name}"].asnumpy().tobytes() == array.tobytes()


@SETTINGS
@given(args=st.dictionaries(names, arrays(), max_size=4), auxs=st.dictionaries(names, arrays(), max_size=2))
def test_any_dense_parameters(tmp_path, args, auxs):
    assert_both_ways(tmp_path, args, auxs, numpy_shapes=False)


@SETTINGS
@given(args=st.dictionaries(names, arrays(smallest=0), max_size=4))
def test_any_dense_parameters_under_numpy_shapes(tmp_path, args):
    with mx.util.np_shape(True):
        assert_both_ways(tmp_path, args, {}, numpy_shapes=True)


@SETTINGS
@given(tensors=st.lists(arrays(), max_size=4))
def test_a_list_without_names(tmp_path, tensors):
    theirs, ours = tmp_path / "theirs.params", tmp_path / "ours.params"
    mx.nd.save(str(theirs), [to_mxnet(array) for array in tensors])
    with ours.open("wb") as file:
        encoder = ParamsEncoder(file, len(tensors), has_names=False)
        for number, array in enumerate(tensors):
            encoder.add(str(number), array)
        encoder.finish()
    assert ours.read_bytes() == theirs.read_bytes()
    with open_params(theirs) as file:
        assert file.index.has_names is (not tensors)
        for number, array in enumerate(tensors):
            assert file.load(str(number)).tobytes() == array.tobytes()


@st.composite
def sparse_arrays(draw):
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    dtype = draw(st.sampled_from(["float32", "float64", "int64", "uint8"]))
    dense = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 2, (rows, columns)).astype(dtype)
    storage = draw(st.sampled_from(["row_sparse", "csr"]))
    if draw(st.booleans()) and draw(st.booleans()):
        return mx.nd.sparse.zeros(storage, dense.shape, dtype=dtype)
    # MXNet makes sparse arrays of float32 alone out of dense ones.
    made = mx.nd.array(dense, dtype="float32").tostype(storage)
    return made if dtype == "float32" else made.astype(dtype)


@SETTINGS
@given(tensors=st.dictionaries(names, sparse_arrays(), min_size=1, max_size=3), dense=arrays())
def test_sparse_parameters_go_from_file_to_file_untouched(tmp_path, tensors, dense):
    theirs, ours = tmp_path / "theirs.params", tmp_path / "ours.params"
    mx.nd.waitall()
    stored = {f"arg:{name}": tensor for name, tensor in tensors.items()}
    mx.nd.save(str(theirs), {**stored, "aux:dense": to_mxnet(dense)})
    args, auxs = read_params(theirs)
    assert all(isinstance(tensor, SparseTensor) for tensor in args.values())
    write_params(ours, args, auxs)
    assert ours.read_bytes() == theirs.read_bytes()
    loaded = mx.nd.load(str(ours))
    for name, tensor in tensors.items():
        assert (loaded[f"arg:{name}"].stype, loaded[f"arg:{name}"].dtype) == (tensor.stype, tensor.dtype)
        np.testing.assert_array_equal(loaded[f"arg:{name}"].asnumpy(), tensor.asnumpy())
