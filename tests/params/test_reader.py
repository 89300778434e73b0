from __future__ import annotations

import mmap
import os
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxamp.dtypes import DType
from mxamp.errors import ModelFileNotFoundError, ParamsError
from mxamp.params import StorageType, open_params, read_params, write_params
from mxamp.params.index import parse_index

ONE_TWO = np.array([1, 2], np.float32).tobytes()


@pytest.fixture
def save(tmp_path):
    """Write bytes to a file and return its path."""

    def save(content, name="m-0000.params"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return save


@pytest.fixture
def small(dense_record, params_list):
    """Return a good file of two tensors."""
    return params_list(
        [dense_record((2,), ONE_TWO), dense_record((1, 2), b"\x05\x06", code=3)], ["arg:w", "aux:s"]
    )


def failure(path, **options):
    with pytest.raises(ParamsError) as caught:
        read_params(path, **options)
    assert str(path) in str(caught.value)
    return str(caught.value)


# What is read


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_of_the_format_reads_the_same(save, dense_record, params_list, version):
    content = params_list([dense_record((2, 1), ONE_TWO, version=version)], ["arg:w"])
    args, auxs = read_params(save(content))
    assert not auxs
    np.testing.assert_array_equal(args["w"], np.array([[1], [2]], np.float32))
    assert args["w"].dtype == np.float32
    with open_params(save(content)) as file:
        assert file.index.numpy_shapes == (version == 3)


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_every_dtype_code_is_read(save, dense_record, params_list, dtype):
    array = np.array([0, 1, 1, 0], np.uint8).astype(dtype.numpy)
    path = save(params_list([dense_record((4,), array.tobytes(), code=dtype.value)], ["arg:w"]))
    args, _ = read_params(path)
    assert args["w"].dtype == dtype.numpy
    assert args["w"].tobytes() == array.tobytes()


def test_bfloat16_keeps_its_bits_and_is_that_of_ml_dtypes(save, dense_record, params_list):
    bits = np.arange(1 << 16, dtype=np.uint16)
    args, _ = read_params(save(params_list([dense_record((1 << 16,), bits.tobytes(), code=12)], ["arg:w"])))
    assert args["w"].dtype == np.dtype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(args["w"].view(np.uint16), bits)


def test_prefixes_decide_and_bare_names_need_aux_names(save, dense_record, params_list):
    record = dense_record((2,), ONE_TWO)
    path = save(params_list([record] * 4, ["w", "mean", "arg:var", "aux:x"]))
    args, auxs = read_params(path)
    assert (list(args), list(auxs)) == (["w", "mean", "var"], ["x"])
    # 'arg:var' says what it is, whatever the caller believes.
    args, auxs = read_params(path, aux_names={"mean", "var"})
    assert (list(args), list(auxs)) == (["w", "var"], ["mean", "x"])


def test_a_name_with_a_colon_but_no_prefix_is_kept_whole(save, dense_record, params_list):
    args, _ = read_params(save(params_list([dense_record((2,), ONE_TWO)], ["scope:w"])))
    assert list(args) == ["scope:w"]


def test_an_argument_and_an_auxiliary_state_may_share_a_name(save, dense_record, params_list):
    record = dense_record((2,), ONE_TWO)
    args, auxs = read_params(save(params_list([record] * 2, ["arg:w", "aux:w"])))
    assert list(args) == list(auxs) == ["w"]


def test_the_device_an_array_lived_on_does_not_matter(save, dense_record, params_list):
    args, _ = read_params(save(params_list([dense_record((2,), ONE_TWO, device=(2, 7))], ["arg:w"])))
    assert args["w"].tolist() == [1, 2]


def test_an_empty_file_of_mxnet_has_no_parameters(save, params_list):
    assert read_params(save(params_list([], []))) == ({}, {})


def test_zero_size_and_scalar_shapes_are_read(save, dense_record, params_list):
    path = save(
        params_list(
            [dense_record((0, 3), b"", version=3), dense_record((), b"\0\0\x80?", version=3)], ["a", "b"]
        )
    )
    args, _ = read_params(path)
    assert args["a"].shape == (0, 3)
    assert args["b"].shape == ()
    assert args["b"] == 1


def test_what_was_read_belongs_to_the_caller(save, small):
    path = save(small)
    args, _ = read_params(path)
    path.write_bytes(b"")
    assert args["w"].tolist() == [1, 2]
    args["w"][0] = 7


# The index and lazy loading


def test_the_index_gives_name_dtype_shape_and_place(save, small):
    with open_params(save(small)) as file:
        headers = list(file.index.tensors.values())
        assert [(h.name, h.dtype, h.shape, h.storage, h.nbytes) for h in headers] == [
            ("arg:w", DType.FLOAT32, (2,), StorageType.DENSE, 8),
            ("aux:s", DType.UINT8, (1, 2), StorageType.DENSE, 2),
        ]
        for header in headers:
            assert small[header.offset : header.offset + header.nbytes] == file.load(header.name).tobytes()
        assert headers[0].start == 24
        assert headers[0].stop == headers[1].start
        assert file.index.size == len(small)


def test_the_index_is_read_without_touching_the_data(save, dense_record, params_list):
    # A hole of 8 GiB: reading any of it into memory would show.
    size = 1 << 31
    path = save(params_list([dense_record((size,), b"")], []))
    head = path.read_bytes()[:-8]
    with open(path, "r+b") as file:
        file.truncate(len(head))
        file.seek(len(head) + 4 * size)
        file.write(struct.pack("<QQ", 1, 5) + b"arg:w")
    with open_params(path) as file:
        array = file.load("arg:w")
        assert array.shape == (size,)
        assert array[-1] == 0


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system has no such advice")
def test_no_pages_stay_mapped_for_having_been_looked_at(tmp_path):
    """What is mapped counts as the process's memory, and with large pages that is 2 MiB a tensor."""
    path = tmp_path / "m.params"
    write_params(path, {f"w{number}": np.zeros(3, np.float32) for number in range(40)}, {})

    class Mapped(mmap.mmap):
        let_go = 0

        def madvise(self, advice, *place):
            assert (advice, place) == (mmap.MADV_DONTNEED, ())
            Mapped.let_go += 1
            return super().madvise(advice)

    with open(path, "rb") as file:
        index = parse_index(path, Mapped(file.fileno(), 0, access=mmap.ACCESS_READ))
    assert len(index.tensors) == 40
    assert Mapped.let_go == 3  # after 16, 32 and 40


def test_a_loaded_tensor_is_a_read_only_view_that_survives_closing(save, small):
    with open_params(save(small)) as file:
        array = file.load("arg:w")
    assert not array.flags.owndata
    assert array.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 3


def test_misaligned_data_is_loaded_aligned(save, dense_record, params_list):
    path = save(params_list([dense_record((1,), b"\1", code=5), dense_record((2,), ONE_TWO)], ["a", "b"]))
    with open_params(path) as file:
        array = file.load("b")
    assert array.flags.aligned
    assert not array.flags.writeable
    assert array.tolist() == [1, 2]


def test_a_file_that_is_replaced_under_its_mapping_stays_intact(save, small):
    path = save(small)
    with open_params(path) as file:
        array = file.load("arg:w")
        write_params(path, {"other": np.zeros(100, np.float32)}, {})
        assert array.tolist() == [1, 2]


def test_a_name_that_is_not_there_gets_suggestions(save, small):
    with open_params(save(small)) as file, pytest.raises(ParamsError, match=r"no parameter 'w'.* prefix"):
        file.load("w")
    with open_params(save(small)) as file, pytest.raises(ParamsError, match="mean 'arg:w'"):
        file.load("arg:W")


def test_a_closed_file_says_so(save, small):
    file = open_params(save(small))
    assert "2 tensors" in repr(file)
    file.close()
    file.close()
    assert "closed" in repr(file)
    with pytest.raises(ParamsError, match="closed"):
        file.load("arg:w")


# Sparse tensors


def sparse_record(storage, stored_shape, shape, index_shapes, data, *, code=0):
    parts = [struct.pack("<Ii", 0xF993FAC9, storage)]
    for sizes in (stored_shape, shape):
        parts.append(struct.pack(f"<i{len(sizes)}q", len(sizes), *sizes))
    parts.append(struct.pack("<iii", 1, 0, code))
    for sizes in index_shapes:
        parts.append(struct.pack(f"<ii{len(sizes)}q", 6, len(sizes), *sizes))
    return b"".join(parts) + data


ROWS = bytes(2 * 3 * 4) + struct.pack("<qq", 1, 3)


@pytest.mark.parametrize(
    ("storage", "record"),
    [
        (StorageType.ROW_SPARSE, sparse_record(1, (2, 3), (5, 3), [(2,)], ROWS)),
        (StorageType.ROW_SPARSE, sparse_record(1, (0, 3), (5, 3), [(2,)], ROWS)),
        (StorageType.CSR, sparse_record(2, (0,), (5, 3), [(0,), (0,)], b"")),
    ],
    ids=["row_sparse", "row_sparse, out-of-date stored shape", "csr"],
)
def test_sparse_tensors_are_indexed_and_carried_but_not_loaded(
    save, dense_record, params_list, storage, record
):
    path = save(params_list([record, dense_record((2,), ONE_TWO)], ["arg:emb", "arg:w"]))
    with open_params(path) as file:
        header = file.index.tensors["arg:emb"]
        assert (header.storage, header.shape) == (storage, (5, 3))
        assert file.record("arg:emb").tobytes() == record
        assert file.load("arg:w").tolist() == [1, 2]
        with pytest.raises(ParamsError, match=r"'arg:emb' is stored as .*tostype\('default'\)"):
            file.load("arg:emb")
    args, _ = read_params(path)
    assert args["emb"].record.tobytes() == record
    assert args["emb"].header.storage is storage


@pytest.mark.parametrize(
    "record",
    [
        sparse_record(1, (2, 3), (5, 3), [(3,)], bytes(100)),
        sparse_record(1, (2, 4), (5, 3), [(2,)], bytes(100)),
        sparse_record(2, (4,), (5, 3), [(6,), (5,)], bytes(200)),
        sparse_record(2, (4, 1), (5, 3), [(6,), (4,)], bytes(200)),
    ],
)
def test_sparse_tensors_that_contradict_themselves_are_refused(save, params_list, record):
    assert "contradicts itself" in failure(save(params_list([record], ["arg:w"])))


# Damage


def test_every_truncation_is_noticed(save, small):
    for length in range(len(small)):
        message = failure(save(small[:length]))
        assert "byte" in message, length
        assert "save it again" in message, length


def test_every_single_flipped_bit_gives_our_error_or_a_readable_file(small, tmp_path):
    for position in range(8 * len(small)):
        content = bytearray(small)
        content[position // 8] ^= 1 << position % 8
        try:
            index = parse_index(tmp_path, bytes(content))
        except ParamsError:
            continue
        # Data, device number, the reserved field, the text of a name, or a swap within the same size.
        assert len(index.tensors) == 2, position


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_after_the_magic_never_raise_anything_else(content):
    for head in (b"", struct.pack("<QQQ", 0x112, 0, 1), struct.pack("<QQQI", 0x112, 0, 1, 0xF993FAC9)):
        with pytest.raises(ParamsError):
            parse_index("x.params", head + content)


def test_an_empty_file_is_named_as_such(save):
    assert "the file is empty" in failure(save(b""))


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"PK\x03\x04 and the rest of an archive", "zip archive"),
        (b"\x1f\x8b\x08\x00 compressed", "gzip"),
        (b'\n{\n  "nodes": [', "symbol file"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\x89HDF\r\n\x1a\n........", "HDF5"),
        (b"anything else at all", "save_checkpoint"),
    ],
)
def test_other_kinds_of_file_are_recognised(save, content, hint):
    message = failure(save(content))
    assert "not a parameter file" in message
    assert hint in message


