from __future__ import annotations

import io

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.dtypes import DType
from mxamp.errors import ExportError, ParamsError
from mxamp.params import ParamsEncoder, encode_params, open_params, read_params, write_params

ONE_TWO = np.array([1, 2], np.float32)


def encoded(args, auxs=None, **options):
    file = io.BytesIO()
    encode_params(file, args, auxs or {}, **options)
    return file.getvalue()


def test_the_bytes_are_those_of_the_format(dense_record, params_list):
    content = encoded({"w": ONE_TWO}, {"s": np.array([[5, 6]], np.uint8)})
    records = [dense_record((2,), ONE_TWO.tobytes()), dense_record((1, 2), b"\5\6", code=3)]
    assert content == params_list(records, ["arg:w", "aux:s"])


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_every_dtype_comes_back(tmp_path, dtype):
    array = np.arange(-6, 6).astype(dtype.numpy).reshape(3, 4)
    path = tmp_path / "x.params"
    write_params(path, {"w": array}, {"s": array[:1]})
    args, auxs = read_params(path)
    assert args["w"].dtype == dtype.numpy
    assert args["w"].tobytes() == array.tobytes()
    assert auxs["s"].shape == (1, 4)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1).filter(
            lambda name: ".." not in name
        ),
        st.lists(st.integers(0, 4), min_size=1, max_size=5),
        max_size=6,
    )
)
def test_any_names_and_shapes_come_back_in_order(tmp_path_factory, shapes):
    path = tmp_path_factory.mktemp("written") / "x.params"
    args = {name: np.full(shape, index, np.float32) for index, (name, shape) in enumerate(shapes.items())}
    write_params(path, args, args)
    for group in read_params(path):
        assert list(group) == list(args)
        for name, array in group.items():
            assert array.shape == args[name].shape
            assert array.tobytes() == args[name].tobytes()


def test_any_layout_and_byte_order_is_stored_as_values(tmp_path):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    same = [array, np.asfortranarray(array), array.astype(">f4"), array[::-1][::-1]]
    assert len({encoded({"w": variant}) for variant in same}) == 1


def test_mxnets_structured_bfloat16_is_stored_as_bfloat16():
    array = np.array([1, 2, 3], ml_dtypes.bfloat16)
    structured = array.view(np.uint16).view([("bfloat16", np.uint16)])
    assert encoded({"w": structured}) == encoded({"w": array})


def test_the_inputs_are_not_changed(tmp_path):
    array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    array.flags.writeable = False
    before = array.copy()
    args = {"w": array}
    write_params(tmp_path / "x.params", args, {})
    assert list(args) == ["w"]
    np.testing.assert_array_equal(array, before)


def test_an_existing_file_is_replaced(tmp_path):
    path = tmp_path / "x.params"
    path.write_bytes(b"old")
    write_params(path, {"w": ONE_TWO}, {})
    assert path.read_bytes() == encoded({"w": ONE_TWO})
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.params"]


def test_a_source_file_can_be_written_over_while_it_is_mapped(tmp_path):
    path = tmp_path / "x.params"
    write_params(path, {"w": ONE_TWO}, {})
    with open_params(path) as file:
        write_params(path, {"w": file.load("arg:w"), "v": ONE_TWO}, {})
    assert list(read_params(path)[0]) == ["w", "v"]


# A scalar needs the other format


def test_a_scalar_is_refused_with_the_way_out():
    with pytest.raises(ParamsError, match=r"'arg:w' has the shape \(\).*numpy_shapes=True"):
        encoded({"w": np.ones((), np.float32)})


def test_numpy_shapes_hold_scalars(tmp_path):
    path = tmp_path / "x.params"
    write_params(path, {"w": np.array(2.5, np.float32)}, {}, numpy_shapes=True)
    with open_params(path) as file:
        assert file.index.numpy_shapes
        assert file.load("arg:w").shape == ()
        assert file.load("arg:w") == 2.5


# What cannot be stored


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros(2, np.complex64), "complex64"),
        (np.zeros(2, np.uint32), "uint32"),
        (np.array(["a"]), "not a dtype of MXNet"),
        (np.array([object()]), "not a dtype of MXNet"),
        ([1.0, 2.0], "is a list, not a NumPy array"),
    ],
    ids=["complex", "uint32", "text", "object", "list"],
)
def test_an_array_that_mxnet_cannot_hold_is_named_and_nothing_is_written(tmp_path, array, words):
    with pytest.raises(ParamsError, match=f"'arg:conv0_weight'.*{words}"):
        write_params(tmp_path / "x.params", {"w": ONE_TWO, "conv0_weight": array}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "\ud800"])
def test_a_name_that_could_not_be_read_back_is_refused(name):
    with pytest.raises(ParamsError, match="name"):
        encoded({name: ONE_TWO})


def test_a_folder_that_does_not_exist_is_an_export_error(tmp_path):
    with pytest.raises(ExportError, match="does not exist"):
        write_params(tmp_path / "no" / "x.params", {"w": ONE_TWO}, {})


# Tensor by tensor


def test_records_pass_from_file_to_file_untouched(tmp_path, dense_record, params_list):
    source = tmp_path / "old.params"
    content = params_list([dense_record((2,), ONE_TWO.tobytes(), version=1)], ["arg:w"])
    source.write_bytes(content)
    copy = io.BytesIO()
    with open_params(source) as file:
        encoder = ParamsEncoder(copy, len(file.index.tensors))
        for name in file.index.tensors:
            encoder.add_record(name, file.record(name))
        encoder.finish()
    assert copy.getvalue() == content


@pytest.mark.parametrize("count", [0, 2])
def test_a_count_that_does_not_come_true_is_an_error(count):
    encoder = ParamsEncoder(io.BytesIO(), count)
    encoder.add("arg:w", ONE_TWO)
    with pytest.raises(ParamsError, match=f"{count} tensors were announced and 1 added"):
        encoder.finish()


def test_a_tensor_added_twice_is_an_error():
    encoder = ParamsEncoder(io.BytesIO(), 2)
    encoder.add("arg:w", ONE_TWO)
    with pytest.raises(ParamsError, match="'arg:w' was added twice"):
        encoder.add("arg:w", ONE_TWO)
