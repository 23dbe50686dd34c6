"""Results of a run: severities, statuses, findings, outcomes. Frozen values that compare with ``==``."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from doctor.engine.language import is_english, without_loose_spaces
from doctor.engine.sanitize import number_ranges, with_visible_ends
from doctor.engine.texts import agreeing, enumerated, with_own_spaces

if TYPE_CHECKING:
    from doctor.engine.report_parts import AgeKey, FindingAge, NetSummary
    from doctor.engine.smoke_summary import SmokeSummary
    from doctor.engine.watch_summary import LossCurve, RankPace

CheckName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z", max_length=100)]
"""The name of a check, or of a signature, as a document may hold it: it is shown as it stands."""


class Severity(enum.Enum):
    """Severity of a check, which is that of its findings unless one says that it is milder."""

    ERROR = "error"
    """The job will fail, hang, or give wrong results."""
    WARNING = "warning"
    """The job may run, and is slower, or breaks later."""


IN_CONTAINER = "In a container"
"""The section of a check's page that stands for "What to do" where a finding's host is a container."""
CONTAINER = "container"
"""A finding's value: the engine of the container that its host is, where that needs another remedy than a machine."""

ERROR, WARNING = Severity.ERROR, Severity.WARNING


class Status(enum.Enum):
    """Result of one check on the whole fleet."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"
    CRASHED = "crashed"


class Finding:
    """One thing that is wrong: a template and the values that fill it.

    ``observed`` and ``expected`` are values like all others; a report shows them on lines of their own. So it does
    with ``means``, ``confidence``, ``evidence`` and ``now``, and without a page with ``why`` and ``remedy``: a text, or
    a list of them.
    ``hosts`` are the hosts that are to blame; for a check that looks at one host at a time the
    judge fills them in.

    >>> str(Finding("{ip} belongs to {owners}", ip="10.0.0.1", owners=["a", "b"]))
    '10.0.0.1 belongs to a and b'
    """

    __slots__ = ("explained_by", "follows_from", "hosts", "is_warning", "template", "values")

    def __init__(self, template: str, /, *, hosts: Sequence[str] = (), **values: Any) -> None:
        self.template = template
        self.hosts = tuple(hosts)
        self.is_warning = False
        """Its severity is WARNING, even where that of the check is not."""
        self.follows_from = ""
        """The check whose finding is its cause, as `doctor.analysis.causes` fills it in; empty: none."""
        self.explained_by: tuple[str, ...] = ()
        """Checks whose errors can cause this finding, as an analysis of the evidence knows; most likely first."""
        self.values: dict[str, Any] = values

    def with_host(self, host: str) -> Finding:
        """The same finding, with ``host`` as its host when it names none itself."""
        return self if self.hosts else self._copy(hosts=(host,))

    def as_warning(self, milder: bool = True) -> Finding:
        """The same finding with severity WARNING, for an environment in which the job lives; not if not ``milder``."""
        return self._copy(is_warning=milder)

    def following(self, cause: str) -> Finding:
        """The same finding as a consequence of one of the check ``cause``; of none where it is empty."""
        return self if cause == self.follows_from else self._copy(follows_from=cause)

    def because_of(self, *checks: str) -> Finding:
        """The same finding, which an error of one of these checks brings about: unknown beside it, a finding without.

        >>> Finding("replicas differ").because_of("smoke-not-finite").explained_by
        ('smoke-not-finite',)
        """
        return self._copy(explained_by=checks)

    def with_values(self, /, **values: Any) -> Finding:
        """The same finding with more values, which its page needs."""
        return self._copy(values={**self.values, **values})

    def _copy(self, **changes: Any) -> Finding:
        """Hosts with the same finding share its values."""
        finding = Finding(self.template)
        for name in ("hosts", "is_warning", "follows_from", "explained_by", "values"):
            setattr(finding, name, changes.get(name, getattr(self, name)))
        return finding

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Finding):
            return NotImplemented
        names = ("template", "hosts", "is_warning", "follows_from", "explained_by", "values")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __hash__(self) -> int:
        return hash((self.template, self.hosts, repr(self.values)))

    def __repr__(self) -> str:
        fields = "".join(f", {name}={value!r}" for name, value in self.values.items())
        return f"Finding({self.template!r}, hosts={list(self.hosts)!r}{fields})"

    def __str__(self) -> str:
        return fill_template(self.template, self.values)


_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w+)\}")
"""Names alone: templates come from saved reports too, and the width in ``{name:>999999999}`` would fill the memory."""


def fill_template(template: str, values: Mapping[str, Any]) -> str:
    """``template`` with ``{name}`` replaced by the formatted values; nouns and verbs agree with them.

    >>> fill_template("{count} processes on {total} hosts", {"count": 1, "total": 2})
    '1 process on 2 hosts'
    """
    return fill_texts(template, {name: value_in_sentence(value) for name, value in values.items()})


def fill_texts(template: str, texts: Mapping[str, str]) -> str:
    """The same with values that are texts already, which may be translated."""
    if not is_english():
        texts = {name: with_own_spaces(text) for name, text in texts.items()}
    agreed = agreeing(template, texts)
    return without_loose_spaces(_PLACEHOLDER.sub(lambda match: _filled(match, texts), agreed))


def _filled(match: re.Match[str], texts: Mapping[str, str]) -> str:
    """A placeholder that has no value stays as it stands: a report never fails over a template."""
    return match[0][0] if match[1] is None else texts.get(match[1], match[0])


def format_value(value: Any, as_text: Callable[[str], str] = str) -> str:
    """A value as text: lists as ``a, b and c``, mappings as ``key: value``, enums by value.

    ``as_text``: how a single text is shown; in a command as it is.
    """
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, Mapping):
        return ", ".join(f"{format_value(key, as_text)}: {format_value(item, as_text)}" for key, item in value.items())
    if isinstance(value, (set, frozenset)):
        return format_value(sorted(value, key=str), as_text)
    if isinstance(value, (list, tuple)):
        parts = [format_value(item, as_text) for item in value]
        return enumerated(parts) or "none"
    return as_text(str(value))


def value_in_sentence(value: Any) -> str:
    """A value as text that shows a blank at its end, and a control character; `has_ranges` are shown so.

    >>> value_in_sentence(["eth0 ", "eth1"]), value_in_sentence([0, 1, 2, 3, 7])
    ('"eth0 " and eth1', '0-3, 7')
    """
    return number_ranges(value, ", ") if has_ranges(value) else format_value(value, with_visible_ends)


def has_ranges(value: Any) -> bool:
    """Whether it is a list of four or more different numbers in their order, as those of devices."""
    are_numbers = isinstance(value, (list, tuple)) and len(value) > 3 and {*map(type, value)} == {int}
    return are_numbers and sorted({*value}) == [*value]


_NEEDS_ROOT = re.compile(r"(?:/[A-Za-z0-9_./-]{1,200}: )?only root may [^\n]{1,200}\buse --sudo")
"""What doctor itself says; a path, where it is that of a part."""


class Reason(msgspec.Struct, frozen=True, order=True):
    """Why a check could not evaluate a host; ``root_cause`` names the check that holds the root cause."""

    text: str
    root_cause: str = ""
    by_trial: bool = False
    """Where connections on the job's ports were tried and passed, nothing more needs to be read."""

    @property
    def needs_root(self) -> bool:
        """An ordinary user may not look there; root, or ``--sudo``, may."""
        return _NEEDS_ROOT.fullmatch(self.text) is not None