@pytest.mark.parametrize("count", [3, 1 << 31, 1 << 60, (1 << 64) - 1])
def test_absurd_tensor_counts_are_refused(save, dense_record, params_list, count):
    content = params_list([dense_record((2,), ONE_TWO)], ["arg:w"], count=count)
    assert "byte 16: the file claims" in failure(save(content)) or count == 3


@pytest.mark.parametrize("shape", [(1 << 60,), (1 << 62, 1 << 62), (5,), (1 << 40, 1 << 40, 1 << 40)])
def test_absurd_shapes_are_refused_before_anything_is_allocated(save, dense_record, params_list, shape):
    message = failure(save(params_list([dense_record(shape, ONE_TWO)], [])))
    assert "tensor 1 of 1" in message
    # A record's header of one dimension takes 32 bytes, each further one eight more.
    assert f"byte {24 + 24 + 8 * len(shape)}:" in message


def test_a_negative_size_is_refused(save, dense_record, params_list):
    message = failure(save(params_list([dense_record((2, -1), ONE_TWO)], ["arg:w"])))
    assert "negative size" in message


@pytest.mark.parametrize("dimensions", [-1, 33, 1 << 30])
def test_absurd_numbers_of_dimensions_are_refused(save, params_list, dimensions):
    record = struct.pack("<Iii", 0xF993FAC9, 0, dimensions) + bytes(40)
    message = failure(save(params_list([record], ["arg:w"])))
    assert f"byte 32: tensor 1 of 1 claims {dimensions} dimensions" in message


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_shape_without_dimensions_is_refused_as_mxnet_cannot_load_it(
    save, dense_record, params_list, version
):
    message = failure(save(params_list([dense_record((), bytes(4), version=version)], ["arg:w"])))
    assert "no dimensions" in message
    assert "np_shape" in message


