"""What a target's JSON document may hold, and how one that is based on another becomes whole."""

from __future__ import annotations

import re
from typing import Any, Callable, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.measuring.machine import NEEDS
from mxamp.ops import FACTS
from mxamp.targets.backend import MXNET, RUNTIMES
from mxamp.targets.cost import CostModel
from mxamp.targets.parts import FusionPattern, FusionStep, OperatorSupport, Support


def target_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a target that a complete document states.

    Raises
    ------
    KeyError, ValueError, TypeError, AttributeError, re.error
        When a key is missing or a value is not what it must be.
    """
    fields = {
        "name": _text(document["name"]),
        "dtype": DType.parse(document["dtype"], emulated=True),
        "device": _device(document["device"]),
        "description": _text(document["description"]),
        "operators": {FACTS.canonical(op): _support(entry) for op, entry in document["operators"].items()},
        "default": Support(document["default"]),
        "fusion": _patterns(document.get("fusion", [])),
        "convolves_batch_norm": _flag(document.get("convolves_batch_norm", False)),
        "rewrites": _texts(document.get("rewrites", [])),
        "rounds_once": _patterns(document.get("rounds_once", [])),
        "warning": _text(document.get("warning", "")),
        "needs": _needs(document.get("needs", [])),
        "runtime": _runtime(document.get("runtime", MXNET)),
        "measured_on": dict(document.get("measured_on", {})),
    }
    if "fold_into" in document:
        fields["fold_into"] = _texts(document["fold_into"])
    if document.get("cost") is not None:
        fields["cost"] = CostModel.from_document(_canonical(document["cost"]))
    return fields


def _support(entry: Mapping[str, Any]) -> OperatorSupport:
    return OperatorSupport(
        Support(entry["support"]),
        _text(entry.get("note", "")),
        {key: _texts(values) for key, values in entry.get("only", {}).items()},
        bool(entry.get("volumes", True)),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} must be a string")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.80} must be true or false")
    return value


def _device(value: Any) -> str:
    if value not in ("cpu", "gpu"):
        raise ValueError(f"the device must be 'cpu' or 'gpu', not {value!r:.80}")
    return str(value)


def _runtime(value: Any) -> str:
    if value not in RUNTIMES:
        raise ValueError(f"the runtime must be one of {', '.join(map(repr, RUNTIMES))}, not {value!r:.80}")
    return str(value)


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError(f"{values!r:.80} must be a list of strings")
    return tuple(_text(value) for value in values)


def _needs(values: Any) -> tuple[str, ...]:
    needs = _texts(values)
    for need in needs:
        if need not in NEEDS:
            raise ValueError(f"needs holds {need!r:.80}; a machine can be asked for {', '.join(NEEDS)}")
    return needs


def _expression(text: str) -> str:
    re.compile(_text(text))
    return text


def _patterns(document: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[FusionPattern, ...]:
    return tuple(
        FusionPattern(
            tuple(
                FusionStep(
                    _texts(step["operators"]),
                    bool(step.get("optional", False)),
                    {key: _expression(text) for key, text in step.get("matching", {}).items()},
                    bool(step.get("any_input", False)),
                )
                for step in pattern
            )
        )
        for pattern in document
    )


_OWN = frozenset({"warning", "based_on", "measured_on", "fusion_checked"})
"""What is said of one target alone, and not of those based on it."""


def merged_documents(
    changes: Mapping[str, Any], builtin: Callable[[str], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return a document that holds everything, made of one that may hold what differs from another.

    Parameters
    ----------
    changes
        The document. ``based_on`` names the built-in target that it changes; in ``cost`` it names one whose
        costs are changed, instead of those of the whole document's. There ``kernels`` holds those that are
        others, and the rest stays.
    builtin
        Returns the complete document of a built-in target.
    """
    base = builtin(str(changes["based_on"])) if "based_on" in changes else {}
    merged = {key: value for key, value in base.items() if key not in _OWN}
    for key, value in changes.items():
        if key == "operators" and base and value is not None:
            merged[key] = {**base[key], **value}
        elif key == "cost" and value is not None and "based_on" in value:
            merged[key] = _changed_costs(builtin(str(value["based_on"])).get(key) or {}, value)
        elif key == "cost" and base and value is not None:
            merged[key] = _merged_costs(base.get(key) or {}, value)
        else:
            merged[key] = value
    return merged


def _changed_costs(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the costs that another target's are changed to."""
    others = {key: value for key, value in changes.items() if key not in ("based_on", "kernels")}
    merged = _merged_costs(base, others)
    kernels = dict(merged.get("kernels") or {})
    for family, trees in changes.get("kernels", {}).items():
        kernels[family] = {**kernels.get(family, {}), **trees}
    return {**merged, "kernels": kernels}


def _merged_costs(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    merged = {**_without_overruled_kernels(base, changes), **changes}
    if "source" in changes and "machine" not in changes:
        merged.pop("machine", None)  # the base's; these numbers are of another
    return merged


_KEEP_RATES = frozenset(
    {
        "cast",
        "corrections",
        "kernels_measured",
        "low_over_float32",
        "machine",
        "measured",
        "operators",
        "source",
    }
)
"""What a ``cost`` may say without its kernels' rates being others."""


def _without_overruled_kernels(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a ``cost`` without the kernels that a document based on it prices by other numbers."""
    kernels = base.get("kernels")
    if "kernels" in changes or not set(changes) <= _KEEP_RATES:
        return {**base, "kernels": {}, "corrections": {}}  # the rates themselves are others
    if not kernels:
        return base
    changed = {FACTS.canonical(op) for op in changes.get("operators", {})}
    if "cast" in changes:
        changed.add("cast")
    kept = {family: trees for family, trees in kernels.items() if not _belongs(family, changed)}
    return {**base, "kernels": kept}


def _belongs(family: str, operators: set[str]) -> bool:
    """Whether a family of kernels is one of these operators', such as ``Convolution 1x1``."""
    return family in operators or family.split(" ")[0] in operators


def _canonical(cost: Mapping[str, Any]) -> Mapping[str, Any]:
    operators = {FACTS.canonical(op): entries for op, entries in cost.get("operators", {}).items()}
    return {**cost, "operators": operators}
