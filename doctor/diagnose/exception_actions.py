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
    action: Remedy
    types: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    row: tuple[_Row, ...]


@cache
def _rows() -> Sequence[_Row]:
    return read_table(Path(__file__).with_suffix(".toml"), _Table).row


def remedy_of_exception(exception: str, otherwise: Remedy, place: str = "", message: str = "") -> Remedy:
    """The remedy of the first row that has the type, or the package that its full name begins with, the place where it
    arose, or a text of its message.

    ``exception``: as the last line of a traceback names it, with its module where that is not ``builtins``.

    >>> remedy_of_exception("wandb.errors.CommError", "fix-program"), remedy_of_exception("KeyError", "fix-program")
    ('', 'fix-program')
    """
    name = exception.rpartition(".")[2]
    for row in _rows():
        by_type = name in row.types or exception.startswith(row.packages)
        if by_type or place.startswith(row.places) or any(text in message for text in row.texts):
            return row.action
    return otherwise


def remedy_of_events(signature: Signature, events: Iterable[Event]) -> Remedy:
    """That of the signature of a cause. Of an exception that no signature knows, its type decides."""
    if "unspecific" not in signature.traits or not signature.action:
        return signature.action
    of_cause = (event.values for event in events if event.signature == signature.id)
    remedies: set[Remedy] = {
        remedy_of_exception(
            values.get("exception", ""), signature.action, values.get("place", ""), values.get("message", "")
        )
        for values in of_cause
    }
    return remedies.pop() if len(remedies) == 1 else signature.action
