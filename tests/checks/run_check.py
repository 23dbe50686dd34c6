"""Puts facts before a check, as the judge does, and tells what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from doctor.engine.catalog import bundled_folder, load_check
from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Absent, Fact
from doctor.engine.result import Outcome
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

FactsByHost = Mapping[str, Sequence[Fact]]
"""The facts of each host, by its name."""

REACHED = Reachability(failure="", text="", hint="")


class Facts(FactCache):
    """A book of facts that were never read: one that a host lacks is Absent."""

    def __init__(self, hosts: FactsByHost) -> None:
        super().__init__({})
        self._facts = {(host, type(fact)): fact for host, facts in hosts.items() for fact in (REACHED, *facts)}

    def get(self, host: str, fact: type[Fact]) -> Fact | Absent:
        return self._facts.get((host, fact), Absent(f"no {fact.__name__}"))


def check(name: str) -> Check:
    return load_check(bundled_folder("checks") / f"{name.replace('-', '_')}.py")


def run_check(name: str, hosts: FactsByHost, launch: LaunchConfig | None = None) -> Outcome:
    """What the check makes of the hosts' facts."""
    return evaluate_check(
        check(name), tuple(hosts), Facts(hosts), {LaunchConfig: launch or LaunchConfig.from_environment({})}
    )


def fleet(count: int, *facts: Fact) -> dict[str, list[Fact]]:
    """Hosts w1, w2, ... that are all alike."""
    return {f"w{number}": list(facts) for number in range(1, count + 1)}


def job(**environ: str) -> LaunchConfig:
    """A job as these environment variables make it."""
    return LaunchConfig.from_environment(environ)


def messages(outcome: Outcome) -> list[tuple[str, str]]:
    """Host and sentence of each finding."""
    return [(" ".join(finding.hosts), str(finding)) for finding in outcome.findings]


def skipped(outcome: Outcome) -> set[str]:
    """The reasons for which hosts, or the fleet, were not judged."""
    return set(outcome.skipped.values())


def advice(name: str, outcome: Outcome) -> str:
    """What to do, as a report prints it for the first finding."""
    from doctor.report.layout.failures import filled_fix, fix_template
    from doctor.report.layout.host_names import Fleet

    finding = outcome.findings[0]
    template = fix_template(check(name), [finding])
    return "\n".join(filled_fix(template, finding, finding.hosts, Fleet(finding.hosts)))
