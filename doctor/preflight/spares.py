"""Which hosts a job can start on when some are bad: enough healthy ones, judged again without the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec

from doctor.engine.exit_code import Exit, FailOn, OnUnknown
from doctor.engine.record import Run
from doctor.engine.result import Outcome, Report
from doctor.preflight.bad_hosts import Rules, bad, blamed, healthy, unseen
from doctor.preflight.master import missing, owner
from doctor.rank_table.run_subset import names_of, subset

__all__ = ["Choice", "Rules", "bad", "choose", "healthy"]

MOST_ROUNDS = 16
"""Judgements. Each leaves out all that are to blame, so that two or three are usual."""

Judge = Callable[[Run], Report]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts to start on, and why not the others."""

    hosts: tuple[str, ...]
    """In inventory order. Without enough healthy hosts: those that are left."""
    spare: tuple[str, ...] = ()
    """Healthy, and not needed."""
    left_out: dict[str, tuple[str, ...]] = {}
    """The checks that a host was left out for."""
    need: int = 0
    """How many were asked for; 0: all that are healthy, and nothing is left out to reach a number."""
    enough: bool = True
    code: int = 0
    report: Report
    """Of ``hosts`` alone where there are enough, else of all."""
    run: Run
    """What ``report`` judges."""
    lines: tuple[str, ...] = ()
    """What stands against a start beside the findings of a report."""


def choose(
    run: Run,
    report: Report,
    judge: Judge,
    need: int,
    *,
    fail_on: FailOn = "error",
    on_unknown: OnUnknown = "fail",
    strict: bool = False,
    writes_table: bool = False,
) -> Choice:
    """The first ``need`` healthy hosts, such that they are healthy without the others, too; 0 is as many as there are.

    ``judge`` judges a part of ``run`` by the checks, waivers and skips that made ``report``. Hosts that findings
    blame go first: what was unknown on others only for their sake is known then. Each round leaves out at least one
    more, so it comes to an end. The code is 0 when the chosen hosts are judged healthy and the job can start on them;
    else it is the whole run's, and never 0.

    Leaving hosts out changes the job: MASTER_ADDR must be a host that stays, and a rank table must be written anew
    (``writes_table``). A smoke run in which anything failed says nothing of the rest: it was not made without them.
    """
    rules = Rules(strict=strict, on_unknown=on_unknown, fail_on=fail_on)
    if not need:
        whys = {host: tuple(checks) for host, checks in bad(report, rules, names_of(run)).items()}
        hosts = tuple(host for host in run.hosts if host not in whys)
        return Choice(hosts=hosts, left_out=whys, code=rules.code(report), report=report, run=run)
    return _Search(run, report, judge, need, rules).choice(writes_table)


class _Search:
    """Rounds of judging and leaving out."""

    def __init__(self, run: Run, report: Report, judge: Judge, need: int, rules: Rules) -> None:
        self.run, self.report, self.judge, self.need, self.rules = run, report, judge, need, rules
        self.names = names_of(run)
        self.master = owner(run)
        self.whys: dict[str, tuple[str, ...]] = {}
        self.left = tuple(run.hosts)
        self.trained = _trained(report, rules)

    def choice(self, writes_table: bool) -> Choice:
        seen, part = self.report, self.run
        for _ in range(MOST_ROUNDS):
            fresh = self._worst(seen)
            if not fresh and len(part.hosts) == min(self.need, len(self.left)):
                break
            self.whys.update((host, tuple(checks)) for host, checks in fresh.items())
            self.left = tuple(host for host in self.left if host not in self.whys)
            if len(self.left) < self.need:
                break
            seen, part = self._judged(self.left if fresh else self._first())
        else:
            return self._refused(f"still not settled after {MOST_ROUNDS} judgements; expected a smaller fleet to agree")
        if len(self.left) < self.need:
            return self._refused(f"{_hosts(len(self.left))} healthy, {self.need} needed")
        return self._settled(seen, part, writes_table)

    def _worst(self, report: Report) -> dict[str, list[str]]:
        """Those that findings blame; only where there are none, those of whom something is not known."""
        found = blamed(report, self.rules, self.names) or unseen(report, self.rules)
        return {host: checks for host, checks in found.items() if host in self.left}

    def _first(self) -> tuple[str, ...]:
        """As many as are needed, the job's master among them where it can be."""
        first = self.left[: self.need]
        if self.master in self.left and self.master not in first:
            return (*first[:-1], self.master)
        return first

    def _judged(self, hosts: tuple[str, ...]) -> tuple[Report, Run]:
        if not self.run.smoke or len(hosts) == len(self.run.hosts):
            part = subset(self.run, hosts)
            return self.judge(part), part
        if not self.trained:
            others = ", ".join(list(self.whys)[:3]) or "the spares"
            part = subset(self.run, hosts, {"not_started": f"it has to be made again without {others}"})
            return self.judge(part), part
        part = subset(self.run, hosts, {})
        return _with_smoke(self.judge(part), self.report), part

    def _settled(self, seen: Report, part: Run, writes_table: bool) -> Choice:
        hosts = tuple(part.hosts)
        code, lines = self.rules.code(seen), []
        if len(hosts) < len(self.run.hosts):
            fault = missing(self.run, hosts, self.master, self.whys)
            lines += [fault] if fault else []
            if "text" in part.rank_table and not writes_table:
                lines.append("the rank table names hosts that are left out; expected a reduced one to be written")
        if code or lines:
            code = self.rules.code(self.report) or code or Exit.FAILED
        spare = tuple(host for host in self.left if host not in hosts)
        return Choice(
            hosts=hosts,
            spare=spare,
            left_out=self._ordered(),
            need=self.need,
            code=code,
            report=seen,
            run=part,
            lines=tuple(lines),
        )

    def _refused(self, line: str) -> Choice:
        """Not enough: the whole run's verdict stands, and is never healthy."""
        return Choice(
            hosts=self.left,
            left_out=self._ordered(),
            need=self.need,
            enough=False,
            code=self.rules.code(self.report) or Exit.FAILED,
            report=self.report,
            run=self.run,
            lines=(line,),
        )

    def _ordered(self) -> dict[str, tuple[str, ...]]:
        return {host: self.whys[host] for host in self.run.hosts if host in self.whys}


def _trained(report: Report, rules: Rules) -> bool:
    """The smoke run was made with all hosts and found nothing: that holds for a part of them as well."""
    smoke = tuple(one for one in report.outcomes if one.area == "smoke")
    return rules.code(msgspec.structs.replace(report, outcomes=smoke)) == Exit.HEALTHY


def _with_smoke(part: Report, whole: Report) -> Report:
    """``part`` with what the smoke run of all hosts came to."""
    smoke = {one.check: _only(one, part.hosts) for one in whole.outcomes if one.area == "smoke"}
    outcomes = tuple(smoke.get(one.check, one) for one in part.outcomes)
    return msgspec.structs.replace(part, outcomes=outcomes, smoke=whole.smoke)


def _only(outcome: Outcome, hosts: Collection[str]) -> Outcome:
    kept: Callable[[Iterable[str]], list[str]] = lambda names: [name for name in names if not name or name in hosts]  # noqa: E731
    return msgspec.structs.replace(
        outcome,
        looked=tuple(kept(outcome.looked)),
        unknown={host: outcome.unknown[host] for host in kept(outcome.unknown)},
        skipped={host: outcome.skipped[host] for host in kept(outcome.skipped)},
    )


def _hosts(number: int) -> str:
    return "1 host is" if number == 1 else f"{number} hosts are"