CUT_PARTS = "cut_parts"
"""The value of a finding that is cured by leaving out the hosts of all of these lists but one."""

TIED = "groups"
"""The value of a finding of hosts that differ while no value has a majority: who has each."""


def can_be_left_over(finding: Finding, hosts: AbstractSet[str]) -> bool:
    """Whether a cause that is on all hosts of a finding but these explains it: none, or those of one of its parts."""
    return any(hosts <= {*part} for part in ((), *finding.values.get(CUT_PARTS, ())))


def accused_hosts(finding: Finding, count: int) -> tuple[str, ...]:
    """The hosts of a finding that it speaks against, in a fleet of ``count``: those beside the part with most hosts.

    Where no part has more than half of them, with the hosts that the finding does not name: none. So, too, where its
    value ``tie`` is true: it is one of several hosts, and the evidence does not show which one.

    >>> cut = Finding("", hosts="ab", cut_parts=["a", "b"])
    >>> accused_hosts(cut, 2), accused_hosts(cut, 8)
    ((), ('a', 'b'))
    >>> accused_hosts(Finding("", hosts="ab", tie=True), 3), accused_hosts(Finding("", hosts="a", tie=True), 2)
    ((), ('a',))
    """
    parts, tied = finding.values.get(CUT_PARTS), len(finding.hosts) > 1 and finding.values.get("tie")
    if not (parts or tied or TIED in finding.values) or 2 * len(finding.hosts) < count:
        return finding.hosts
    largest = max(parts or [()], key=len)
    return tuple(host for host in finding.hosts if host not in largest) if 2 * len(largest) > count else ()


