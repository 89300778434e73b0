"""Write docs/results/operators.md: what mxamp knows of every operator that MXNet registers.

    python -m tools.document_operators            (or: make docs-operators)

It is made from the records, the built-in policies, the list of registered operators and the list of those
whose records are not held against MXNet, and needs no MXNet. A test fails when the document is not what this
writes.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Iterator, Mapping, Sequence

import mxamp.ops.tables
from mxamp.dtypes import DType
from mxamp.ops import FACTS, InputRole, OperatorFacts, SameAsData
from mxamp.ops.roles import FromAttribute, FromData, OutputRule
from mxamp.policy.color import Color
from mxamp.policy.entries import entry_for
from mxamp.policy.parts import OperatorPolicy
from mxamp.policy.policy import Policy
from tools.registered_operators import LIST_FILE, RegisteredOperator, listed_operators, listed_version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["DOCUMENT", "document", "main", "not_exercised"]

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "results" / "operators.md"
WIDTH = 110

_INTRODUCTION = """\
# Operators

What mxamp knows of each of the {operators} operators that MXNet {version} registers (under {names} names),
and what the built-in policies make of it. This page is generated from the records in `mxamp/ops/tables/` and
the policy in `mxamp/policy/tables/`; a test fails when it is out of date.

**Color** is what the numerics of a dtype allow, whatever machine the model runs on. A *green* operator is
better off in low precision: large sums of products, which hardware does fast and sums in FP32. A *gray* one
may run in either, whichever takes fewer casts. A *red* one computes in FP32. Attributes, parameters and
positions can turn a node red whose operator is not: see [how mxamp decides](../how-it-decides.md). A
[policy](../policies.md) of yours changes all of it.

**Inputs** are listed with what the operator does with them, their role:

| Role | Meaning |
|---|---|
{roles}

**Outputs** have the dtype of the data, unless the table says otherwise. `dtype=` means: the dtype which that
attribute names. *By attributes* means that more than a dtype depends on attributes.

**Checked** says whether a generated test held the record against MXNet's own type inference: dtypes of
outputs for data of every dtype, FP32 and integer indices beside low data, FP32 parameters beside low data,
inputs that must share a dtype. Where it could not, it says why.
"""

_ROLES = {
    InputRole.DATA: ("", "values to compute with; all data inputs have one dtype"),
    InputRole.PARAM_FP32: ("FP32", "FP32 whatever the dtype of the data is"),
    InputRole.INDEX: ("index", "integers, perhaps in a float array; never cast"),
    InputRole.COORDINATE: (
        "position",
        "has the dtype of the data, but holds positions, so that the operator is red",
    ),
    InputRole.LIKE: ("shape", "only its shape is read; any dtype will do"),
    InputRole.LIKE_SAME: ("unread", "its values are not read, but its dtype must be that of the data"),
    InputRole.FREE: ("any", "read in whatever dtype it comes"),
    InputRole.KEPT: ("kept", "stays in the dtype it had before conversion"),
}
"""Role -> the word for it in the tables, and what it means."""

_HEADINGS = {
    Color.GREEN: "Green: low precision is wanted",
    Color.GRAY: "Gray: either will do",
    Color.RED: "Red: computes in FP32",
}

_APART = "Handled by code of their own"
_NEVER = "In no inference graph"


@functools.lru_cache(maxsize=None)
def not_exercised() -> Mapping[str, str]:
    """Return the operators whose records are not held against MXNet, with the reasons."""
    text = LIST_FILE.with_name("not-exercised.toml").read_text("utf-8")
    return {str(name): str(reason) for name, reason in tomllib.loads(text).items()}


@dataclass(frozen=True)
class _Row:
    """One operator with all that is known of it."""

    operator: RegisteredOperator
    facts: OperatorFacts
    float16: OperatorPolicy
    bfloat16: OperatorPolicy

    @property
    def color(self) -> Color:
        return self.float16.color


def _rows() -> list[_Row]:
    policies = (Policy.default("float16"), Policy.default("bfloat16"))
    rows = []
    for name, operator in listed_operators().items():
        facts = FACTS.get(name)
        if facts is None:
            raise LookupError(f"{name} has no record")
        missing = OperatorPolicy(Color.RED, facts.apart or "in no table of the policy")
        low, brain = (entry_for(policy, name) or missing for policy in policies)
        rows.append(_Row(operator, facts, low, brain))
    return rows


def _families() -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the title of each table of records, from its docstring, with the names of its operators."""
    package = mxamp.ops.tables
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
        table = importlib.import_module(f"{package.__name__}.{module.name}")
        records: Iterable[OperatorFacts] = getattr(table, "RECORDS", ())
        title = (table.__doc__ or module.name).strip().splitlines()[0].rstrip(".").split(":")[0]
        yield title, frozenset(facts.name for facts in records)


def document() -> str:
    """Return the text of the document."""
    rows = _rows()
    names = sum(1 + len(row.operator.aliases) for row in rows)
    roles = "\n".join(f"| {word or '(none)'} | {meaning} |" for word, meaning in _ROLES.values())
    parts = [
        _INTRODUCTION.format(operators=len(rows), names=f"{names:,}", version=listed_version(), roles=roles)
    ]
    parts.append(_summary(rows))
    apart = [row for row in rows if row.facts.apart]
    never = [row for row in rows if row.facts.never_in_inference]
    for color in (Color.GREEN, Color.GRAY, Color.RED):
        chosen = [row for row in rows if row.color is color and row not in apart and row not in never]
        parts.append(f"## {_HEADINGS[color]}\n")
        parts.extend(_by_family(chosen))
    parts.append(f"## {_APART}\n\n{_table(apart)}")
    parts.append(f"## {_NEVER}\n")
    parts.append(
        textwrap.fill(
            "A node of these computes in FP32 and its inputs stay as they are; the dtype of what it returns "
            "is not known. Their records claim nothing else, so there is nothing to check.",
            WIDTH,
        )
        + "\n"
    )
    parts.extend(_by_reason(never))
    return "\n".join(parts)


