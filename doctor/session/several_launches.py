"""Rules of the launch alone on job scripts: a finding names its line; several scripts are evaluated one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from doctor.engine.check import Check
from doctor.engine.record import LaunchOptions, RankTableFile, Run
from doctor.engine.result import Finding, Outcome, Reason, Report
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job import LaunchConfig, RankTable
from doctor.job.job_script import CARRIERS
from doctor.job.variables import TABLE_VARIABLES
from doctor.session.corrected_lines import MAX_LINE, SLURM, Corrections, replaced_option
from doctor.session.select_checks import of_launch_alone

_MOST_PLACES = 512
_NAME = re.compile(r"--?[A-Za-z][\w-]*|[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SETS = re.compile(r"(?:^|[\s;(,])([A-Za-z_][A-Za-z0-9_]*)\+?=", re.ASCII)
_SETS_IN_YAML = re.compile(r"^\s*(?:- )?(?:\{?name: *)?[\"']?([A-Za-z_][A-Za-z0-9_]*)[\"']?(?=\s*$|:|,)", re.ASCII)
"""Of a manifest ``- name: NAME`` or ``NAME: value``."""
_GIVES = re.compile(r"(?:^|[\s\"'(=])(--?[A-Za-z][\w-]*)(?:(?:=|[ \t]+)\"?\$\{?([A-Za-z_][A-Za-z0-9_]*))?", re.ASCII)
"""An option, and the variable that its value begins with."""
_DIRECTIVE = re.compile(r"#(?:SBATCH|PBS|BSUB)\b")
_OPTION = re.compile(r"(?<=\s)--?[A-Za-z][\w-]*|\bselect(?==)", re.ASCII)
_SCHEDULERS = ("sbatch", "qsub", "bsub")
_MEETING = ("--rdzv-endpoint", "--master-addr", "--main-process-ip", "MASTER_ADDR", "MS_SCHED_HOST")
_BY_CHECK = {"master-address-local": _MEETING}
"""Options and variables that findings of a check are about, where their values name others, too."""


def places(text: str, name: str, line: int) -> dict[str, str]:
    r"""For `LaunchOptions.places`. ``line``: of the launch; what stands behind a line that sets it is not in force.

    >>> list(places("A=1\nB=2\ntorchrun --nnodes $A t.py", "run.sh", 3).items())[:3]
    [('A', 'run.sh:1'), ('B', 'run.sh:2'), ('--nnodes', 'run.sh:3, run.sh:1')]
    >>> places("A=1\ntorchrun t.py", "run.sh", 2)
    {'A': 'run.sh:1', 'run.sh:1': 'A=1', 'run.sh:2': 'torchrun t.py', '': 'run.sh:2'}
    """
    result: dict[str, str] = {}
    sources: dict[str, str] = {}
    lines = text.splitlines()
    is_yaml = name.endswith(CARRIERS)
    end = _end_of_launch(lines, line, is_yaml)
    for number, content in enumerate(lines, 1):
        if content.lstrip().startswith("#"):
            for option in _OPTION.findall(content) if _DIRECTIVE.match(content) else []:
                key = f"#{printable(_dashes(option), 80)}"  # sbatch refuses each of an option's values
                result[key] = ", ".join((*filter(None, [result.get(key)]), f"{name}:{number}"))
            continue
        if len(result) > _MOST_PLACES:
            break
        variables = _SETS_IN_YAML.findall(content) if is_yaml else _SETS.findall(content) if number <= line else []
        for variable in variables:
            result[printable(variable, 80)] = f"{name}:{number}"
        for option, variable in _GIVES.findall(content):
            if number > end and _dashes(option) in result:  # of another launch
                continue
            result[printable(_dashes(option), 80)] = f"{name}:{number}"
            sources[printable(_dashes(option), 80)] = variable
    for option, variable in sources.items():
        if variable in result and result[variable] != result[option]:
            result[option] += f", {result[variable]}"
        elif variable:
            result[variable] = result[option]
    lines = text.splitlines()
    numbers = {int(place.rpartition(":")[2]) for place in ", ".join(result.values()).split(", ") if place} | {line}
    last = line if re.search(r"<<-?\s*\w", "".join(lines[line - 1 : line])) else len(lines)  # filled in here
    texts = {f"{name}:{number}": printable(lines[number - 1], MAX_LINE) for number in sorted(numbers) if number <= last}
    for_slurm = {SLURM: f"{name}:{line}"} if re.search(r"^#SBATCH\b", text, re.M) else {}
    return {**result, **texts, **for_slurm, "": f"{name}:{line}"}


def _end_of_launch(lines: Sequence[str], line: int, is_yaml: bool) -> int:
    """The last line of a launch; in YAML its words may stand in a list."""
    follows = (
        content.endswith("\\") or (is_yaml and after.lstrip()[:1] in ("-", '"', "'"))
        for content, after in zip(lines[line - 1 :], [*lines[line:], ""], strict=False)
    )
    return next((at for at, goes_on in enumerate(follows, line) if not goes_on), line)


def _dashes(option: str) -> str:
    return option.replace("_", "-")


def of_scripts(report: Report, run: Run, checks: Sequence[Check], evaluate: Callable[[Run], Report]) -> Report:
    """The report with places, and with what the rules find in the other scripts.

    ``evaluate`` judges a run by the rules of the launch alone.
    """
    rules = frozenset(check.name for check in launch_rules(checks))
    launches = [msgspec.structs.replace(run.launch, others=()), *run.launch.others]
    reports = [report, *(evaluate(_run_of(launch, run)) for launch in launches[1:])]
    by_check: dict[str, list[Outcome]] = {}
    corrections = Corrections()
    for launch, judged in zip(launches, reports, strict=True):
        for outcome in judged.outcomes:
            if outcome.check in rules:
                by_check.setdefault(outcome.check, []).append(_placed(outcome, launch, len(launches) > 1, corrections))
    outcomes = tuple(
        _joined(by_check[outcome.check]) if outcome.check in by_check else _of_training(outcome, launches, corrections)
        for outcome in report.outcomes
    )
    return msgspec.structs.replace(report, outcomes=tuple(map(corrections.written, outcomes)))


def _run_of(launch: LaunchOptions, run: Run) -> Run:
    """With the rank table that the launch names, where it was read."""
    tables = {run.rank_table.path: run.rank_table, **run.other_rank_tables}
    table = tables.get(LaunchConfig.from_options(launch).rank_table_path, RankTableFile())
    return msgspec.structs.replace(run, launch=launch, rank_table=table)


def of_launch_line(report: Report, run: Run, checks: Sequence[Check]) -> Report:
    """The report with the launch line as it is once a finding about it is corrected."""
    rules = frozenset(check.name for check in launch_rules(checks))
    corrections, place = Corrections(), "launch line"
    line = {place: run.launch.launch_line}
    outcomes = [
        msgspec.structs.replace(
            outcome,
            findings=tuple(corrections.of(outcome.check, finding, line, iter([place])) for finding in outcome.findings),
        )
        if outcome.check in rules
        else outcome
        for outcome in report.outcomes
    ]
    return msgspec.structs.replace(report, outcomes=tuple(map(corrections.written, outcomes)))


def launch_rules(checks: Sequence[Check]) -> list[Check]:
    """Those of the launch and its rank table alone."""
    names = frozenset(of_launch_alone(checks, (LaunchConfig, RankTable, RankTableFile)))
    return [check for check in checks if check.name in names]


def _placed(outcome: Outcome, launch: LaunchOptions, is_one_of_several: bool, corrections: Corrections) -> Outcome:
    script = launch.places.get("", "")
    usual = _BY_CHECK.get(outcome.check) or (TABLE_VARIABLES if outcome.check.startswith("rank-table-") else ())
    findings = tuple(
        _with_place(finding, launch.places, usual, outcome.check, corrections) for finding in outcome.findings
    )
    unknown = outcome.unknown
    if is_one_of_several:
        unknown = {
            host: Reason(filled("{0}: {1}", script, why.text), why.root_cause, why.by_trial)
            for host, why in unknown.items()
        }
    return msgspec.structs.replace(outcome, findings=findings, unknown=unknown)


def _with_place(
    finding: Finding, by_name: dict[str, str], usual: Sequence[str], check: str, corrections: Corrections
) -> Finding:
    """With the line of the first name among its values that the script has, else that of the launch; and corrected."""
    mark = "#" if finding.values.get("launcher") in _SCHEDULERS else ""
    listed = usual or _names(finding.values.values())
    names = (mark + (_dashes(name) if name.startswith("-") else name) for name in listed)
    place = next((by_name[name] for name in names if name in by_name), by_name.get("", ""))
    evidence = finding.values.get("evidence", [])
    if not place:
        return finding
    placed = finding.with_values(evidence=[*([evidence] if isinstance(evidence, str) else evidence), place])
    return corrections.of(check, placed, by_name, iter([*place.split(", ")[::-1], by_name.get("", "")]))


def _of_training(outcome: Outcome, launches: Sequence[LaunchOptions], corrections: Corrections) -> Outcome:
    """With the corrected line of the script that gives the option, where a finding of its training changes one."""

    def with_line(finding: Finding) -> Finding:
        option = _dashes(replaced_option(finding.values)[0])
        for by_name in (launch.places for launch in launches if option in launch.places):
            edited = corrections.of(outcome.check, finding, by_name, iter(by_name[option].split(", ")[::-1]))
            if edited is not finding:
                return edited
        return finding

    return msgspec.structs.replace(outcome, findings=tuple(map(with_line, outcome.findings)))


def _names(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield from _NAME.findall(value[:2000])
        elif isinstance(value, (list, tuple, dict)):
            yield from _names(value)


def _joined(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome of a check for all scripts."""
    first = outcomes[0]
    if len(outcomes) == 1:
        return first
    is_skipped = all(outcome.skipped for outcome in outcomes)
    reasons = [reason for outcome in outcomes for reason in outcome.unknown.values()]
    more = filled("{0}; and {1} more", reasons[0].text, len(reasons) - 1) if len(reasons) > 1 else ""
    return msgspec.structs.replace(
        first,
        findings=tuple(dict.fromkeys(finding for outcome in outcomes for finding in outcome.findings)),
        unknown={"": Reason(more, reasons[0].root_cause) if more else reasons[0]} if reasons else {},
        skipped=first.skipped if is_skipped else {},
        crashed={host: text for outcome in outcomes for host, text in outcome.crashed.items()},
        complete=any(outcome.complete for outcome in outcomes),
    )
