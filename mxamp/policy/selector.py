"""Selectors: which nodes a user rule is about."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from mxamp.errors import PolicyError
from mxamp.graph.graph import Node
from mxamp.ops import FACTS


@dataclass(frozen=True)
class Selector:
    """Picks nodes by name, shell pattern, regular expression or operator, and by attribute.

    A node is picked when any of ``names``, ``globs``, ``patterns`` and ``operators`` fits it (or none of
    them is given) and all ``attributes`` do.

    Attributes
    ----------
    names
        Exact node names.
    globs
        Shell patterns over the node name (``stage1_*``).
    patterns
        Regular expressions, searched in the node name.
    operators
        Operator names, aliases included.
    attributes
        Attribute name and shell pattern of its value.
    """

    names: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()

    @classmethod
    def make(
        cls,
        *,
        names: Sequence[str] = (),
        globs: Sequence[str] = (),
        patterns: Sequence[str] = (),
        operators: Sequence[str] = (),
        attributes: Mapping[str, Any] = {},
    ) -> Selector:
        """Build a selector from lists.

        Raises
        ------
        PolicyError
            When it selects by nothing, a list is a plain string, or a regular expression is not one.
        """
        groups = {
            label: _strings(group, label)
            for label, group in (
                ("names", names),
                ("globs", globs),
                ("patterns", patterns),
                ("operators", operators),
            )
        }
        if not isinstance(attributes, Mapping):
            raise PolicyError(f"attributes must map attribute names to values, not {attributes!r}.")
        for pattern in groups["patterns"]:
            try:
                re.compile(pattern)
            except re.error as error:
                raise PolicyError(f"{pattern!r} is not a regular expression: {error}.") from None
        if not any(groups.values()) and not attributes:
            raise PolicyError(
                "A rule must select something: give names, globs, patterns, operators or attributes."
            )
        return cls(
            groups["names"],
            groups["globs"],
            groups["patterns"],
            tuple(FACTS.canonical(op) for op in groups["operators"]),
            tuple(sorted((str(key), str(value)) for key, value in attributes.items())),
        )

    def picks(self, node: Node) -> bool:
        """Return whether the node is one of those selected."""
        if self.names or self.globs or self.patterns or self.operators:
            fits = (
                node.name in self.names
                or FACTS.canonical(node.op) in self.operators
                or FACTS.canonical_of(node.op, node.attrs) in self.operators
                or any(fnmatch.fnmatchcase(node.name, glob) for glob in self.globs)
                or any(re.search(pattern, node.name) for pattern in self.patterns)
            )
            if not fits:
                return False
        return all(fnmatch.fnmatchcase(node.attrs.get(key, ""), value) for key, value in self.attributes)

    def to_mapping(self) -> dict[str, Any]:
        """Return the selector as a mapping for TOML, without what is empty."""
        mapping: dict[str, Any] = {
            key: list(getattr(self, key))
            for key in ("names", "globs", "patterns", "operators")
            if getattr(self, key)
        }
        if self.attributes:
            mapping["attributes"] = dict(self.attributes)
        return mapping

    def __str__(self) -> str:
        parts = [
            f"{key} {', '.join(values)}" for key, values in self.to_mapping().items() if key != "attributes"
        ]
        text = " or ".join(parts)
        if self.attributes:
            conditions = ", ".join(f"{key}={value}" for key, value in self.attributes)
            text = f"{text} with {conditions}" if text else f"nodes with {conditions}"
        return text


def _strings(group: Any, label: str) -> tuple[str, ...]:
    if isinstance(group, str):
        raise PolicyError(f"{label} must be a list of strings, not the string {group!r}: write [{group!r}].")
    if not isinstance(group, Iterable):
        raise PolicyError(f"{label} must be a list of strings, not {group!r}.")
    items = tuple(group)
    for item in items:
        if not isinstance(item, str):
            raise PolicyError(f"{label} must hold strings, not {item!r}.")
    return items
