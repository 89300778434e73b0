from __future__ import annotations

import os

import pytest

from mxamp.errors import ModelFileNotFoundError
from mxamp.files import existing_file


def test_a_missing_file_names_similar_ones(tmp_path):
    (tmp_path / "resnet50-symbol.json").touch()
    with pytest.raises(ModelFileNotFoundError, match=r"no symbol file .*mean 'resnet50-symbol\.json'"):
        existing_file(tmp_path / "resnet-symbol.json", "symbol file")


def test_with_no_similar_name_the_files_of_the_kind_are_listed(tmp_path):
    for index in range(7):
        (tmp_path / f"m{index}.params").touch()
    with pytest.raises(ModelFileNotFoundError, match=r"m0\.params, .*m4\.params and 2 more"):
        existing_file(tmp_path / "something_else_entirely.params", "parameter file")


def test_an_empty_folder_is_said_to_be_empty(tmp_path):
    with pytest.raises(ModelFileNotFoundError, match=r"no \.params file in"):
        existing_file(tmp_path / "m.params", "parameter file")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ModelFileNotFoundError, match=r"folder .*nowhere' does not exist"):
        existing_file(tmp_path / "nowhere" / "m.params", "parameter file")


def test_a_folder_is_not_a_file(tmp_path):
    (tmp_path / "m.params").touch()
    with pytest.raises(ModelFileNotFoundError, match=r"is a folder.*m\.params"):
        existing_file(tmp_path, "parameter file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileNotFoundError, match="not a regular file"):
        existing_file(tmp_path / "pipe", "parameter file")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_an_impossible_name_is_our_error(tmp_path, name):
    with pytest.raises(ModelFileNotFoundError):
        existing_file(tmp_path / name, "parameter file")


def test_a_file_is_returned_as_a_path(tmp_path):
    path = tmp_path / "m-symbol.json"
    path.touch()
    assert existing_file(str(path), "symbol file") == path


def test_the_error_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        existing_file(tmp_path / "x", "symbol file")
