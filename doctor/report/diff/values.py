"""Compares the settings and versions of two runs, host by host, also where all hosts changed alike. Pure.

What was read in one of the two runs alone is not compared: what is not known has not changed.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec

from doctor.engine.evaluate import FactCache
from doctor.engine.exit_code import verdict
from doctor.engine.record import LaunchOptions, Run
from doctor.engine.result import Report
from doctor.engine.sanitize import comparable_excerpt
from doctor.engine.secrets import HIDDEN, hide_in_output, is_secret_name
from doctor.engine.texts import filled
from doctor.facts.settings import UNREAD, settings_of

PER_RUN = frozenset(
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "MASTER_PORT", "MS_SCHED_PORT", "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK")
)
"""Variables that schedulers and launchers give another value in each run."""
MAX_VALUE = 4000
"""Characters of one value."""
LAUNCH_LINE = "launch line"

HostValues = dict[str, dict[str, dict[str, str]]]
"""By fact, then by category: values by name."""


class RunValues(msgspec.Struct, frozen=True):
    """What one run knew of its hosts and its job."""

    started: str
    command: str = ""
    verdict: str = ""
    hosts: dict[str, HostValues] = {}
    job: dict[str, dict[str, str]] = {}
    """By category: ``code``, ``launch``, ``environment`` of a launch, ``shell``: the variables of the calling shell."""


class ValueChange(msgspec.Struct, frozen=True, order=True):
    """One setting that has another value; of all hosts that changed alike."""

    category: str
    name: str
    before: str | None
    """None: it was not there."""
    now: str | None
    hosts: tuple[str, ...]
    """Empty for what belongs to the job and not to a host."""


def values_of_run(run: Run, report: Report, code: Mapping[str, str] | None = None, command: str = "") -> RunValues:
    """The settings that a run has read, without secrets. ``code``: files and revision of the job's program."""
    facts = FactCache(run.hosts)
    hosts = {
        host: {
            fact: {category: _without_secrets(values) for category, values in by_category.items()}
            for fact, by_category in settings_of(host, facts).items()
        }
        for host in run.hosts
    }
    read_hosts = {host: values for host, values in hosts.items() if values}
    return RunValues(run.started, command, verdict(report).value, read_hosts, _job_values(run.launch, code))


def _job_values(launch: LaunchOptions, code: Mapping[str, str] | None) -> dict[str, dict[str, str]]:
    variables = {name: value for name, value in launch.environ.items() if name not in PER_RUN}
    job = {"environment" if launch.read_from else "shell": variables}
    if launch.launch_line:
        job["launch"] = {LAUNCH_LINE: launch.launch_line}
    if code is not None:
        job["code"] = dict(code)
    return {category: _without_secrets(values) for category, values in job.items()}


def _without_secrets(values: Mapping[str, str]) -> dict[str, str]:
    return {
        name: HIDDEN if value and is_secret_name(name) else comparable_excerpt(hide_in_output(value), MAX_VALUE)
        for name, value in values.items()
    }


def compare_values(before: RunValues, now: RunValues) -> tuple[ValueChange, ...]:
    """Every setting that differs, by category and name; hosts that changed alike together.

    What belongs to an interface, or a route, that came or went as a whole is not told beside it.
    """
    alike: dict[tuple[str, str, str | None, str | None], dict[str, None]] = {}
    for category in before.job.keys() & now.job.keys():
        for name, old, new in _differences(_by_option(before.job[category]), _by_option(now.job[category])):
            alike.setdefault((category, name, old, new), {})
    for host in now.hosts:
        for category, name, old, new in _host_differences(before.hosts.get(host, {}), now.hosts[host]):
            alike.setdefault((category, name, old, new), {})[host] = None
    changes = [ValueChange(*key, tuple(hosts)) for key, hosts in alike.items()]
    interfaces = {_came_or_went(change, "interfaces", -1) for change in changes if "router" not in change.name} - {None}
    changes = [change for change in changes if not interfaces & {_came_or_went(change, *part) for part in _PARTS}]
    return tuple(sorted(changes, key=lambda change: (change.category, change.name, change.hosts)))


