"""Measurements kept on disk, by what was measured: the same graph on the same machine is not measured again.

A file is named after a hash of everything that times depend on: graphs with their attributes, shapes and
dtypes of parameters and inputs, device, MXNet's version, the CPU, threads, the settings of MXNet and oneDNN,
and the version of the way of measuring. Values of parameters are no part of it, for times do not depend on
them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any, Mapping, Sequence

from mxamp.graph.graph import Graph
from mxamp.graph.symbol_writer import write_symbol
from mxamp.measuring.machine import processors
from mxamp.ops.libraries import folders
from mxamp.params.parameter import Parameter

VERSION = 2
"""Of the way of measuring; a change of it makes everything be measured again."""

_SETTINGS = ("MXNET_", "OMP_", "DNNL_", "MKLDNN_", "KMP_", "GOMP_", "CUDA_VISIBLE_DEVICES")
_NOT_SETTINGS = frozenset({"MXNET_HOME", "MXNET_SUBGRAPH_VERBOSE"})


def cache_folder() -> Path:
    """Return where measurements are kept: ``$XDG_CACHE_HOME/mxamp/profile``."""
    return folders()[-1] / "profile"


def environment(mxnet_version: str, device: str) -> dict[str, Any]:
    """Return what times depend on apart from the model."""
    settings = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_SETTINGS) and name not in _NOT_SETTINGS
    }
    return {
        "version": VERSION,
        "mxnet": mxnet_version,
        "device": device,
        "cpu": _cpu_model(),
        "cores": processors(),
        "settings": settings,
    }


def _cpu_model() -> str:
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if not line.strip():
                break  # one processor says enough
            if name.strip() in ("model name", "Model", "flags", "Features", "cache size"):
                found[name.strip()] = value.strip()
    return json.dumps(found, sort_keys=True) if found else platform.processor() or platform.machine()


def graph_content(graph: Graph, params: Mapping[str, Parameter]) -> str:
    """Return what of a model its times depend on, whatever its names are."""
    named = [
        node._replace(name=f"{'v' if node.is_variable else 'n'}{position}")
        for position, node in enumerate(graph.nodes)
    ]
    text = write_symbol(Graph(tuple(named), graph.heads, graph.attrs, graph.head_versions))
    forms = [
        [position, list(params[name].shape), params[name].dtype.label]
        for name, position in graph.variables.items()
        if name in params
    ]
    return json.dumps([text, forms])


class MeasurementCache:
    """Results by content.

    Parameters
    ----------
    folder
        Where they are; None for nowhere.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @staticmethod
    def key(what: str, machine: Mapping[str, Any], contents: Sequence[str], **more: Any) -> str:
        """Return the name of a measurement.

        Parameters
        ----------
        what
            What kind of measurement it is.
        machine
            What :func:`environment` returned.
        contents
            What :func:`graph_content` returned of each model.
        **more
            What else times depend on.
        """
        digest = hashlib.sha256()
        for part in (what, json.dumps(machine, sort_keys=True), json.dumps(more, sort_keys=True), *contents):
            digest.update(part.encode("utf-8") + b"\0")
        return f"{what}-{digest.hexdigest()[:32]}"

    def read(self, key: str) -> Any:
        """Return a result, or None where there is none that can be read."""
        if self._folder is None:
            return None
        try:
            document = json.loads((self._folder / f"{key}.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(document, dict) or document.get("key") != key:
            return None
        return document.get("result")

    def drop(self, key: str) -> None:
        """Remove a result that turned out to be none."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / f"{key}.json").unlink()

    def write(self, key: str, result: Any) -> None:
        """Keep a result; where that is not possible, it is measured again next time."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    json.dump({"key": key, "result": result}, file)
                os.replace(name, self._folder / f"{key}.json")
            except BaseException:
                os.unlink(name)
                raise
