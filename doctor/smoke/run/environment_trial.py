"""Whether the job's environment makes a run fail: the run again in short, without its variables, then with some."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.smoke.model import OWN_CHOICE, EnvironmentTrial, Failure, SmokeResult, SmokeRun
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.programs.secondary_errors import gave_up_waiting, is_secondary

STAGES = ("start", "rendezvous", "collectives", "teardown")
"""Of a trial: an environment that parts ranks does so before or in their first collectives."""
OPTIONAL_STAGE = "native"
"""Takes the place of the collectives where it failed: torch's wrappers make calls of their own."""
KINDS = ("not-started", "never-joined", "network", "dead", "blocked", "left", "budget")
"""Failures that a variable can bring about."""
BUDGET = 45.0
"""Seconds for one trial."""
MAX_RUNS = 11
"""Trials of one failure; half as many identify one variable of sixteen."""
MAX_VALUES = 4
"""Of one variable, that a report shows."""
CONNECTING = re.compile(r"\bconnect: |\bNo route to host\b|\bNetwork is unreachable\b")
OF_OTHERS = re.compile(r"(?i)connect|peer|remote|time[d ]? ?out|unreachable|no route")
"""Errors in which another rank has a part."""

Repeat = Callable[[SmokeOptions], SmokeResult]
_NOTHING: Mapping[str, str] = {}


class CannotRepeat(Exception):
    """No run can be made without the variables; the text says why."""


class _Interrupted(Exception):
    def __init__(self, reason: BaseException) -> None:
        super().__init__(reason)
        self.reason = reason


def explain_by_environment(
    result: SmokeResult, options: SmokeOptions, repeat: Repeat, rendezvous: Mapping[str, str] = _NOTHING
) -> SmokeResult:
    """The result with the trials' evidence on the job's environment; unchanged where that cannot be the cause.

    ``rendezvous``: variables of the rendezvous that a run can do without, with their values.
    """
    failure = result.run.failures[0] if result.run.failures else None
    names = [*variables_in_force(result, options), *rendezvous]
    if failure and names[:1] == [OWN_CHOICE] and failure.stage == "collectives" and failure.seq > 1:
        # Connections broke on which calls had been made: their addresses reach each other.
        del names[: is_secondary(failure.text) and not gave_up_waiting(failure.text)]
    stages = (*STAGES, OPTIONAL_STAGE)
    if not failure or failure.kind not in KINDS or failure.stage not in stages or not names:
        return result
    if options.environment == "clean":
        return result
    trials = _Trials(options, repeat, failure.stage)
    try:
        outcome = _outcome(result, trials, names, {**options.variables, **rendezvous})
    except CannotRepeat as error:
        outcome = EnvironmentTrial(passes=False, runs=trials.count, untried=str(error))
    except ValueError:
        return result
    except _Interrupted as stop:
        return msgspec.structs.replace(result, stopped=stop.reason)
    except (KeyboardInterrupt, SystemExit) as stop:
        return msgspec.structs.replace(result, stopped=stop)
    return msgspec.structs.replace(result, run=msgspec.structs.replace(result.run, environment_trial=outcome))


class _Trials:
    """Short runs with some of the variables."""

    def __init__(self, options: SmokeOptions, repeat: Repeat, stage: str = STAGES[0]) -> None:
        self.count = 0
        self.kind = ""
        """Of the failure that all variables bring about."""
        self.failures: list[Failure] = []
        self._repeat = repeat
        stages = STAGES if stage in STAGES else (*STAGES[:2], stage, STAGES[-1])
        budget = min(options.budget, BUDGET) if stage in STAGES else options.budget
        self._options = msgspec.structs.replace(options, stages=stages, budget=budget, soak=0.0)

    def failure(self, keep: Sequence[str]) -> str:
        """The kind of failure of a run with these variables alone, or how it ended; empty: it passes.

        Raises: CannotRepeat, ValueError.
        """
        self.count += 1
        repeated = self._repeat(msgspec.structs.replace(self._options, keep=tuple(keep)))
        if repeated.stopped:
            raise _Interrupted(repeated.stopped)
        self.failures += repeated.run.failures[:1]
        kind = next((failure.kind for failure in repeated.run.failures), repeated.run.ended)
        return "" if repeated.run.ended == "complete" else kind

    def fails(self, keep: Sequence[str]) -> bool:
        """Whether a run with these variables alone fails in the way that ``kind`` says."""
        return self.failure(keep) == self.kind

    def may(self) -> bool:
        return self.count < MAX_RUNS


def _outcome(
    result: SmokeResult, trials: _Trials, names: Sequence[str], shared: Mapping[str, str]
) -> EnvironmentTrial | None:
    """What the trials show; None where the failure does not come back in two of two runs with all variables in force,
    in one way and in none of two without: what comes and goes by itself is not theirs.

    That a run is late is a failure of the same kind only where the first one was.
    """
    for _ in range(2):
        if trials.failure(()):
            return EnvironmentTrial(passes=False, runs=trials.count)
        kind = trials.failure(names)
        late = kind == "budget" != result.run.failures[0].kind
        if not kind or late or kind != (trials.kind or kind):
            return None
        trials.kind = kind
    culprits = _smallest(names, trials)
    settings = _settings(shared, result.variables, culprits)
    if len(culprits) == 1 and len(settings) == 2:
        settings = _the_wrong_one(settings, trials)
    return EnvironmentTrial(
        passes=True,
        culprits=tuple(culprits),
        values=_texts(settings),
        hosts=_hosts(settings, result) or _hosts_of_choice(culprits, result.run, trials.failures),
        runs=trials.count,
    )