def _came_or_went(
    change: ValueChange, category: str, word: int, start: str = ""
) -> tuple[str, bool, tuple[str, ...]] | None:
    """Of what was not there, or is gone: the word of its name that says what it belongs to, and where."""
    if change.category != category or not change.name.startswith(start) or None not in (change.before, change.now):
        return None
    return change.name.split("/" if category == "kernel" else None)[word], change.now is None, change.hosts


_PARTS = (("cards", 0), ("kernel", -2, "/"), ("interfaces", -1, "router "))
"""Of an interface or a route: see `_came_or_went`."""


def _by_option(values: Mapping[str, str]) -> Mapping[str, str]:
    """The words of a launch line: by option its value, and what is left of them. Other values as they are.

    >>> _by_option({"launch line": "torchrun --nproc-per-node 2 train.py --lr=1e-4 --bf16"})
    {'words': 'torchrun train.py', '--nproc-per-node': '2', '--lr': '1e-4', '--bf16': 'given'}
    """
    if LAUNCH_LINE not in values:
        return values
    try:
        words = shlex.split(values[LAUNCH_LINE])
    except ValueError:  # a quote that a hidden secret has taken with it
        words = values[LAUNCH_LINE].split()
    positional, by_option, counts, option = list[str](), dict[str, str](), Counter[str](), ""
    for word in words:
        if word.startswith("-") and not word[1:2].isdigit():
            name, _, value = word.partition("=")
            counts[name] += 1
            key = name if counts[name] == 1 else filled("{0} ({1})", name, counts[name])
            by_option[key], option = value or "given", "" if value else key
        elif option:
            by_option[option], option = word, ""
        else:
            positional.append(word)
    return {"words": " ".join(positional), **by_option}


def _host_differences(before: HostValues, now: HostValues) -> Iterator[tuple[str, str, str | None, str | None]]:
    for fact in now:
        for category, values in now[fact].items():
            old = before.get(fact, {}).get(category)
            for name, *pair in _differences(old, values) if old is not None else ():
                yield category, name, *(_without_alike(*pair) if category == "interfaces" else pair)


def _without_alike(before: str | None, now: str | None) -> tuple[str | None, str | None]:
    """Without the parts that both have, such as the address of each host beside the MTU that all have got."""
    old, new = ((text or "").split(", ") for text in (before, now))
    own = [part for part in old if part not in new], [part for part in new if part not in old]
    return (", ".join(own[0]), ", ".join(own[1])) if all(own) and None not in (before, now) else (before, now)


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str | None, str | None]]:
    names = before.keys() & now.keys() if UNREAD in {**before, **now} else dict.fromkeys((*before, *now))
    for name in names:
        if before.get(name) != now.get(name):
            yield name, before.get(name), now.get(name)


class UnreadCategories(NamedTuple):
    """What one of two runs did not read, or only in part."""

    run: str
    """``before`` or ``now``."""
    categories: tuple[str, ...]
    reason: str = ""


def uncompared(
    before: RunValues, now: RunValues, why: Callable[[str, Collection[str]], str] = lambda _host, _names: ""
) -> dict[UnreadCategories, tuple[str, ...]]:
    """By gap, the hosts of both runs. ``why``: of a host, and categories that this run did not read: the reason."""
    gaps: dict[UnreadCategories, list[str]] = {}
    for host in (host for host in before.hosts if host in now.hosts):
        earlier, later = (_sources(run.hosts[host]) for run in (before, now))
        for run, sources in (("before", later - earlier), ("now", earlier - later)):
            if categories := tuple(sorted({category for _, category in sources})):
                gap = UnreadCategories(run, categories, why(host, categories) if run == "now" else "")
                gaps.setdefault(gap, []).append(host)
    return {gap: tuple(hosts) for gap, hosts in gaps.items()}


def _sources(values: HostValues) -> set[tuple[str, str]]:
    """Several facts of one category have other names each."""
    return {(fact, category) for fact, by_category in values.items() for category in by_category}
