"""How a training is launched and configured, as typed values with the place of each. Pure: text in, values out.

`read_training` takes texts of launch scripts, configurations and programs. Nothing is run or imported, and what only a
run could compute is undecided and never guessed.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

from doctor.engine.check import Skip
from doctor.engine.fact import Unreadable
from doctor.engine.result import Finding
from doctor.engine.texts import filled, joined
from doctor.job.training.model import (
    CUDA_QUEUES,
    HCCL_TIMEOUTS,
    OF_CONTAINER,
    CodeMark,
    Configuration,
    Setting,
    TrainingJob,
    TrainingLaunch,
    TrainingScript,
)

__all__ = [
    "OF_CONTAINER",
    "CodeMark",
    "Configuration",
    "NotDecided",
    "NotGiven",
    "Rule",
    "Setting",
    "TrainingJob",
    "TrainingLaunch",
    "TrainingScript",
    "View",
    "apply_rules",
    "correction",
]


_MOST_REASONS = 6


class NotGiven(Exception):
    """A rule needs a setting that nothing gives: it does not apply."""


class NotDecided(Exception):
    """A rule needs a value that only a run would show: which, where and why."""


_FILE_LINE = re.compile(r"([A-Za-z0-9_./][A-Za-z0-9_./+-]{0,200}):([1-9]\d{0,6})")
"""A place in a file by a path that no shell reads otherwise."""


def substitution(where: str, old: str, new: str) -> str:
    """The command that replaces in a line of a file what ``old`` matches; empty where no file has it.

    >>> substitution("a/t.py:3", "set_device.0.", "set_device(1)")
    "`sed -i.bak -E '3s/set_device.0./set_device(1)/' a/t.py`"
    """
    place = _FILE_LINE.fullmatch(where)
    return f"`sed -i.bak -E '{place[2]}s/{old}/{new}/' {place[1]}`" if place else ""


def correction(where: str, old: str, new: str) -> str:
    """As `substitution`, as a sentence."""
    command = substitution(where, old, new)
    return filled("{0} corrects it.", command) if command else ""


class View:
    """The settings of one configuration, and of the launch that uses it."""

    def __init__(self, job: TrainingJob, configuration: Configuration) -> None:
        self.job = job
        self.framework = configuration.framework
        self.where = configuration.where
        self._configuration = configuration
        self._settings = {**job.launch, **configuration.settings}

    def decided(self, name: str) -> Setting | None:
        """The setting, decided; None where it is not given. Raises: NotDecided."""
        setting = self._settings.get(name)
        if setting is None:
            if self._configuration.incomplete and name not in _OF_LAUNCH:
                raise NotDecided(filled("{0} ({1})", self._configuration.incomplete, self.where))
            return None
        if setting.value is None:
            raise NotDecided(str(setting))
        return setting

    def need(self, name: str) -> Setting:
        """The setting. Raises: NotGiven, NotDecided."""
        setting = self.decided(name)
        if setting is None:
            raise NotGiven(name)
        return setting

    def has(self, *names: str) -> bool:
        return any(name in self._settings for name in names)

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1. Raises: NotGiven without a default, NotDecided."""
        setting = self.decided(name)
        if setting is None:
            if default is None:
                raise NotGiven(name)
            return default
        if isinstance(setting.value, int) and not isinstance(setting.value, bool) and setting.value > 0:
            return setting.value
        raise NotDecided(filled("{0}, no positive whole number", setting))

    def flag(self, name: str) -> bool:
        """Whether it is given and true. Raises: NotDecided."""
        setting = self.decided(name)
        return setting is not None and setting.value is True

    def text(self, name: str) -> str:
        """In lower case; empty where it is not given. Raises: NotDecided."""
        setting = self.decided(name)
        return "" if setting is None else str(setting.value).lower()

    def place(self, *names: str) -> str:
        """Where the first of these settings is given; else the configuration."""
        return next((self._settings[name].where for name in names if name in self._settings), self.where)

    def edit(self, name: str, value: int) -> str:
        """The change that gives a setting another value, with the command that makes it, where a file has it."""
        setting = self._settings[name]
        key = re.split(r"[^\w-]", setting.option, flags=re.ASCII)[-1]
        command = substitution(setting.where, rf"({key}[^0-9]{{1,4}}){setting.value}\b", rf"\1{value}") if key else ""
        where = command or setting.where
        return filled("{0}: {1} {2} in place of {3}", where, setting.option, value, setting.value)

    def listed(self, *names: str) -> str:
        return ", ".join(str(self._settings[name]) for name in names if name in self._settings)


_LAUNCH = """
launcher gpus slots all_slots bad_entry world_size nodes ranks_per_node visible joined time_limit restarts rdzv_backend
own_store first_slots outer_tasks
"""
_OF_LAUNCH = (*_LAUNCH.split(), *HCCL_TIMEOUTS, CUDA_QUEUES)

Rule = Callable[[View], Iterator[Finding]]
ScriptRule = Callable[[TrainingJob, TrainingScript], Iterator[Finding]]


class _Reasons:
    def __init__(self) -> None:
        self.undecided: dict[str, None] = {}
        self.unread: dict[str, None] = {}
        """Launch lines that were not understood: a rule that none of the others gives anything to is not decided."""
        self.applied = False

    def run(self, rule: Callable[[], Iterator[Finding]], reported: set[Finding]) -> Iterator[Finding]:
        try:
            for finding in rule():
                self.applied = True
                if finding not in reported:
                    reported.add(finding)
                    yield finding
            self.applied = True
        except NotGiven:
            pass
        except NotDecided as why:
            self.undecided[str(why)] = None

    def finish(self, skipped: str) -> None:
        """Raises: Unreadable with what was not decided; Skip where no rule applied."""
        reasons = list(self.undecided) or ([] if self.applied else list(self.unread))
        if reasons:
            more = filled("; and {0} more", len(reasons) - _MOST_REASONS) if len(reasons) > _MOST_REASONS else ""
            raise Unreadable(filled("not decided: {0}{1}", joined("; ", reasons[:_MOST_REASONS]), more))
        if not self.applied:
            raise Skip(skipped)


def apply_rules(
    training: TrainingLaunch, *rules: Rule, script_rules: tuple[ScriptRule, ...] = (), frameworks: tuple[str, ...] = ()
) -> Iterator[Finding]:
    """The findings of ``rules`` on each configuration, and of ``script_rules`` on each Python program.

    A launch without a configuration counts as an empty one.

    Raises: Unreadable with what was not decided, Skip where no rule applies.
    """
    reasons, reported = _Reasons(), set[Finding]()
    reasons.unread.update((filled("{0} ({1})", job.unread, job.where), None) for job in training.jobs if job.unread)
    for job in training.jobs:
        for configuration in job.configurations or (Configuration("", job.where, incomplete=job.unread),):
            if frameworks and configuration.framework not in frameworks:
                continue
            view = View(job, configuration)
            for rule in rules:
                yield from reasons.run(partial(rule, view), reported)
    for job in training.jobs:
        for script in job.scripts:
            for script_rule in script_rules:
                yield from reasons.run(partial(script_rule, job, script), reported)
    if not script_rules:
        reasons.finish("no launch or configuration that was read gives what this rule compares")
    elif not rules:
        reasons.finish("no Python program that was read does what this rule is about")
    else:
        reasons.finish("no launch, configuration or program that was read gives what this rule compares")
