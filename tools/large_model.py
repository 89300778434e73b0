"""Write a plausible model whose parameter file has the size you ask for, in little memory.

    python -m tools.large_model PREFIX --size 4GB

An image classifier: a stem, a stack of 3x3 convolutions with BatchNorm, all alike, and two fully connected
layers, the first of which holds about a quarter of all parameters, as in the VGG networks. MXNet can run it.
Weights are random, of the scale that training begins with.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from typing import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.errors import MxampError
from mxamp.files import atomic_write
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.graph.symbol_writer import write_symbol
from mxamp.model import model_paths
from mxamp.params import ParamsEncoder

__all__ = ["LargeModel", "large_model", "main", "parse_size", "write_large_model"]

INPUT_SHAPE = (1, 3, 14, 14)
_SPATIAL = 7
_CLASSES = 1000
_BLOCK = 1 << 22
"""Values in memory at a time."""
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass(frozen=True)
class LargeModel:
    """A graph and the shapes of its parameters.

    Attributes
    ----------
    graph : mxamp.graph.graph.Graph
        The graph; its input is ``data``, of :data:`INPUT_SHAPE`.
    args, auxs : dict
        Name -> shape, in the order in which the graph reads them; all are float32.
    """

    graph: Graph
    args: dict[str, tuple[int, ...]]
    auxs: dict[str, tuple[int, ...]]

    @property
    def nbytes(self) -> int:
        """The bytes of all parameters."""
        shapes = [*self.args.values(), *self.auxs.values()]
        return 4 * sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes)


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.args: dict[str, tuple[int, ...]] = {}
        self.auxs: dict[str, tuple[int, ...]] = {}

    def add(self, op: str, name: str, inputs: Sequence[Entry] = (), **attrs: object) -> Entry:
        self.nodes.append(Node(op, name, {key: str(value) for key, value in attrs.items()}, tuple(inputs)))
        return Entry(len(self.nodes) - 1)

    def arg(self, name: str, *shape: int) -> Entry:
        self.args[name] = shape
        return self.add("null", name)

    def aux(self, name: str, *shape: int) -> Entry:
        self.auxs[name] = shape
        return self.add("null", name)

    def block(self, data: Entry, name: str, channels: tuple[int, int], stride: int = 1) -> Entry:
        """Convolution, BatchNorm, ReLU."""
        weight = self.arg(f"{name}_conv_weight", channels[1], channels[0], 3, 3)
        layer = self.add(
            "Convolution",
            f"{name}_conv",
            [data, weight],
            kernel="(3, 3)",
            pad="(1, 1)",
            stride=f"({stride}, {stride})",
            num_filter=channels[1],
            no_bias=True,
        )
        statistics = [
            self.arg(f"{name}_bn_gamma", channels[1]),
            self.arg(f"{name}_bn_beta", channels[1]),
            self.aux(f"{name}_bn_moving_mean", channels[1]),
            self.aux(f"{name}_bn_moving_var", channels[1]),
        ]
        norm = self.add("BatchNorm", f"{name}_bn", [layer, *statistics], fix_gamma=False, eps=1e-05)
        return self.add("Activation", f"{name}_relu", [norm], act_type="relu")

    def dense(self, data: Entry, name: str, sizes: tuple[int, int]) -> Entry:
        weight = self.arg(f"{name}_weight", sizes[1], sizes[0])
        bias = self.arg(f"{name}_bias", sizes[1])
        return self.add("FullyConnected", name, [data, weight, bias], num_hidden=sizes[1])


def large_model(size: int) -> LargeModel:
    """Plan a model.

    Parameters
    ----------
    size : int
        The bytes that its parameters should take, to within a few per cent.

    Raises
    ------
    ValueError
        When that is less than a megabyte.
    """
    if size < 10**6:
        raise ValueError(f"the parameters take at least a megabyte, not {size} bytes")
    # About seventy convolutions; and so many channels that their sizes are ordinary.
    channels = max(8, 8 * round((size / 100 / 4 / 9) ** 0.5 / 8))
    features = channels * _SPATIAL**2
    hidden = max(1, round(size / 4 / 4 / features))
    left = size - 4 * hidden * (features + _CLASSES)
    blocks = max(1, round(left / (4 * 9 * channels**2)))
    build = _Builder()
    last = build.block(build.add("null", "data"), "stem", (INPUT_SHAPE[1], channels), stride=2)
    for number in range(1, blocks + 1):
        last = build.block(last, f"block{number}", (channels, channels))
    last = build.dense(build.add("Flatten", "flatten", [last]), "fc1", (features, hidden))
    last = build.add("Activation", "fc1_relu", [last], act_type="relu")
    last = build.dense(last, "fc2", (hidden, _CLASSES))
    last = build.add("softmax", "prob", [last], axis=-1)
    graph = Graph(tuple(build.nodes), (last,), {"mxnet_version": ["int", 10901]})
    return LargeModel(graph, build.args, build.auxs)


def write_large_model(prefix: str, size: int, *, seed: int = 0) -> LargeModel:
    """Write the two files of a model.

    Parameters
    ----------
    prefix : str
        Path and first part of the files' names.
    size : int
        The bytes of its parameters, more or less.
    seed : int, default 0
        Seed of the values.

    Returns
    -------
    LargeModel
        What was written.
    """
    model = large_model(size)
    random = np.random.default_rng(seed)
    # Drawing every number anew would take longer than all the rest: parts begin at random places of a block.
    numbers = random.standard_normal(2 * _BLOCK, np.float32)
    with atomic_write(*model_paths(prefix)) as (symbol_file, params_file):
        symbol_file.write(write_symbol(model.graph).encode("utf-8"))
        encoder = ParamsEncoder(params_file, len(model.args) + len(model.auxs))
        for mark, group in (("arg:", model.args), ("aux:", model.auxs)):
            for name, shape in group.items():
                encoder.add_parts(mark + name, DType.FLOAT32, shape, _values(name, shape, random, numbers))
        encoder.finish()
    return model


def _values(
    name: str, shape: tuple[int, ...], random: np.random.Generator, numbers: NDArray[np.float32]
) -> Iterator[NDArray[np.float32]]:
    size = int(np.prod(shape, dtype=np.int64))
    offset, scale = 0.0, 0.1
    if name.endswith("weight"):
        scale = (2 / (size / shape[0])) ** 0.5
    elif name.endswith(("gamma", "var")):
        offset = 1.0
    for start in range(0, size, _BLOCK):
        count = min(_BLOCK, size - start)
        first = int(random.integers(_BLOCK))
        values = numbers[first : first + count]
        # A variance is positive.
        varied = np.abs(values) if name.endswith("var") else values
        yield (varied * np.float32(scale) + np.float32(offset)).astype(np.float32, copy=False)


def parse_size(text: str) -> int:
    """Read a number of bytes such as ``4GB``, ``300MB`` or ``1.5GiB``.

    Raises
    ------
    argparse.ArgumentTypeError
        When it has another form.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]I?B|)\s*", text.upper())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 4GB, 300MB or 1.5GiB")
    return round(float(found[1]) * _UNITS[found[2]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a model.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; None means those of the process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.large_model",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument("prefix", metavar="PREFIX", help="path and first part of the files' names")
    parser.add_argument(
        "--size", type=parse_size, default="4GB", help="of the parameter file (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the values (default: 0)")
    options = parser.parse_args(arguments)
    try:
        model = write_large_model(options.prefix, options.size, seed=options.seed)
    except (MxampError, ValueError) as error:
        print(f"large_model: {error}", file=sys.stderr)
        return 1
    print(
        f"{options.prefix}: {len(model.graph.nodes)} nodes, {len(model.args) + len(model.auxs)} parameters, "
        f"{model.nbytes / 1e9:.3f} GB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