def test_an_unknown_record_magic_is_refused(save, params_list):
    record = struct.pack("<I", 0xF993FACB) + bytes(40)
    assert "byte 24: tensor 1 of 1 begins with 0xf993facb" in failure(save(params_list([record], ["w"])))


@pytest.mark.parametrize("storage", [-1, 3])
def test_an_unknown_storage_type_is_refused(save, dense_record, params_list, storage):
    message = failure(save(params_list([dense_record((2,), ONE_TWO, storage=storage)], ["arg:w"])))
    assert f"storage type {storage}" in message


def test_sparse_under_numpy_shapes_is_refused(save, dense_record, params_list):
    record = dense_record((2,), ONE_TWO, version=3, storage=1)
    assert "does not allow" in failure(save(params_list([record], ["arg:w"])))


@pytest.mark.parametrize("code", [-1, 8, 13])
def test_an_unknown_dtype_code_is_refused(save, dense_record, params_list, code):
    message = failure(save(params_list([dense_record((2,), ONE_TWO, code=code)], ["arg:w"])))
    assert f"{code} is not a dtype code" in message


def test_an_unknown_device_type_is_refused(save, dense_record, params_list):
    message = failure(save(params_list([dense_record((2,), ONE_TWO, device=(4, 0))], ["arg:w"])))
    assert "device type 4" in message


