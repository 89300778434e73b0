"""The table of records: an operator by its name, its aliases, or its family."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Mapping, Sequence

from mxamp.errors import OperatorError
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.ops.facts import OperatorFacts
from mxamp.ops.roles import InputRole


@dataclass(frozen=True)
class OperatorFamily:
    """Many operators that no inference graph holds, known by what their names have in common.

    Attributes
    ----------
    pattern
        Regular expression that the whole name must match.
    never_in_inference
        Why; see :class:`OperatorFacts`.
    """

    pattern: str
    never_in_inference: str

    def record(self, op: str) -> OperatorFacts | None:
        """Return the record of an operator of this family; None for an operator that is not of it."""
        if re.fullmatch(self.pattern, op) is None:
            return None
        return OperatorFacts(op, (), rest=InputRole.KEPT, never_in_inference=self.never_in_inference)


CUSTOM = "Custom"
"""The operator that runs Python: every ``mx.operator.register``ed class is called by this one name."""


def custom_name(op_type: str) -> str:
    """Return the name under which facts of a Python operator are kept."""
    return f"{CUSTOM}:{op_type}"


def operator_label(op: str, attrs: Mapping[str, str]) -> str:
    """Return what messages call a node's operator: its name, and for a Python operator which one it is."""
    return f"{op} with op_type={attrs.get('op_type', '')!r}" if op == CUSTOM else op


class FactsTable:
    """The records of many operators, looked up by any of their names.

    Parameters
    ----------
    records
        The records.
    families
        What is known of operators that have no record of their own; the first family that fits holds.

    Raises
    ------
    OperatorError
        When two records claim one name.
    """

    def __init__(self, records: Iterable[OperatorFacts], families: Iterable[OperatorFamily] = ()) -> None:
        self.by_name: dict[str, OperatorFacts] = {}
        """Every name -> its record; a :class:`mxamp.ops.Registration` changes it."""
        self._families = tuple(families)
        for record in records:
            self.by_name.update(self.entries(record))

    def entries(self, record: OperatorFacts, *, replace: bool = False) -> Mapping[str, OperatorFacts]:
        """Return every name that leads to a record once it is there: also the aliases of one it replaces.

        Raises
        ------
        OperatorError
            When one of its names is taken and ``replace`` is false.
        """
        for name in (record.name, *record.aliases):
            if name in self.by_name and not replace:
                raise OperatorError(
                    f"The operator {name!r} has facts already, under {self.by_name[name].name!r}. "
                    "Register with replace=True to put yours in their place."
                )
        replaced = self.by_name.get(record.name)
        inherited = replaced.aliases if replaced is not None and replaced.name == record.name else ()
        return dict.fromkeys((record.name, *inherited, *record.aliases), record)

    def get(self, op: str) -> OperatorFacts | None:
        """Return the record of an operator by name or alias; None when nothing is known of it."""
        return self.by_name.get(op) or self._of_family(op)

    def of(self, op: str, attrs: Mapping[str, str]) -> OperatorFacts | None:
        """Return the record by which a node is converted.

        Parameters
        ----------
        op
            The node's operator.
        attrs
            Its attributes; a ``Custom`` node is known by its ``op_type``.

        Returns
        -------
        OperatorFacts or None
            None where there is none, or one that says nothing of dtypes: casts and control flow, which are
            converted by code of their own, and ``Custom`` operators that nobody registered facts for.
        """
        record = self.by_name.get(op)
        if record is None:
            return self._of_family(op)
        if not record.apart:
            return record
        if record.name == CUSTOM:
            return self.by_name.get(custom_name(attrs.get("op_type", "")))
        return None

    def _of_family(self, op: str) -> OperatorFacts | None:
        for family in self._families:
            record = family.record(op)
            if record is not None:
                return record
        return None

    def canonical(self, op: str) -> str:
        """Return the canonical name of an operator; an unknown name is its own."""
        record = self.by_name.get(op)
        return op if record is None else record.name

    def is_cast(self, op: str) -> bool:
        """Return whether an operator changes the dtype of its input, and does nothing else."""
        return self.canonical(op) in CAST_OPERATORS

    def canonical_of(self, op: str, attrs: Mapping[str, str]) -> str:
        """Return the name under which policies and targets know a node's operator."""
        record = self.of(op, attrs)
        return self.canonical(op) if record is None else record.name

    def spellings(self, *canonical: str) -> frozenset[str]:
        """Return all known names, aliases included, of operators by their canonical names."""
        return frozenset(name for name, record in self.by_name.items() if record.name in canonical)

    def names(self) -> Sequence[str]:
        """Return every known name, aliases included, families not, sorted."""
        return sorted(self.by_name)

    def records(self) -> Sequence[OperatorFacts]:
        """Return every record once, in the order of registration; families are not among them."""
        return list({id(record): record for record in self.by_name.values()}.values())

    @property
    def families(self) -> Sequence[OperatorFamily]:
        """What is known of operators without a record of their own."""
        return self._families