def variables_in_force(result: SmokeResult, options: SmokeOptions) -> list[str]:
    """The job's variables, of the controller and of any host, and the choice of an interface where nothing sets it."""
    names = set(options.variables).union(*result.variables.values())
    plan = result.run.plan
    choice = f"{plan.backend.upper()}_SOCKET_IFNAME"
    free = choice not in names and not options.interface and len(plan.ranks_by_host) > 1
    return [OWN_CHOICE] * free + sorted(names)


def _smallest(names: Sequence[str], trials: _Trials) -> list[str]:
    """The names that make a run fail, by halving; more than one where no half does so alone, or runs are used up."""
    pool = list(names)
    while len(pool) > 1 and trials.may():
        half, rest = pool[: len(pool) // 2], pool[len(pool) // 2 :]
        if trials.fails(half):
            pool = half
        elif len(rest) == len(pool) - 1 == 1 or not trials.may() or trials.fails(rest):
            pool = rest
        else:
            break
    return pool


class _Setting(msgspec.Struct, frozen=True):
    """A variable with one of its values, and the hosts that have it; empty: all of the run."""

    name: str
    value: str
    hosts: tuple[str, ...]


def _settings(
    shared: Mapping[str, str], by_agent: Mapping[str, Mapping[str, str]], names: Sequence[str]
) -> list[_Setting]:
    """The values of these variables: those that all hosts are given, and those of the hosts' own environments.

    ``own``: by agent, which is a host or a rank of one.
    """
    settings = [_Setting(name, shared[name], ()) for name in names if name in shared]
    everywhere = set(map(_host, by_agent))
    for name in names:
        by_value: dict[str, list[str]] = {}
        for agent, variables in by_agent.items() if name not in shared else ():
            if name in variables:
                by_value.setdefault(variables[name], []).append(_host(agent))
        for value, hosts in by_value.items():
            settings.append(_Setting(name, value, () if set(hosts) == everywhere else tuple(dict.fromkeys(hosts))))
    return settings


def _host(agent: str) -> str:
    return agent.rpartition(" rank ")[0] or agent


def _the_wrong_one(settings: list[_Setting], trials: _Trials) -> list[_Setting]:
    """Of two values of a variable the one that makes a run fail alone; both where neither does so, or each."""
    failing = []
    for setting in settings:
        if not trials.may():
            return settings
        if trials.fails([f"{setting.name}={setting.value}"]):
            failing.append(setting)
    return failing if len(failing) == 1 else settings


def _texts(settings: Sequence[_Setting]) -> dict[str, str]:
    """By variable: its value, or its values with the number of hosts that have each."""
    values = lists_by_key((setting.name, setting) for setting in settings)
    texts = {}
    for name, some in values.items():
        value_texts = [strip_control_chars(setting.value, 100) for setting in some[:MAX_VALUES]]
        if len(some) > 1:
            counts = [len(setting.hosts) for setting in some[:MAX_VALUES]]
            value_texts = [
                filled("{0} on {1} host{2}", value, count or "all", "s" * (count != 1))
                for value, count in zip(value_texts, counts, strict=True)
            ]
        more = filled(", and {0} more values", len(some) - MAX_VALUES) * (len(some) > MAX_VALUES)
        texts[name] = joined("", (", ".join(value_texts), more))
    return texts


def _hosts(settings: Sequence[_Setting], result: SmokeResult) -> tuple[str, ...]:
    """The hosts that have these values of their own; empty where all hosts have some."""
    hosts = tuple(dict.fromkeys(host for setting in settings for host in setting.hosts))
    common = not all(setting.hosts for setting in settings) or set(hosts) == set(map(_host, result.variables))
    return () if common else hosts


def _hosts_of_choice(culprits: Sequence[str], run: SmokeRun, again: Sequence[Failure]) -> tuple[str, ...]:
    """The hosts whose library chooses an address that is of no use, where the errors of all runs show it.

    Ranks whose library fails before it turns to another rank are such. Of two ranks of gloo, the one of the higher
    address connects: among hosts that others do not reach, that of the lowest address has no error of this kind. So
    the one host that has none is such a host where all others have it.
    """
    failures = [run.failures[0], *again]
    failing = run.hosts(tuple({rank for failure in failures for rank in failure.culprit_ranks}))
    others = tuple(host for host in run.plan.ranks_by_host if host not in failing)
    are_of_joining = all(
        (failure.kind, failure.certainty, failure.unreached) == ("never-joined", "certain", False)
        and not any("error output" in text for text in failure.evidence)
        for failure in failures
    )
    if tuple(culprits) != (OWN_CHOICE,) or not are_of_joining or not others:
        return ()
    texts = [failure.text for failure in failures]
    if all(map(CONNECTING.search, texts)):
        return others if len(others) == 1 < len(failing) and run.plan.backend == "gloo" else ()
    return () if any(not text or is_secondary(text) or OF_OTHERS.search(text) for text in texts) else failing
