"""The parsed options of a preflight, and the exit code that they make of its verdict. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from doctor.engine.exit_code import Exit, FailOn, OnUnknown
from doctor.engine.record import LaunchOptions
from doctor.transport.options import SshOptions as SshOptions

if TYPE_CHECKING:
    from doctor.environment.job_context import RequestedScope
    from doctor.environment.job_environment import JobEnvironment
    from doctor.hosts.selection import HostSelection
from collections.abc import Collection, Iterable
from typing import get_args

from doctor.engine.check import Check
from doctor.engine.result import Severity
from doctor.engine.texts import filled

Style = Literal["doctor", "nagios", "npd"]
STYLES = ("doctor", "nagios", "npd")
Profile = Literal["job", "prolog"]
VERDICTS = (Exit.FAILED, Exit.WARNINGS, Exit.UNKNOWN)
"""Codes that `ExitCodePolicy.fail_exit` replaces: the job should not start. Bad input and our own bugs keep theirs."""
NAGIOS = {Exit.HEALTHY: 0, Exit.WARNINGS: 1, Exit.FAILED: 2}
"""The plugin interface: 0 OK, 1 WARNING, 2 CRITICAL, and 3 UNKNOWN for all that is not a verdict."""
NPD = {Exit.HEALTHY: 0, Exit.WARNINGS: 1, Exit.FAILED: 1}
"""node-problem-detector's custom plugins (pkg/custompluginmonitor/types/types.go): 0 OK, 1 NonOK, 2 Unknown."""
Tier = Literal["quick", "standard", "smoke", "deep"]
TIERS: tuple[Tier, ...] = get_args(Tier)
TRAINING_TIERS: tuple[Tier, ...] = ("smoke", "deep")
"""Those with a smoke run; deep also tests each device."""


class ExitCodePolicy(msgspec.Struct, frozen=True):
    """Mapping of exit codes."""

    fail_exit: int = 0
    """Instead of a verdict against the job; 0 leaves it."""
    style: Style = "doctor"
    profile: Profile = "job"

    def code(self, verdict_code: int) -> int:
        """The code to end with. ``verdict_code`` is one of `doctor.engine.exit_code.Exit`, or 128 + a signal's number.

        A node's prolog that ends with anything but 0 takes the node out of service, and a broken installation of this
        program would take out all of them: there, only what is certainly wrong with the host counts.
        """
        if self.profile == "prolog" and verdict_code != Exit.FAILED:
            return 0
        if self.style == "nagios":
            return NAGIOS.get(Exit(verdict_code), 3) if verdict_code in tuple(Exit) else 3
        if self.style == "npd":
            return NPD.get(Exit(verdict_code), 2) if verdict_code in tuple(Exit) else 2
        return self.fail_exit if self.fail_exit and verdict_code in VERDICTS else verdict_code


class GangOptions(msgspec.Struct, frozen=True):
    """The pods of one job check each other."""

    size: int = 0
    """Their number; 0: as the environment has it."""
    key: str = ""
    """A file with their common secret, or ``none``; empty: a variable has it."""
    wait: float = 300.0
    """Seconds for all to come, and for a leader that is absent."""


class PreflightOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options of one preflight."""

    hosts: HostSelection
    ssh: SshOptions = SshOptions()
    transport: str = "ssh"
    within: str = ""
    sudo: bool = False
    tier: Tier = "standard"
    budget: float = 60.0
    """Seconds from the start of the process."""
    scope: RequestedScope = "auto"
    launch: LaunchOptions = LaunchOptions()
    """The job as the command line describes it."""
    gang: GangOptions | None = None
    source: JobEnvironment | None = None
    """Where the job's environment was read; None: this process's is the job's."""
    job_script: str = ""
    """The job script that ``source`` was read from."""
    net: str = ""
    """Network test: quick, full or off; empty: that of the tier."""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    checks: tuple[Path, ...] = ()
    need: int = 0
    write_nodes: str = ""
    write_bad: str = ""
    node_format: str = "plain"
    report: str = ""
    save: str = ""
    formats: tuple[str, ...] = ()
    redact: bool = False
    quiet: bool = False
    config: Path | None = None
    keeps_history: bool = True
    strict: bool = False
    fail_on: FailOn = "error"
    on_unknown: OnUnknown = "fail"
    exit_code_policy: ExitCodePolicy = ExitCodePolicy()

    @property
    def total_seconds(self) -> float:
        """The most that this process takes: in a gang, members wait for their leader, and it for them."""
        return self.budget + (2 * self.gang.wait if self.gang else 0.0)


def checks_of_tier(checks: Iterable[Check], tier: Tier) -> tuple[list[Check], list[Check]]:
    """The checks of a tier, and those that it leaves out.

    quick: every host is read once, with no load on devices or links: nothing that takes a second round, but to settle a
    doubt of the first, and no call of a vendor's tool for each device that only a warning needs. These run one after
    the other, some 0.2 s each.
    standard: everything that reads, and a quick test of the network between the hosts. smoke: also the results of the
    training run, and the network test of all pairs. deep: also those of the device test.
    """
    picked: list[Check] = []
    excluded: list[Check] = []
    candidates = list(checks)
    needed = {fact for check in candidates if check.severity is Severity.ERROR for fact in check.facts}
    for check in candidates:
        trains = any(fact.probe.kind == "smoke" for fact in check.facts) or check.area == "smoke"
        second = any(fact.needs and not fact.settles_doubt for fact in check.facts)
        if (trains and tier not in TRAINING_TIERS) or (tier == "quick" and tests_network([check])):
            continue
        slow = any(
            fact.probe.lane and (fact.probe.each or fact.probe.repeats) and fact not in needed for fact in check.facts
        )
        if (second or slow) and tier == "quick":
            excluded.append(check)
        else:
            picked.append(check)
    return picked, excluded


def left_out(select: Iterable[str], candidates: Collection[Check], picked: Collection[Check]) -> dict[Check, str]:
    """Why a word of ``select`` picks none of the checks that it asks for."""
    names = {check.name for check in picked}
    reasons: dict[Check, str] = {}
    for word in select:
        selected = [check for check in candidates if word in (check.name, check.area)]
        for check in selected if names.isdisjoint(check.name for check in selected) else ():
            tier = next(tier for tier in TIERS if checks_of_tier([check], tier)[0])
            option = f"--tier {tier} --net quick" if tests_network([check]) else f"--tier {tier}"
            reasons[check] = filled("{0} was selected, and needs {1}", word, option)
    return reasons


def tests_network(checks: Iterable[Check]) -> bool:
    """Whether one of the checks needs the hosts to try their network."""
    return any(fact.probe.kind == "network-test" for check in checks for fact in check.facts)
