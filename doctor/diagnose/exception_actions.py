"""What to do about an exception that no signature knows, by its type: the rows of ``exception_actions.toml``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec

from doctor.diagnose.events import Event
from doctor.diagnose.signature import Remedy, Signature
from doctor.engine.toml_compat import read_table


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    types: tuple[str, ...]
    action: Remedy
    packages: tuple[str, ...] = ()


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    row: tuple[_Row, ...]


@cache
def _rows() -> Sequence[_Row]:
    return read_table(Path(__file__).with_suffix(".toml"), _Table).row


def remedy_of_exception(exception: str, otherwise: Remedy) -> Remedy:
    """The remedy of the first row that has the type, or the package that its full name begins with.

    ``exception``: as the last line of a traceback names it, with its module where that is not ``builtins``.

    >>> remedy_of_exception("wandb.errors.CommError", "fix-program"), remedy_of_exception("KeyError", "fix-program")
    ('', 'fix-program')
    """
    name = exception.rpartition(".")[2]
    fits = (row for row in _rows() if name in row.types or exception.startswith(row.packages))
    return next((row.action for row in fits), otherwise)


def remedy_of_events(signature: Signature, events: Iterable[Event]) -> Remedy:
    """That of the signature of a cause. Of an exception that no signature knows, its type decides."""
    exceptions = {event.values.get("exception", "") for event in events if event.signature == signature.id}
    if "unspecific" not in signature.traits or not signature.action or len(exceptions) != 1:
        return signature.action
    return remedy_of_exception(exceptions.pop(), signature.action)
