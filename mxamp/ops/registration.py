"""What is registered from outside, and how that is undone."""

from __future__ import annotations

from typing import Any, Mapping, MutableMapping

from mxamp.errors import OperatorError
from mxamp.ops.facts import OperatorFacts

Table = MutableMapping[Any, Any]
Entries = Mapping[Any, Any]


class Registration:
    """What was registered of an operator. It can be undone: by ``undo``, or by leaving a ``with`` block.

    Parameters
    ----------
    name
        The operator.
    facts
        Its record; None where nothing is known of it.
    tables
        Each table that changes, and what its keys lead to from now on; None for nothing.
    """

    def __init__(self, name: str, facts: OperatorFacts | None, *tables: tuple[Table, Entries]) -> None:
        self.facts = facts
        self._name = name
        self._done = tables
        self._before = [{key: table.get(key) for key in entries} for table, entries in tables]
        for table, entries in tables:
            _put(table, entries)

    def undo(self) -> None:
        """Put everything back as it was; a second call does nothing.

        Raises
        ------
        OperatorError
            When the operator was registered again since: that registration must be undone first.
        """
        done, self._done = self._done, ()
        if any(table.get(key) is not entry for table, entries in done for key, entry in entries.items()):
            self._done = done
            raise OperatorError(
                f"The operator {self._name!r} was registered again since. Undo that registration first."
            )
        for (table, _), before in zip(done, self._before):
            _put(table, before)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<registration of {self._name}>"


def _put(table: Table, entries: Entries) -> None:
    for key, entry in entries.items():
        if entry is None:
            table.pop(key, None)
        else:
            table[key] = entry
