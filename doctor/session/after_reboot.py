"""An evaluation as after a reboot: how one check is evaluated."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.boot_form import BootView
from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache, Intent, evaluate_check
from doctor.engine.result import Outcome
from doctor.facts.boot import FORMS, NOT_LOOKED_AT

AS_NOW = (
    "as after a reboot: files, units and rules that are loaded at boot are judged; hardware, addresses and what other"
    " hosts see are taken as they are now"
)
"""The note of such a report."""


def evaluate_after_reboot(check: Check, hosts: Sequence[str], facts: FactCache, intent: Intent) -> Outcome:
    """The check on facts as after a reboot; skipped where what a host loads at boot determines none of its facts."""
    forms = FORMS.get(check.name)
    if not forms:
        return Outcome(check.name, check.severity, check.area, check.claim, skipped={"": NOT_LOOKED_AT})
    return evaluate_check(check, hosts, BootView(facts, {form.fact: form for form in forms}), intent)
