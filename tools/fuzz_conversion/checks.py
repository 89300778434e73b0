"""What must hold of a conversion, and the first thing that does not."""

from __future__ import annotations

import re
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

import mxamp
from mxamp.dtypes import DType
from mxamp.errors import ExportError, MxampError, OnnxMissingError, PolicyError
from mxamp.graph.output_names import output_names
from mxamp.graph.symbol_reader import parse_symbol
from mxamp.onnx import OnnxSession
from mxamp.ops.formats import as_format
from tools.fuzz_conversion.execution import Bound, numpy_shapes, to_symbol
from tools.fuzz_conversion.known_faults import FUSED_TOO, ONNX_DIFFERS, known_fault
from tools.fuzz_conversion.model import RandomModel
from tools.fuzz_conversion.options import arguments
from tools.fuzz_conversion.perturbation import Perturbed, Reference

__all__ = ["Checked", "FindingError", "check"]

_FEW, _MANY = 4, 150
"""Perturbed runs: as many as nearly always do, and as many as decide whether there is a finding."""

_LAST_DIGITS = 2e-6
"""What oneDNN's own log_softmax errs by."""

_NO_KERNEL = ("NOT_IMPLEMENTED", "No corresponding Numpy type")
"""What ONNX Runtime says where it has no kernel, as of the newest opset, which bfloat16 needs."""

_FACTOR = 3.0
"""How much further than the perturbed program a conversion may move: it rounds at more places."""


