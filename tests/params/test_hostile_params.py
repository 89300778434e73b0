"""Parameter files that mean harm, or were hit by something: an mxamp error with the byte, and no memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxamp.errors import ParamsError
from mxamp.params import SparseParameter, open_params, read_params
from mxamp.params.index import parse_index
from tools.fuzz_targets import TARGETS

TWO = np.array([1, 2], np.float32).tobytes()


def failure(content: bytes) -> str:
    with pytest.raises(ParamsError) as caught:
        parse_index(Path("m.params"), content).split()
    message = str(caught.value)
    assert message.startswith("m.params, byte ")
    assert len(message) < 600
    assert message.isprintable()
    return message


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**32))
def test_damaged_parameters_are_read_rightly_or_refused(seed):
    rng = random.Random(seed)
    target = TARGETS["params"]
    data = rng.choice(target.seeds)
    for _ in range(rng.randint(1, 3)):
        data = target.mutate(data, rng)
    target.run(data)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_flipped_bits_and_missing_ends_are_read_rightly_or_refused(data):
    changed = bytearray(data.draw(st.sampled_from(TARGETS["params"].seeds)))
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    TARGETS["params"].run(bytes(changed[: data.draw(st.integers(0, len(changed)))]))


@pytest.mark.parametrize("shape", [(0, 2**62), (2**40, 0, 2**40), (0, 2**63 - 1)])
def test_an_empty_tensor_of_absurd_size_is_refused(dense_record, params_list, shape):
    assert "larger than any memory" in failure(params_list([dense_record(shape, b"")], ["w"]))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_claim_of_more_than_there_is_allocates_nothing(dense_record, params_list, version):
    shape = (2**31,) * 2 if version == 0 else (2**60,)
    content = params_list([dense_record(shape, TWO, version=version)], ["w"])
    tracemalloc.start()
    try:
        assert "tensor 1 of 1" in failure(content)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


def test_a_name_as_long_as_the_file_is_refused_before_it_is_read(dense_record, params_list):
    content = params_list([dense_record((2,), TWO)], ["n" * 300_000])
    assert "name 1 claims 300000 bytes" in failure(content)
    assert "has 100000 characters" in failure(params_list([dense_record((2,), TWO)], ["n" * 100_000]))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("arg:../../x", "leads out of a folder"),
        ("aux:..\\x", "leads out of a folder"),
        ("arg:a\x9bb", "U+009B"),
        ("arg:a\u2029b", "U+2029"),
        ("arg:\r", "U+000D"),
    ],
)
def test_names_that_no_file_or_terminal_should_see_are_refused(dense_record, params_list, name, fault):
    assert fault in failure(params_list([dense_record((2,), TWO)], [name]))


def test_names_with_separators_as_other_tools_write_them_are_read(tmp_path, dense_record, params_list):
    path = tmp_path / "x.params"
    path.write_bytes(params_list([dense_record((2,), TWO)] * 2, ["arg:dense_1/kernel", "a..b"]))
    assert list(read_params(path)[0]) == ["dense_1/kernel", "a..b"]


def test_tensors_saved_under_both_shape_semantics_are_refused_as_mxnet_does(dense_record, params_list):
    records = [dense_record((2,), TWO), dense_record((2,), TWO, version=3)]
    assert "tensor 2 of 2 was not saved under the same shape semantics" in failure(params_list(records, "ab"))
    assert "tensor 2 of 2" in failure(params_list(records[::-1], "ab"))


# Sparse tensors, whose index arrays MXNet uses unchecked


def sparse(storage, stored, shape, indices, *, values=None, index_code=6):
    parts = [struct.pack("<Ii", 0xF993FAC9, storage)]
    for sizes in (stored, shape):
        parts.append(struct.pack(f"<i{len(sizes)}q", len(sizes), *sizes))
    parts.append(struct.pack("<iii", 1, 0, 0))
    for index in indices:
        parts.append(struct.pack("<iiq", index_code, 1, len(index)))
    parts.append(bytes(4 * int(np.prod(stored))) if values is None else values)
    parts.extend(struct.pack(f"<{len(index)}{'q' if index_code == 6 else 'i'}", *index) for index in indices)
    return b"".join(parts)


def row_sparse(*rows, index_code=6):
    return sparse(1, (len(rows), 3), (5, 3), [rows], index_code=index_code)


def csr(starts, columns, shape=(2, 4)):
    return sparse(2, (len(columns),), shape, [starts, columns])


@pytest.fixture
def opened(tmp_path, params_list):
    """Open a file with one record under the name ``w``."""

    def opened(record):
        path = tmp_path / "x.params"
        path.write_bytes(params_list([record], ["arg:w"]))
        return open_params(path)

    return opened


@pytest.mark.parametrize(
    "record",
    [row_sparse(), row_sparse(0, 4), row_sparse(1, 2, index_code=4), csr([0, 2, 3], [0, 3, 1]), csr([], [])],
    ids=["row_sparse, empty", "row_sparse", "row_sparse, int32", "csr", "csr, empty"],
)
def test_a_sound_sparse_tensor_is_carried_as_it_is(opened, record):
    with opened(record) as file:
        tensor = file.tensor("arg:w")
    assert tensor.record.tobytes() == record
    parameter = SparseParameter(tensor)
    assert (parameter.is_sparse, parameter.shape) == (True, tensor.shape)
    assert parameter.cast(parameter.dtype) is parameter
    with pytest.raises(ParamsError, match="no array of values"):
        parameter.values()
    with pytest.raises(ParamsError, match=r"cannot be cast to float64.*tostype"):
        parameter.allocate(type(parameter.dtype).FLOAT64)


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (row_sparse(0, 5), "row number 5, outside 0 to 4"),
        (row_sparse(-1, 2), "row number -1, outside 0 to 4"),
        (row_sparse(2, 1), "row numbers out of order"),
        (row_sparse(1, 1), "row numbers out of order"),
        (csr([0, 2, 3], [0, 4, 1]), "column 4, outside 0 to 3"),
        (csr([0, 2, 3], [3, 0, 1]), "columns out of order"),
        (csr([0, 9, 3], [0, 3, 1]), "rows begin at places"),
        (csr([1, 2, 3], [0, 3, 1]), "rows begin at places"),
        (csr([0, 2, 2], [0, 3, 1]), "rows begin at places"),
        (csr([0, -1, 3], [0, 3, 1]), "rows begin at places"),
    ],
)
def test_index_arrays_that_point_outside_are_refused(opened, record, fault):
    with opened(record) as file, pytest.raises(ParamsError, match=f"'arg:w' has the {fault}|{fault}"):
        file.tensor("arg:w")


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (sparse(1, (1, 3), (5, 3), [(1,)], index_code=0), "is float32; MXNet counts in int64"),
        (csr([0, 1], [0], shape=(2, 4)), "contradicts itself"),
        (csr([0, 1, 1], [0], shape=(2, 4, 1)), "contradicts itself"),
        (sparse(1, (2**40, 3), (5, 3), [(1,)], values=b""), "contradicts itself"),
    ],
    ids=["float indices", "rows", "dimensions", "stored shape"],
)
def test_sparse_headers_that_contradict_themselves_are_refused(params_list, record, fault):
    assert fault in failure(params_list([record], ["arg:w"]))