def test_trailing_bytes_are_refused(save, small):
    message = failure(save(small + b"junk"))
    assert f"byte {len(small)}: the parameters end here, but 4 more bytes follow" in message


def test_tensors_without_names_are_refused_with_the_way_out(save, dense_record, params_list):
    message = failure(save(params_list([dense_record((2,), ONE_TWO)], [])))
    assert "have no names" in message
    assert "dict" in message


def test_a_wrong_number_of_names_is_refused(save, dense_record, params_list):
    assert "2 names for 1 tensors" in failure(save(params_list([dense_record((2,), ONE_TWO)], ["a", "b"])))


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["arg:w", "arg:w"], "'arg:w' occurs twice"),
        (["arg:w", "w"], "stored twice, as 'arg:w' and as 'w'"),
        (["arg:w", b"\xff\xfe"], "not UTF-8"),
        (["arg:w", "arg:"], "is empty"),
        (["arg:w", ""], "is empty"),
        (["arg:w", "a\0b"], "control character"),
        (["arg:w", "a\x1b[2J"], "control character"),
    ],
)
def test_unusable_names_are_refused(save, dense_record, params_list, names, fault):
    assert fault in failure(save(params_list([dense_record((2,), ONE_TWO)] * 2, names)))


def test_a_name_longer_than_the_file_is_refused(save, dense_record, params_list):
    content = params_list([dense_record((2,), ONE_TWO)], [])[:-8] + struct.pack("<QQ", 1, 1 << 60)
    assert f"name 1 claims {1 << 60} bytes" in failure(save(content))
    content = params_list([dense_record((2,), ONE_TWO)], [])[:-8] + struct.pack("<QQ", 1, 5) + b"arg"
    assert "inside name 1" in failure(save(content))


# Missing files


def test_a_missing_file_names_the_near_ones(save, small, tmp_path):
    save(small, "resnet50-0000.params")
    with pytest.raises(ModelFileNotFoundError, match=r"mean 'resnet50-0000\.params'"):
        read_params(tmp_path / "resnet50-0001.params")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_says_so(save, small):
    path = save(small)
    path.chmod(0)
    assert "cannot be read" in failure(path)
