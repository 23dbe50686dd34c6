"""``--redact``: pseudonyms in a report, the same in every run of one user."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable

import msgspec

from doctor.config.user_key import load_or_create_key
from doctor.engine.result import Report
from doctor.engine.texts import filled, joined
from doctor.report.redact.pseudonyms import Redactor
from doctor.report.redact.report import redacted_report


def with_pseudonyms(report: Report, aliases: Iterable[str] = ()) -> Report:
    """The report with pseudonyms, and a note of that; ``aliases`` are other names of its hosts."""
    key, trouble = _cached_key()
    note = "names of hosts and users, and addresses, are pseudonyms"
    note = joined("", (note, filled(" of this run only: the key could not be saved ({0})", trouble) if trouble else ""))
    hidden = redacted_report(report, key, aliases)
    return msgspec.structs.replace(hidden, notes=(*hidden.notes, note))


def text_redactor(hosts: Iterable[str]) -> Callable[[str], str]:
    """What replaces such names in one text."""
    return Redactor(_cached_key()[0], hosts).text


@functools.cache
def _cached_key() -> tuple[bytes, str]:
    """Once a process, so that a key that could not be kept is the same throughout it."""
    return load_or_create_key(os.environ)
