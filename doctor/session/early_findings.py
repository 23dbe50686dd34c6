"""The first errors of a large run, on the terminal, while other hosts have still to answer.

A host's answer is evaluated by itself, by the checks that look at one host and need its first answer alone. That takes
a fixed time of the CPU in all. The report is made of all answers, and does not depend on their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from doctor.engine.check import Check
from doctor.engine.errors import CommandError
from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import OWN_ROUND
from doctor.engine.language import localized_filled, phrase
from doctor.engine.record import HostRecord
from doctor.engine.result import ERROR, Report
from doctor.session.policy import apply_policy
from doctor.session.remedy_values import with_containers

MOST_FINDINGS = 3
SECONDS = 0.5
"""Of the CPU, for all hosts together, without what it takes to load the checks."""


class EarlyFindings:
    """Evaluates hosts as they answer. ``show`` gets one line for each finding, at most `MOST_FINDINGS`."""

    def __init__(self, checks: Sequence[Check], config: Path | None, show: Callable[[str], None]) -> None:
        self.catalog, self.config, self.show = checks, config, show
        self.checks: list[Check] | None = None
        self.reported: set[str] = set()
        """Checks: of one fault on many hosts the first is enough."""
        self.seconds = SECONDS

    def step(self, host: str, record: HostRecord) -> None:
        """A host has answered, or could not be reached: the ``progress`` of `doctor.session.examine.examine`."""
        if len(self.reported) >= MOST_FINDINGS or self.seconds <= 0:
            return
        if self.checks is None:
            self.checks = [check for check in self.catalog if check.severity is ERROR and _needs_this_host_alone(check)]
        began = time.thread_time()
        self._evaluate(host, record)
        self.seconds -= time.thread_time() - began

    def _evaluate(self, host: str, record: HostRecord) -> None:
        facts = FactCache({host: record})
        outcomes = tuple(evaluate_check(check, (host,), facts, {}) for check in self.checks or ())
        report = Report("", (host,), tuple(outcome for outcome in outcomes if outcome.findings))
        if not report.outcomes:
            return
        try:
            report = apply_policy(with_containers(report, self.catalog, facts), self.config, self.catalog)
        except CommandError:  # the report says so
            self.seconds = 0.0
            return
        for outcome in report.outcomes:
            if outcome.found_severity is ERROR and outcome.findings and outcome.check not in self.reported:
                self.reported.add(outcome.check)
                message = localized_filled(str(outcome.findings[0]))
                self.show(
                    phrase("so far: {host}: {message} ({check})", host=host, message=message, check=outcome.check)
                )
                if len(self.reported) >= MOST_FINDINGS:
                    return


def _needs_this_host_alone(check: Check) -> bool:
    return (
        check.per_host
        and check.host_needs == check.needs
        and not any(fact.needs or fact.probe.kind in OWN_ROUND for fact in check.facts)
    )
