"""Marks in OpenVINO's files: which layers are to compute in the precision that the file gives them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Mapping

KEPT = ("precise", "0")
"""Name and version of the attribute that keeps a layer from a lower inference precision.

OpenVINO's own name of it is ``DisableFP16Compression``; its plugin for CPUs keeps such layers from bfloat16,
too. Releases of 2026 have ``DisablePrecisionConversion`` for the same, and read this one.
"""

_NEVER = frozenset({"Const", "Parameter", "Result", "ShapeOf"})


def mark_layers(path: Path, owners: Mapping[str, str], kept: frozenset[str]) -> int:
    """Mark the layers of a file that belong to some nodes, and return how many they are.

    Parameters
    ----------
    path
        The ``.xml``, which is changed.
    owners
        Name of a tensor -> the node that computes it. Layers that OpenVINO made of one operator, whose
        tensors have no name, belong to the node of what reads them.
    kept
        The nodes.
    """
    tree = ElementTree.parse(path)
    layers = tree.getroot().find("layers")
    edges = tree.getroot().find("edges")
    assert layers is not None
    assert edges is not None
    readers: dict[str, list[str]] = {}
    for edge in edges:
        readers.setdefault(edge.attrib["from-layer"], []).append(edge.attrib["to-layer"])
    owner_of: dict[str, str | None] = {}
    marked = 0
    for layer in reversed(layers):  # readers come after what they read
        number = layer.attrib["id"]
        owner = _named_owner(layer, owners)
        if owner is None and layer.attrib["type"] not in _NEVER:
            of_readers = [owner_of[reader] for reader in readers.get(number, ())]
            owner = next((one for one in of_readers if one is not None), None)
        owner_of[number] = owner
        if owner in kept and layer.attrib["type"] not in _NEVER and _computes_floats(layer):
            _mark(layer)
            marked += 1
    tree.write(path, encoding="utf-8", xml_declaration=True)
    return marked


def _named_owner(layer: ElementTree.Element, owners: Mapping[str, str]) -> str | None:
    for port in layer.findall("output/port"):
        for name in port.attrib.get("names", "").replace("\\,", "\0").split(","):
            owner = owners.get(name.replace("\0", ","))
            if owner is not None:
                return owner
    return None


def _computes_floats(layer: ElementTree.Element) -> bool:
    return any(port.attrib.get("precision") == "FP32" for port in layer.findall("output/port"))


def _mark(layer: ElementTree.Element) -> None:
    information = layer.find("rt_info")
    if information is None:
        information = ElementTree.Element("rt_info")
        ports = [place for place, part in enumerate(layer) if part.tag in ("input", "output")]
        layer.insert(ports[0], information)
    name, version = KEPT
    ElementTree.SubElement(information, "attribute", {"name": name, "version": version})
