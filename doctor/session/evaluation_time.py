"""Evaluates checks within a time limit: what a host printed may make one check slow, and must not cost the verdict."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache, Intent, evaluate_check
from doctor.engine.record import Run
from doctor.engine.result import BUDGET_ENDED, Outcome, Reason, Report

CHECK_SECONDS = 60.0
"""For one check where there is no time budget, and a part for each host beside it."""
SECONDS_PER_HOST = 0.05
CHECK_SHARE = 0.25
"""Part of the remaining time that one check may take where there is a time budget."""


class EvaluationLimit(msgspec.Struct, frozen=True):
    """When an evaluation ends, by the monotonic clock."""

    end: float = float("inf")

    def check_seconds(self, host_count: int) -> float:
        """How long the next check may take."""
        remaining = self.end - time.monotonic()
        return max(0.0, min(remaining * CHECK_SHARE, CHECK_SECONDS + SECONDS_PER_HOST * host_count))


def evaluate_in_time(run: Run, checks: Sequence[Check], intent: Intent, limit: EvaluationLimit) -> Report:
    """All checks over one run, in the order given.

    A check that takes longer than its share of the time is unknown on every host, and so is each one that was not
    begun at the limit's end; the others keep their outcomes.
    """
    hosts, facts, outcomes = tuple(run.hosts), FactCache(run.hosts), list[Outcome]()
    evaluate = _evaluate_after_reboot if run.after_reboot else evaluate_check
    while len(outcomes) < len(checks) and limit.check_seconds(len(hosts)) > 0:
        outcomes += _Worker(checks[len(outcomes) :], hosts, facts, intent, evaluate).outcomes(limit)
        if len(outcomes) < len(checks) and limit.check_seconds(len(hosts)) > 0:
            slow = checks[len(outcomes)]
            outcomes.append(_unknown(slow, hosts, Reason("its evaluation took too long, and was given up")))
    outcomes += [_unknown(check, hosts, BUDGET_ENDED) for check in checks[len(outcomes) :]]
    return Report(
        run.source,
        hosts,
        tuple(outcomes),
        run.started,
        run.seconds,
        run.notes,
        hosts_unknown=run.hosts_unknown,
        after_reboot=run.after_reboot,
    )


def _evaluate_after_reboot(check: Check, hosts: Sequence[str], facts: FactCache, intent: Intent) -> Outcome:
    """The check on facts as after a reboot; skipped where none of its facts is told by what a host loads at boot."""
    from doctor.engine.boot_form import BootView
    from doctor.facts.boot import FORMS, NOT_LOOKED_AT

    forms = FORMS.get(check.name)
    if not forms:
        return Outcome(check.name, check.severity, check.area, check.claim, skipped={"": NOT_LOOKED_AT})
    return evaluate_check(check, hosts, BootView(facts, {form.fact: form for form in forms}), intent)


Evaluate = Callable[[Check, Sequence[str], FactCache, Intent], Outcome]


def _unknown(check: Check, hosts: Sequence[str], why: Reason) -> Outcome:
    return Outcome(check.name, check.severity, check.area, check.claim, unknown=dict.fromkeys(hosts or ("",), why))


class _Worker:
    """A thread that evaluates checks one after another; one that hangs in a check is left behind."""

    def __init__(
        self, checks: Sequence[Check], hosts: Sequence[str], facts: FactCache, intent: Intent, evaluate: Evaluate
    ) -> None:
        self._checks, self._hosts, self._facts, self._intent, self._evaluate = checks, hosts, facts, intent, evaluate
        self._finished: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
        self._abandoned = False
        threading.Thread(target=self._run, daemon=True).start()

    def outcomes(self, limit: EvaluationLimit) -> Iterator[Outcome]:
        """One for each check, until one takes too long."""
        try:
            for _ in self._checks:
                try:
                    outcome = self._finished.get(timeout=limit.check_seconds(len(self._hosts)))
                except queue.Empty:
                    return
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            self._abandoned = True

    def _run(self) -> None:
        for check in self._checks:
            if self._abandoned:
                return
            try:
                self._finished.put(self._evaluate(check, self._hosts, self._facts, self._intent))
            except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
                self._finished.put(error)
                return
