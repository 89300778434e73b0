"""Operators: what each one is, and the ones that cast."""

from mxamp.ops.facts import OperatorFacts
from mxamp.ops.facts_table import FactsTable
from mxamp.ops.registration import Registration
from mxamp.ops.roles import InputRole, SameAsData, ValueKind
from mxamp.ops.tables import ALL_RECORDS, FAMILIES

__all__ = ["FACTS", "FactsTable", "InputRole", "OperatorFacts", "Registration", "SameAsData", "ValueKind"]

FACTS = FactsTable(ALL_RECORDS, FAMILIES)
"""The facts mxamp uses: the built-in records and those users register."""