def _summary(rows: Sequence[_Row]) -> str:
    """Return the table that counts operators by color, and how many of each are checked."""
    kinds: dict[str, list[_Row]] = {color.name.lower(): [] for color in (Color.GREEN, Color.GRAY, Color.RED)}
    kinds.update({_APART.lower(): [], _NEVER.lower(): []})
    brain = dict.fromkeys(kinds, 0)
    for row in rows:
        if row.facts.apart or row.facts.never_in_inference:
            kind = brain_kind = (_APART if row.facts.apart else _NEVER).lower()
        else:
            kind, brain_kind = row.color.name.lower(), row.bfloat16.color.name.lower()
        kinds[kind].append(row)
        brain[brain_kind] += 1
    lines = ["| | float16 | bfloat16 | checked | not checked |", "|---|--:|--:|--:|--:|"]
    for kind, members in kinds.items():
        checked = sum(_checked(row) == "yes" for row in members)
        lines.append(f"| {kind} | {len(members)} | {brain[kind]} | {checked} | {len(members) - checked} |")
    checked = sum(_checked(row) == "yes" for row in rows)
    lines.append(f"| all | {len(rows)} | {len(rows)} | {checked} | {len(rows) - checked} |")
    return "\n".join(lines) + "\n"


def _by_family(rows: Sequence[_Row]) -> Iterator[str]:
    left = {row.operator.name: row for row in rows}
    for title, members in _families():
        chosen = [left.pop(row.operator.name) for row in rows if row.operator.name in members]
        if chosen:
            yield f"### {title}\n\n{_table(chosen)}"
    if left:
        yield f"### Others\n\n{_table(list(left.values()))}"


def _table(rows: Sequence[_Row]) -> str:
    lines = ["| Operator | Inputs | Outputs | float16 | bfloat16 | Checked |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = (_names(row.operator), _inputs(row), _outputs(row.facts), *_colors(row), _checked(row))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _names(operator: RegisteredOperator) -> str:
    count = len(operator.aliases)
    return f"`{operator.name}`" + (f" and {count} alias{'es' if count > 1 else ''}" if count else "")


def _inputs(row: _Row) -> str:
    """Return the names of the inputs with their roles; neighbours of one role share the word for it."""
    facts, operator = row.facts, row.operator
    names = list(operator.inputs)
    names += [f"input {number}" for number in range(len(names) + 1, len(facts.roles) + 1)]
    if operator.variadic or (facts.rest is not None and not names):
        names[-1:] = [f"{names[-1] if names else 'input'} ..."]
    described = [(name, _ROLES[facts.role(number)][0]) for number, name in enumerate(names)]
    groups = []
    for word, members in itertools.groupby(described, key=lambda pair: pair[1]):
        listed = ", ".join(name for name, _ in members)
        groups.append(f"{listed}: {word}" if word else listed)
    text = "; ".join(groups) or "none"
    return f"{text}; roles by attributes" if facts.roles_by_attributes is not None else text


def _outputs(facts: OperatorFacts) -> str:
    if facts.never_in_inference or facts.apart:
        return "unknown"
    if facts.outputs_by_attributes is not None:
        return "by attributes"
    roles = facts.roles if facts.rest is None else (*facts.roles, facts.rest)
    if any(role.shares_dtype for role in roles):
        return ", then ".join(map(_rule, facts.outputs))
    return ", then ".join("unknown" if rule is SameAsData.SAME else _rule(rule) for rule in facts.outputs)


def _rule(rule: OutputRule | SameAsData | FromData) -> str:
    if isinstance(rule, DType):
        return rule.label
    if isinstance(rule, FromAttribute):
        return f"`{rule.key}=`, else {_rule(rule.default)}"
    if isinstance(rule, FromData):
        others: dict[str, list[str]] = {}
        for data, output in rule.exceptions.items():
            others.setdefault(output.label, []).append(data.label)
        exceptions = "; ".join(f"{output} for {' '.join(data)}" for output, data in others.items())
        return f"as data, but {exceptions}"
    return "as data" if rule is SameAsData.SAME else rule.value


def _colors(row: _Row) -> tuple[str, str]:
    if row.facts.apart:
        return row.facts.apart, "the same"
    low, brain = (f"{entry.color.name.lower()}: {entry.reason}" for entry in (row.float16, row.bfloat16))
    return low, "the same" if brain.replace("bfloat16", "float16") == low else brain


def _checked(row: _Row) -> str:
    if row.facts.never_in_inference:
        return f"no: {row.facts.never_in_inference}"
    reason = not_exercised().get(row.operator.name)
    return "yes" if reason is None else f"no: {reason}"


def _by_reason(rows: Sequence[_Row]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row.facts.never_in_inference, []).append(row.operator.name)
    for reason, names in reasons.items():
        listed = " ".join(f"`{name}`" for name in names)
        text = f"**{reason[0].upper()}{reason[1:]}** ({len(names)}): {listed}"
        yield textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def main() -> int:
    """Write the document."""
    text = document()
    DOCUMENT.write_text(text, encoding="utf-8")
    print(f"{DOCUMENT.name}: {text.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