class FindingError(Exception):
    """Something that does not hold.

    Parameters
    ----------
    kind
        What, in a few words: shrinking keeps it.
    text
        Where and how much.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


class _SkippedError(Exception):
    """There is nothing to compare with."""


class _RefusedError(Exception):
    """The conversion was refused, with good reason."""


@dataclass(frozen=True)
class Checked:
    """How a case went.

    Attributes
    ----------
    status
        ``"ok"``, ``"finding"``, ``"known"`` (a fault of MXNet's that is on the list), ``"skipped"`` (FP32
        itself is no reference) or ``"refused"`` (an output was asked for in a dtype that it cannot have).
    kind, text
        Of the finding, or why there was nothing to check.
    error
        The largest error in units of the perturbed program's.
    low
        Operator nodes that compute low.
    """

    status: str
    kind: str = ""
    text: str = ""
    error: float = 0.0
    low: int = 0


def check(
    model: RandomModel, options: dict[str, Any], *, seed: int = 0, stage: Callable[[str], None]
) -> Checked:
    """Check one conversion.

    Parameters
    ----------
    model
        The FP32 model.
    options
        As :func:`tools.fuzz_conversion.options.random_options` draws them.
    seed
        Of the perturbations.
    stage
        Told what comes next: the last one told is where a process died.
    """
    case = _Case(model, options, seed, stage)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return case.check()
        except _SkippedError as skipped:
            return Checked("skipped", *skipped.args)
        except _RefusedError as refused:
            return Checked("refused", *refused.args)
        except FindingError as finding:
            reason = known_fault(model, options, finding.kind, finding.text)
            status = "finding" if reason is None else "known"
            return Checked(status, finding.kind, reason or finding.text, case.error, case.low)


class _Case:
    def __init__(
        self, model: RandomModel, options: dict[str, Any], seed: int, stage: Callable[[str], None]
    ) -> None:
        self.model = model
        self.options = options
        self.seed = seed
        self.stage = stage
        self.error = 0.0
        self.low = 0
        self.fused: list[list[NDArray[Any]]] = []

    def check(self) -> Checked:
        options = self.options
        self.stage("fp32")
        symbol = to_symbol(self.model.graph)
        # In the order in which MXNet stores it, which shrinking does not keep.
        with numpy_shapes(self.model.graph):  # or it is stored as one without
            text = symbol.tojson(remove_amp_cast=False)
        stored = parse_symbol(text, is_from_mxnet=True)
        model = self.model = self.model.with_graph(stored)
        try:
            reference = Reference(model)
        except mx.base.MXNetError as error:
            return Checked("skipped", "FP32 does not run", _last_line(error))
        format = as_format(options["target_dtype"])
        if reference.largest() > min(1e4, format.max_finite / 4):
            return Checked("skipped", "values too large")
        args = {name: mx.nd.array(values, dtype=values.dtype) for name, values in model.args.items()}
        auxs = {name: mx.nd.array(values, dtype=values.dtype) for name, values in model.auxs.items()}
        with numpy_shapes(model.graph):
            stock = self._stock(symbol, args, auxs)
            if stock is not None:
                return stock
            converted = self._converted(symbol, args, auxs)
            self._unchanged(symbol, args, auxs)
            self._interface(converted)
            outputs = self._executed(converted)
        perturbed = Perturbed(reference, format)
        self._close(reference, outputs, perturbed, self._rounded(converted, format))
        if self.seed % 4 == 1:
            self._exported(reference, perturbed)
        with numpy_shapes(model.graph):
            if options["emulate"] is None:
                self._routes(converted)
                self._again(converted)
                if self.seed % 4 == 0:
                    self._saved(converted, outputs)
            elif self.seed % 4 == 0:
                self._routes(converted)
        return Checked("ok", error=self.error, low=self.low)

    # ------------------------------------------------------------------ FP32 as deployed

    def _stock(self, symbol: Any, args: Mapping[str, Any], auxs: Mapping[str, Any]) -> Checked | None:
        """Run what stock MXNet makes of the FP32 model; what fails there need not run converted."""
        self.stage("fp32 fused")
        try:
            bound = Bound(symbol, {**args, **auxs, **self.model.data[0]}, fused=True)
            self.fused = [bound.run(data) for data in self.model.data]
            bound.run(self.model.data[0])
        except mx.base.MXNetError as error:
            return Checked("skipped", "FP32 does not run as deployed", _last_line(error))
        return None

    # ------------------------------------------------------------------ converting

    def _converted(self, symbol: Any, args: Any, auxs: Any) -> mxamp.Model:
        self.stage("convert")
        converted = self._call("convert_model", symbol, args, auxs, **arguments(self.options, self.model))
        assert converted.report is not None
        self.low = sum(node.compute == self.options["target_dtype"] for node in converted.report.nodes)
        return converted

    def _call(self, what: str, *given: Any, **options: Any) -> mxamp.Model:
        try:
            return mxamp.convert_model(*given, **options)
        except Exception as error:
            if isinstance(error, PolicyError) and isinstance(self.options.get("io_dtype"), dict):
                raise _RefusedError("io_dtype", str(error)) from error
            kind = "an error of mxamp's" if isinstance(error, MxampError) else "another exception"
            trace = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(trace.filename).name}:{trace.name}"
            raise FindingError(f"{what}: {kind}, {type(error).__name__} in {where}", str(error)) from error

    def _unchanged(self, symbol: Any, args: Mapping[str, Any], auxs: Mapping[str, Any]) -> None:
        for given, before in ((args, self.model.args), (auxs, self.model.auxs)):
            if list(given) != list(before):
                raise FindingError("the caller's dict changed", f"{list(before)} -> {list(given)}")
            for name, values in before.items():
                if given[name].asnumpy().tobytes() != values.tobytes():
                    raise FindingError("the caller's array changed", name)
        text = to_symbol(self.model.graph).tojson(remove_amp_cast=False)
        if symbol.tojson(remove_amp_cast=False) != text:
            raise FindingError("the caller's symbol changed", "")

    def _interface(self, converted: mxamp.Model) -> None:
        before, after = output_names(self.model.graph), output_names(converted.graph)
        if before != after:
            raise FindingError("outputs are renamed", f"{before} -> {after}")
        names = converted.sym.list_outputs()
        stock = to_symbol(self.model.graph).list_outputs()
        if names != stock:
            raise FindingError("MXNet's output names differ", f"{stock} -> {names}")
        text = converted.sym.tojson(remove_amp_cast=False)
        counts = {node.name: node.num_outputs for node in parse_symbol(text, is_from_mxnet=True).nodes}
        for node in converted.graph.nodes:
            if node.name not in counts:
                raise FindingError("a node is left that nobody reads", str(node))
            if node.num_outputs > counts[node.name]:
                raise FindingError("a node has more outputs than in MXNet", str(node))
        stored = {*converted.arg_params, *converted.aux_params}
        inputs = [name for name in converted.graph.variables if name not in stored]
        if set(inputs) != set(self.model.data[0]):
            raise FindingError("inputs differ", f"{sorted(self.model.data[0])} -> {sorted(inputs)}")

    def _executed(self, converted: mxamp.Model) -> list[list[NDArray[Any]]]:
        """Run the conversion as deployed, on both sets of data and on the first again."""
        self.stage("run")
        sym, args, auxs = converted
        try:
            bound = Bound(sym, {**args, **auxs, **self._inputs(converted)}, fused=True)
            first, second, again = (bound.run(data) for data in (*self.model.data, self.model.data[0]))
        except mx.base.MXNetError as error:
            text = _last_line(error)
            raise FindingError(f"FP32 runs and the conversion does not, {_class_of(text)}", text) from error
        for number, (one, other) in enumerate(zip(first, again)):
            if one.tobytes() != other.tobytes():
                raise FindingError("the same data give other outputs", f"output {number}")
        return [first, second]

    def _inputs(self, converted: mxamp.Model) -> dict[str, Any]:
        assert converted.report is not None
        found = {}
        for name, values in self.model.data[0].items():
            array = mx.nd.array(values, dtype=values.dtype)
            dtype = converted.report.inputs.get(name, "float32")
            if dtype == self.options["target_dtype"]:
                # By name, an input can be low that is fed with integers otherwise; float32 when emulated.
                array = array.astype("float32")
                if self.options["emulate"] is None:
                    array = mx.nd.amp_cast(array, dtype=dtype)
            found[name] = array
        return found

    # ------------------------------------------------------------------ values

    def _rounded(self, converted: mxamp.Model, format: DType) -> list[float]:
        """Return for each output what rounding it once may do to a value: what leaves low was asked for."""
        assert converted.report is not None
        left = converted.report.outputs
        low = [left.get(name) == self.options["target_dtype"] for name in output_names(self.model.graph)]
        return [2.0**-format.format.significand_bits if is_low else 0.0 for is_low in low]

    def _close(
        self,
        reference: Reference,
        outputs: list[list[NDArray[Any]]],
        perturbed: Perturbed,
        rounded: list[float],
        kind: str = "",
    ) -> None:
        """Compare values; a kind of finding is said where it is not the conversion that computed them."""
        self.stage("perturb")
        for given, expected in zip(outputs, reference.outputs):
            for number, (one, other) in enumerate(zip(given, expected)):
                if one.shape != other.shape:
                    raise FindingError("shapes differ", f"output {number}: {other.shape} -> {one.shape}")
        try:
            perturbed.run(_FEW, self.seed)
            if self._worst(reference, outputs, perturbed, rounded)[0] > 1:
                perturbed.run(_MANY, self.seed + 1)
                perturbed.run(_MANY // 3, self.seed + 2, rounding=True)
        except (mx.base.MXNetError, IndexError) as error:
            # Beside an operator whose result has no shape until it runs, or where an index was moved.
            raise _SkippedError("the perturbed program does not run", _last_line(error)) from error
        error, text = self._worst(reference, outputs, perturbed, rounded)
        if kind:
            if error > 1:
                raise FindingError(kind, text)
            return
        self.error = min(error, 1e9)
        if error > 1:
            deployed = self._worst(reference, self.fused, perturbed, rounded)[0]
            raise FindingError(FUSED_TOO if deployed > 1 else "values differ", text)

    def _worst(
        self,
        reference: Reference,
        outputs: list[list[NDArray[Any]]],
        perturbed: Perturbed,
        rounded: list[float],
    ) -> tuple[float, str]:
        """Return the largest error, in units of what is allowed."""
        worst, text = 0.0, ""
        for turn, (given, expected, moved) in enumerate(
            zip(outputs, reference.outputs, perturbed.deviations)
        ):
            for number, (one, other, allowed) in enumerate(zip(given, expected, moved)):
                bound = _allowed(other, allowed) + rounded[number] * np.abs(other.astype(np.float64))
                with np.errstate(all="ignore"):
                    off = np.abs(one.astype(np.float64) - other.astype(np.float64))
                    off = np.where(np.isnan(off), np.inf, off)
                    shares = np.where(np.isinf(bound), 0.0, off / bound)
                place = np.unravel_index(int(np.argmax(shares)), shares.shape) if shares.size else ()
                if shares.size and shares[place] > worst:
                    worst = float(shares[place])
                    text = (
                        f"output {number} at {tuple(map(int, place))}, data {turn}: "
                        f"{other[place]!s} in FP32, {one[place]!s} converted, {bound[place]:.3g} allowed"
                    )
        return worst, text

    # ------------------------------------------------------------------ as ONNX

    def _exported(self, reference: Reference, perturbed: Perturbed) -> None:
        """Write FP32 as ONNX, and run it where ONNX Runtime is installed; what has no mapping is left out."""
        self.stage("onnx")
        with tempfile.TemporaryDirectory(prefix="mxamp-fuzz-") as folder:
            path = Path(folder, "model.onnx")
            given = mxamp.Model.of(self.model.graph, self.model.args, self.model.auxs)
            try:
                given.export_onnx(path, input_shapes=self.model.input_shapes)
                session = OnnxSession(path, threads=1)
                outputs = [session.run(data) for data in self.model.data]
            except (ExportError, OnnxMissingError):
                return
            except Exception as error:
                if any(said in str(error) for said in _NO_KERNEL):
                    return
                raise FindingError(f"ONNX: {type(error).__name__}", _last_line(error)) from error
        near = [
            [_nearly(one, other) for one, other in zip(given, expected)]
            for given, expected in zip(outputs, reference.outputs)
        ]
        self._close(reference, near, perturbed, [0.0] * len(reference.outputs[0]), ONNX_DIFFERS)

    # ------------------------------------------------------------------ the same by other ways

    def _routes(self, converted: mxamp.Model) -> None:
        """Convert the graph with NumPy arrays, and from files."""
        self.stage("routes")
        model, given = self.model, arguments(self.options, self.model)
        by_graph = self._call("graph route", model.graph, model.args, model.auxs, **given)
        _same(converted, by_graph, "the graph route differs")
        if self.seed % 4:
            return
        with tempfile.TemporaryDirectory(prefix="mxamp-fuzz-") as folder:
            prefix = str(Path(folder, "model"))
            mxamp.Model.of(model.graph, model.args, model.auxs).save(prefix)
            loaded = mxamp.load(prefix)
            by_file = self._call("file route", loaded.graph, loaded.arg_params, loaded.aux_params, **given)
            _same(converted, by_file, "the file route differs")

    def _again(self, converted: mxamp.Model) -> None:
        if "exclude" in self.options:
            return  # a name that an output's cast took over is another node's now
        self.stage("again")
        given = arguments(self.options, self.model)
        twice = self._call(
            "converting again", converted.graph, converted.arg_params, converted.aux_params, **given
        )
        _same(converted, twice, "converting again changes something")

    def _saved(self, converted: mxamp.Model, outputs: list[list[NDArray[Any]]]) -> None:
        self.stage("save")
        with tempfile.TemporaryDirectory(prefix="mxamp-fuzz-") as folder:
            prefix = str(Path(folder, "model"))
            try:
                converted.save(prefix)
            except Exception as error:
                raise FindingError("save raises", f"{type(error).__name__}: {error}") from error
            _same(converted, mxamp.load(prefix), "what is loaded differs from what was saved")
            sym, args, auxs = mx.model.load_checkpoint(prefix, 0)
        bound = Bound(sym, {**args, **auxs, **self._inputs(converted)}, fused=True)
        for data, expected in zip(self.model.data, outputs):
            for number, (one, other) in enumerate(zip(bound.run(data), expected)):
                if one.tobytes() != other.tobytes():
                    raise FindingError(
                        "stock MXNet computes something else from the files", f"output {number}"
                    )


def _allowed(expected: NDArray[Any], moved: NDArray[Any]) -> NDArray[Any]:
    """Return how far each value may be off: as far as perturbations move it, and others like it."""
    finite = moved[np.isfinite(moved)]
    typical = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    largest = float(np.abs(expected.astype(np.float64)).max(initial=0.0))
    bound: NDArray[Any] = _FACTOR * moved + typical + 1e-5 * largest + 1e-7
    return bound


def _nearly(found: NDArray[Any], expected: NDArray[Any]) -> NDArray[Any]:
    """Return what was found, and what was expected where that is as good as the same."""
    if found.shape != expected.shape or expected.dtype.kind != "f":
        return found
    near: NDArray[Any] = np.where(np.abs(found - expected) <= _LAST_DIGITS, expected, found)
    return near


def _same(one: mxamp.Model, other: mxamp.Model, kind: str) -> None:
    if one.symbol_json() != other.symbol_json():
        lines = [f"{a!s:.200} -> {b!s:.200}" for a, b in zip(one.graph.nodes, other.graph.nodes) if a != b]
        raise FindingError(kind, (lines or [f"{len(one.graph.nodes)} -> {len(other.graph.nodes)} nodes"])[0])
    for ours, theirs in ((one.arg_params, other.arg_params), (one.aux_params, other.aux_params)):
        if set(ours) != set(theirs):
            raise FindingError(kind, f"parameters {sorted(set(ours) ^ set(theirs))}")
        for name in ours:
            if ours[name].dtype is not theirs[name].dtype:
                raise FindingError(kind, f"{name}: {ours[name].dtype} -> {theirs[name].dtype}")
            if np.asarray(ours[name].numpy()).tobytes() != np.asarray(theirs[name].numpy()).tobytes():
                raise FindingError(kind, f"values of {name}")


def _class_of(text: str) -> str:
    """Return what a message of MXNet's is about: without names, numbers and places in its sources."""
    message = re.sub(r"\S*\d\S*|\S+\.(h|cc):\S*|^MXNetError:", "", text)
    return " ".join(message.split())[:80]


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1][:400] if lines else type(error).__name__
