"""What is wrong with a loss: the check that reports each rule, its words, and its findings. Pure.

Checks of the smoke run report the loss of a watched program, too (`for_watched`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.engine import check as declaration
from doctor.engine.check import Check, Skip
from doctor.engine.fact import Unreadable
from doctor.engine.result import Finding, fill_template
from doctor.engine.texts import filled
from doctor.engine.watch_summary import MIN_JUDGED, LossRule, LossVerdict, WatchResult

CHECK_OF: dict[LossRule, str] = {
    "not-finite": "smoke-not-finite",
    "ends-not-finite": "smoke-not-finite",
    "diverged": "loss-diverged",
    "ranks-differ": "loss-differs-by-rank",
    "constant": "smoke-loss-stalled",
    "stalled": "smoke-loss-stalled",
    "spiked": "loss-spiked",
    "silent": "loss-silent",
}
"""Where the smoke run has a check for the same defect, it is that one."""
LOSS_CHECKS: tuple[str, ...] = tuple(dict.fromkeys(CHECK_OF.values()))
WARNING_RULES: frozenset[LossRule] = frozenset({"ends-not-finite", "spiked", "stalled"})
"""Rules after which the training may still come out well."""

TEMPLATES: dict[LossRule, str] = {
    "not-finite": "the loss{of_whom} is {number} since step {step}",
    "ends-not-finite": "the last loss{of_whom} that was read is {number}, of step {step}",
    "diverged": "the loss{of_whom} rose from {before} at step {step} to {after}, and stays there",
    "ranks-differ": "the loss differs between ranks since step {step}{before} ({examples}){others}",
    "constant": "the loss{of_whom} is the same to its last digit for {count} steps since step {step}",
    "stalled": "the loss{of_whom} does not fall: by at most {share} in the {count} steps since it was {before}",
    "spiked": "the loss{of_whom} jumped from {before} to {after} at step {step}{more}",
    "silent": "no loss{of_whom} for {seconds} s; before, the longest wait was {usual} s",
}
OVER_TEMPLATE = "the loss{of_whom} was {number} from step {step}, and is finite again"


def template_of(verdict: LossVerdict) -> str:
    """The text that the verdict's values fill."""
    return OVER_TEMPLATE if verdict.kind == "not-finite" and verdict.is_over else TEMPLATES[verdict.kind]


def verdict_text(verdict: LossVerdict) -> str:
    """The verdict as one sentence without a full stop."""
    return fill_template(template_of(verdict), verdict.values)


def is_warning(verdict: LossVerdict) -> bool:
    """Whether the training may still come out well."""
    return verdict.kind in WARNING_RULES


def _who(ranks: Sequence[int]) -> str:
    names = [f"rank {rank}" for rank in ranks[:8]] + (["others"] if len(ranks) > 8 else [])
    return " and ".join(names) or "every rank"


def loss_findings(watch: WatchResult, check: str) -> Iterator[Finding]:
    """The findings of one of `LOSS_CHECKS`.

    Raises: Skip where no loss was read; Unreadable where logs that were given have too few for a healthy verdict. Where
    the ranks' losses were compared, that check is decided, and the others do not apply to so few.
    """
    verdicts = [verdict for verdict in watch.verdicts if CHECK_OF[verdict.kind] == check]
    for verdict in verdicts:
        blamed = [watch.hosts[rank] for rank in verdict.ranks if rank in watch.hosts] or list(watch.hosts.values())
        finding = Finding(
            template_of(verdict),
            hosts=tuple(dict.fromkeys(blamed)),
            **{**verdict.values, "who": _who(verdict.ranks), "ranks": list(verdict.ranks), "rule": verdict.kind},
        )
        yield finding.as_warning(is_warning(verdict))
    if verdicts or watch.is_decided or (check == CHECK_OF["ranks-differ"] and watch.ranks_were_compared):
        return
    if watch.source == "logs" and not watch.ranks_were_compared:
        raise Unreadable(filled("{0} losses are too few; {1} of one rank are needed", watch.losses, MIN_JUDGED))
    if not watch.losses:
        raise Skip("no loss was read: the program printed none that is known; see --loss-regex")
    raise Skip(filled("{0} losses are too few; {1} of one rank are needed", watch.losses, MIN_JUDGED))


def for_watched(checks: Sequence[Check]) -> list[Check]:
    """The checks, those of the loss as ones of the watched program: names, pages and severities stay."""
    return [_of_watched(check) if check.name in LOSS_CHECKS and check.area == "smoke" else check for check in checks]


def _of_watched(check: Check) -> Check:
    def judge_loss(watch: WatchResult) -> Iterator[Finding]:
        yield from loss_findings(watch, check.name)

    judge_loss.__name__, judge_loss.__doc__ = check.name.replace("-", "_"), check.doc
    return Check(declaration.check(severity=check.severity, area=check.area)(judge_loss), check.path)