NO_HOST = "no host was checked"
"""Why a check of hosts is skipped where there are none; and the source of a run that is about the job's files alone."""

THIS_HOST_ALONE = "this host alone"
"""The start of the source of a run of the host that doctor runs on, even where its job has other hosts."""

BUDGET_ENDED = Reason("it was not evaluated: the time budget ended")
"""Of the checks that an evaluation did not come to."""


class Waived(msgspec.Struct, frozen=True):
    """A finding that the site has put up with for a time: shown and counted, and no failure."""

    finding: Finding
    reason: str
    until: str
    """The last day on which it holds, ISO 8601."""


class Outcome(msgspec.Struct, frozen=True):
    """The findings of one check on the whole fleet, and its coverage."""

    check: str
    severity: Severity
    area: str
    claim: str
    findings: tuple[Finding, ...] = ()
    evaluated_hosts: tuple[str, ...] = ()
    """The hosts whose facts the check saw, in inventory order. Empty for a check of intent alone."""
    unknown: dict[str, Reason] = {}
    """Hosts that could not be judged, or not wholly. The empty name stands for the fleet."""
    skipped: dict[str, str] = {}
    """Hosts, or the fleet under the empty name, that the check does not apply to, and why."""
    crashed: dict[str, str] = {}
    """Hosts, or the fleet under the empty name, on which the check itself broke: a traceback."""
    complete: bool = False
    """The check was called at least once and came to its end."""
    waived: tuple[Waived, ...] = ()
    """What would be findings without a waiver."""
    implied: bool = False
    """The check was added and not chosen: that it passed says nothing about the checks that were chosen."""

    def severity_of(self, finding: Finding) -> Severity:
        """The severity of one of the findings: never above the check's."""
        return Severity.WARNING if finding.is_warning else self.severity

    @property
    def found_severity(self) -> Severity:
        """The highest severity of the findings; without findings the check's."""
        if self.findings and all(self.severity_of(finding) is Severity.WARNING for finding in self.findings):
            return Severity.WARNING
        return self.severity

    @property
    def status(self) -> Status:
        if self.findings:
            return Status.FAILED
        if self.crashed:
            return Status.CRASHED
        if self.unknown:
            return Status.UNKNOWN
        return Status.PASSED if self.complete else Status.SKIPPED


class Report(msgspec.Struct, frozen=True):
    """An evaluated run."""

    source: str
    """Source of the host list: ``64 hosts from SLURM_JOB_NODELIST``."""
    hosts: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    started: str = ""
    """UTC, ISO 8601."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """Notes beside the outcomes: skipped parts, interruptions, fallbacks."""
    smoke: SmokeSummary | None = None
    """The smoke run in figures, if one was made."""
    net: NetSummary | None = None
    """The network test in figures, if one was made."""
    hosts_unknown: str = ""
    """Why the job may have more hosts than the run knows, so that it is never healthy; empty where it has not."""
    ages: Mapping[AgeKey, FindingAge] = {}
    """Since when findings are there, by check and host, where earlier runs tell."""
    losses: tuple[LossCurve, ...] = ()
    """Of each rank of a watched program, where any was read."""
    pace: tuple[RankPace, ...] = ()
    """What a usual step of each rank of a watched program consists of, where that was measured."""
    after_reboot: bool = False
    """It says what will be after a reboot of the hosts, by what they load when they start."""
    connection_words: tuple[str, ...] = ()
    """Options by which the hosts were reached, for a next command; none of a saved run."""
    smoke_words: tuple[str, ...] = ()
    """Options that make the same smoke run again, as `connection_words`."""

    @property
    def checks_for_root(self) -> tuple[str, ...]:
        """The checks that are unknown for no other reason than that this user may not look; empty where others are."""
        unknown = [outcome for outcome in self.outcomes if outcome.unknown]
        reasons = [reason for outcome in unknown for reason in outcome.unknown.values()]
        return tuple(outcome.check for outcome in unknown) if all(reason.needs_root for reason in reasons) else ()

    @property
    def lacks_hosts(self) -> bool:
        """Hosts were to be judged, and there was none: nothing is known of a host, even if other parts were judged."""
        meant = any(outcome.skipped.get("") == NO_HOST for outcome in self.outcomes)
        return meant and not self.hosts and not self.source.startswith(NO_HOST)
