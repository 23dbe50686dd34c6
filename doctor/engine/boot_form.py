"""What a fact is right after a reboot, told from what the host loads when it starts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Absent, Fact, Unreadable
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled


class BootForm(msgspec.Struct, frozen=True):
    """How one fact of a check is predicted: ``build`` makes the value that the check gets after a reboot."""

    fact: type[Fact]
    reads: tuple[type[Fact], ...]
    """What ``build`` gets, in this order: files that are read at boot, and facts of now."""
    build: Callable[..., Fact]
    """Raises: Absent; Unreadable where no file holds the value and what the host starts with is not known."""
    may_lack: tuple[type[Fact], ...] = ()
    """Of ``reads`` those that a host need not have: ``build`` gets None."""
    keeps_now: bool = False
    """The value is that of now, on the condition that ``build`` tests: it says nothing of a change not made yet."""


class BootView(FactCache):
    """The facts of one check as after a reboot: those that have a form by it, all others as they are now."""

    def __init__(self, now: FactCache, forms: Mapping[type[Fact], BootForm]) -> None:
        super().__init__(now.records)
        self._now, self._forms = now, forms

    def get(self, host: str, fact: type[Fact]) -> Fact | Absent:
        form = self._forms.get(fact)
        if form is None:
            return self._now.get(host, fact)
        held = self._values.setdefault(fact, {})
        if host not in held:
            held[host] = self._build(host, form)
        return held[host]

    def _build(self, host: str, form: BootForm) -> Fact | Absent:
        values: list[Any] = []
        for need in form.reads:
            value = self._now.get(host, need)
            if isinstance(value, Absent):
                if need not in form.may_lack or isinstance(value, Unreadable):
                    return value
                value = None  # type: ignore[assignment]
            values.append(value)
        try:
            return form.build(*values)
        except Absent as why:
            return why.with_traceback(None)
        except Exception as error:  # noqa: BLE001 - the rim: every content of a file ends as an outcome
            text = filled("{0} after a reboot: {1}: {2}", form.fact.__name__, type(error).__name__, error)
            return Unreadable(strip_control_chars(text))
