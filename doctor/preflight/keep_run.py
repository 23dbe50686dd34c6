"""Keeps a preflight in the history: after its one line, in what remains of the budget, and by one process of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from doctor.engine.result import Report
    from doctor.preflight.deadline import TimeBudget
    from doctor.preflight.decide import PreflightVerdict
    from doctor.preflight.options import PreflightOptions
    from doctor.report.diff.values import RunValues

AGES_SECONDS = 0.3
"""Seconds for which reading earlier runs, before a report file is written, may be blocked."""
MOST_AGES_SECONDS = 1.0
"""Seconds for it in all."""
RESERVE_SECONDS = 2.0
"""Where less of the budget remains before the report, earlier runs are not read."""
KEEP_SECONDS = 1.0
"""Seconds for which writing the record may be blocked; in all it has half of what remains of the budget."""


class RunKeeper:
    """Of one preflight; it keeps the verdict that it is given, before names are replaced by pseudonyms."""

    def __init__(self, verdict: PreflightVerdict, options: PreflightOptions, environ: Mapping[str, str]) -> None:
        self.verdict, self.options, self.environ = verdict, options, environ

    @property
    def is_kept(self) -> bool:
        """One process evaluates the fleet; those that check their own hosts beside it would keep the same again."""
        context = self.verdict.gathered.context
        evaluates_fleet = context is None or context.started == "prolog" or context.leads_fleet
        return self.options.keeps_history and evaluates_fleet

    def with_ages(self, verdict: PreflightVerdict, budget: TimeBudget) -> PreflightVerdict:
        """``verdict`` with the ages of its findings, where a file will hold them and there is time to read them."""
        has_file = self.options.report or self.options.formats
        if not has_file or not self.is_kept or budget.report_seconds() < RESERVE_SECONDS:
            return verdict
        report = self._remember(AGES_SECONDS, MOST_AGES_SECONDS, tells_ages=True, keeps=False)
        return msgspec.structs.replace(verdict, report=msgspec.structs.replace(verdict.report, ages=report.ages))

    def keep(self, budget: TimeBudget) -> None:
        most_seconds = budget.remaining_seconds() / 2
        if self.is_kept and most_seconds > 0:
            self._remember(KEEP_SECONDS, most_seconds, tells_ages=False, keeps=True)

    def _remember(self, seconds: float, most_seconds: float, *, tells_ages: bool, keeps: bool) -> Report:
        from doctor.session.run_history import HistoryOptions, remember

        code = self.verdict.code
        options = HistoryOptions("preflight", self.options.config, seconds, most_seconds, self.options.quiet, code)
        return remember(
            self.verdict.report,
            self.verdict.gathered.catalog,
            options,
            tells_ages=tells_ages,
            keeps=keeps,
            values=self._settings() if keeps else None,
            environ=self.environ,
        )

    def _settings(self) -> RunValues | None:
        """The settings of the hosts, where this preflight was to read all of them."""
        examination = self.verdict.gathered.examination
        if examination is None:
            return None
        from doctor.session.finish import read_settings

        return read_settings(examination, self.verdict.report)
