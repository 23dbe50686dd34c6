"""What an exception is that no signature knows, and what to do about it: the rows of ``exception_actions.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import msgspec

from doctor.diagnose.events import Event
from doctor.diagnose.signature import Remedy, Signature
from doctor.engine.toml_compat import table_beside


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: Remedy
    types: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


class _Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signature: str
    of_any_stage: bool = False
    types: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    row: tuple[_Row, ...]
    kind: tuple[_Kind, ...]
    packages: dict[str, str]


_table = table_beside(__file__, _Table)


@cache
def _kinds() -> Sequence[tuple[_Kind, re.Pattern[str] | None]]:
    return [(kind, re.compile("|".join(kind.phrases), re.I) if kind.phrases else None) for kind in _table().kind]


def kind_of(exception: str, message: str, stage: str = "") -> str:
    """The signature of the first kind that has the type, or a phrase of the message. The stage of the program says
    more than a kind that only tells what is amiss with a value. Empty where nothing is known.

    >>> kind_of("RuntimeError", "Unsupported SOC version: Ascend310B4"), kind_of("KeyError", "'labels'", "data")
    ('exception-of-support', 'exception-in-data')
    """
    name = exception.rpartition(".")[2]
    for kind, phrases in _kinds():
        if name in kind.types or (phrases and phrases.search(message)):
            return f"exception-in-{stage}" if stage and not kind.of_any_stage else kind.signature
    return f"exception-in-{stage}" if stage else ""


def described(catalog: Mapping[str, Signature], signature: str, events: Iterable[Event]) -> Signature:
    """The signature; of an exception that none knows, or of a code, that of the kind or stage which all events show."""
    row = catalog[signature]
    is_open = "unspecific" in row.traits or row.code_table
    kinds = {_kind_of_event(event) for event in events if event.signature == signature} if is_open else set()
    return catalog.get(kinds.pop(), row) if len(kinds) == 1 else row


def is_shown_as(event: Event, signature: Signature) -> bool:
    """Whether it is an event of the signature, or of the kind that this describes."""
    return event.signature == signature.id or signature.id == _kind_of_event(event)


def kind_of_code(code: str) -> str:
    """The signature of the kind that has the longest beginning of the vendor's code; empty where none has one.

    >>> kind_of_code("EE1013"), kind_of_code("EE1999")
    ('cann-code-memory', '')
    """
    fitting = ((len(start), row.signature) for row in _table().kind for start in row.codes if code.startswith(start))
    return max(fitting, default=(0, ""))[1]


def package_of(module: str) -> str:
    """What pip installs for a module, or for a package of that name; empty for one that is not in the table.

    >>> package_of("yaml.nodes"), package_of("torch"), package_of("google.protobuf.text"), package_of("google.cloud")
    ('PyYAML', '', 'protobuf', '')
    """
    parts, packages = module.replace("-", "_").lower().split("."), _table().packages
    return packages.get(".".join(parts[:2]), packages.get(parts[0], ""))


def _kind_of_event(event: Event) -> str:
    values = event.values
    if "exception" in values:
        return kind_of(values["exception"], values.get("message", ""), values.get("stage", ""))
    return kind_of_code(values.get("code", ""))


def remedy_of_exception(exception: str, otherwise: Remedy, place: str = "", message: str = "") -> Remedy:
    """The remedy of the first row that has the type, or the package that its full name begins with, the place where it
    arose, or a text of its message.

    ``exception``: as the last line of a traceback names it, with its module where that is not ``builtins``.

    >>> remedy_of_exception("wandb.errors.CommError", "fix-program"), remedy_of_exception("KeyError", "fix-program")
    ('', 'fix-program')
    """
    name = exception.rpartition(".")[2]
    for row in _table().row:
        by_type = name in row.types or exception.startswith(row.packages)
        if by_type or place.startswith(row.places) or any(text in message for text in row.texts):
            return row.action
    return otherwise


def remedy_of_events(signature: Signature, events: Iterable[Event]) -> Remedy:
    """That of the signature of a cause. Of an exception that no signature knows, its type decides."""
    if "unspecific" not in signature.traits or not signature.action:
        return signature.action
    of_cause = (event.values for event in events if is_shown_as(event, signature))
    remedies: set[Remedy] = set()
    for values in of_cause:
        exception, place, message = (values.get(name, "") for name in ("exception", "place", "message"))
        remedies.add(remedy_of_exception(exception, signature.action, place, message))
    return remedies.pop() if len(remedies) == 1 else signature.action
