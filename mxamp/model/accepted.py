"""What public functions accept, as types; MXNet has none, so its objects are what is asked of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Protocol, Sequence, Tuple, Union

from numpy.typing import NDArray

from mxamp.graph.shapes import InputShapes

if TYPE_CHECKING:
    from mxamp.graph.graph import Graph
    from mxamp.model.model import Model
    from mxamp.params.parameter import Parameter


class Symbol(Protocol):
    """``mx.sym.Symbol``."""

    def list_arguments(self) -> list[str]:
        """Return the names of its variables that are no auxiliary states."""

    def list_outputs(self) -> list[str]:
        """Return the names of its outputs."""

    def tojson(self) -> str:
        """Return it as JSON, without casts."""


class MxArray(Protocol):
    """``mx.nd.NDArray``, or ``mx.np.ndarray``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    def asnumpy(self) -> NDArray[Any]:
        """Return its values."""


class MxContext(Protocol):
    """``mx.Context``."""

    @property
    def device_type(self) -> str:
        """``cpu`` or ``gpu``."""

    @property
    def device_id(self) -> int:
        """Which of them."""


class Module(Protocol):
    """``mx.mod.Module``, or a ``BucketingModule``."""

    def get_params(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return its parameters and auxiliary states."""


class Block(Protocol):
    """``mx.gluon.HybridBlock``, or what :func:`mxamp.convert_block` returned."""

    def collect_params(self) -> Mapping[str, Any]:
        """Return its parameters."""


Array = Union[NDArray[Any], MxArray]
"""An array of samples."""

Labels = Union[Array, Sequence[object]]
"""One label a sample."""

Device = Union[str, MxContext, None]
"""Where to run: ``"cpu"``, ``"gpu(0)"``, ``mx.Context``; the CPU by default."""

GivenSymbol = Union[Symbol, "Graph"]
"""A symbol of MXNet, or a graph."""

BlockInputs = Sequence[Union[Array, "BlockInputs", None]]
"""What a block is called with, nested as its arguments are."""

Params = Mapping[str, Union[Array, "Parameter"]]

SymbolGenerator = Callable[..., Tuple[Symbol, Sequence[str], Sequence[str]]]
"""The ``sym_gen`` of a ``BucketingModule``."""

ModelOrTriple = Union["Model", Tuple[GivenSymbol, Params, Params]]
"""A model, or MXNet's ``(sym, args, auxs)``."""

AnyModel = Union[ModelOrTriple, Block, str, "os.PathLike[str]"]
"""Also a Gluon block, or the prefix of a pair of files."""

GivenData = Union[Mapping[str, Array], Array]
"""Arrays by the names of inputs, or one array for a model with one input."""

GivenSamples = Union[GivenData, str, "os.PathLike[str]", Iterable[object], Callable[[], Iterable[object]]]
"""Also files, or batches."""

NestedShapes = Sequence[Union[Sequence[int], "NestedShapes", None]]

BlockShapes = Union[InputShapes, NestedShapes]
"""The shapes of inputs by name, of the only one, or in a list nested as a block's arguments are."""
