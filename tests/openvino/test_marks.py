"""Marks in OpenVINO's files. Needs no OpenVINO."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from mxamp.openvino.marks import mark_layers

FILE = """<?xml version="1.0"?>
<net name="mxamp" version="11">
  <layers>
    <layer id="0" name="data" type="Parameter">
      <output><port id="0" precision="FP32" names="data"/></output></layer>
    <layer id="1" name="w" type="Const"><output><port id="0" precision="FP32" names="w"/></output></layer>
    <layer id="2" name="c" type="Convolution"><input/><output><port id="2" precision="FP32"/></output></layer>
    <layer id="3" name="a" type="Add"><rt_info/><input/>
      <output><port id="2" precision="FP32" names="c_output,other"/></output></layer>
    <layer id="4" name="s" type="ShapeOf"><input/><output><port id="1" precision="I64"/></output></layer>
    <layer id="5" name="e" type="Exp"><input/>
      <output><port id="1" precision="FP32" names="e_output"/></output></layer>
    <layer id="6" name="r" type="Result"><input/></layer>
  </layers>
  <edges>
    <edge from-layer="0" to-layer="2"/><edge from-layer="1" to-layer="2"/><edge from-layer="2" to-layer="3"/>
    <edge from-layer="3" to-layer="4"/><edge from-layer="3" to-layer="5"/><edge from-layer="5" to-layer="6"/>
  </edges>
</net>
"""

OWNERS = {"c_output": "conv0", "e_output": "exp0"}


def marked(tmp_path: Path, *kept: str) -> set[str]:
    path = tmp_path / "model.xml"
    path.write_text(FILE, "utf-8")
    count = mark_layers(path, OWNERS, frozenset(kept))
    layers = ElementTree.parse(path).getroot().iter("layer")
    found = {
        layer.attrib["name"]
        for layer in layers
        if layer.find("rt_info/attribute[@name='precise']") is not None
    }
    assert len(found) == count
    return found


def test_all_layers_that_were_made_of_one_operator_are_marked(tmp_path: Path) -> None:
    assert marked(tmp_path, "conv0") == {"c", "a"}


def test_only_what_was_asked_for_is_marked(tmp_path: Path) -> None:
    assert marked(tmp_path, "exp0") == {"e"}
    assert marked(tmp_path) == set()


def test_parameters_constants_and_integers_are_never_marked(tmp_path: Path) -> None:
    assert marked(tmp_path, "conv0", "exp0") == {"c", "a", "e"}
