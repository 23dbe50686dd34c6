"""Whether the job's environment makes a run fail: the run again in short, without its variables, then with some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.smoke.model import OWN_CHOICE, EnvironmentTrial
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.run.result import SmokeResult

STAGES = ("start", "rendezvous", "collectives", "teardown")
"""Of a trial: an environment that parts ranks does so before or in their first collectives."""
KINDS = ("not-started", "never-joined", "network", "dead", "blocked", "left", "budget")
"""Failures that a variable can bring about."""
BUDGET = 45.0
"""Seconds for one trial."""
MAX_RUNS = 9
"""Trials of one failure; half as many identify one variable of sixteen."""

Repeat = Callable[[SmokeOptions], SmokeResult]


def explain_by_environment(result: SmokeResult, options: SmokeOptions, repeat: Repeat) -> SmokeResult:
    """The result with the trials' evidence on the job's environment; unchanged where that cannot be the cause."""
    run = result.run
    names = variables_in_force(result, options)
    if not run.failures or run.failures[0].kind not in KINDS or run.failures[0].stage not in STAGES or not names:
        return result
    if options.environment == "clean":
        return result
    tried = 0

    def fails(keep: Sequence[str]) -> bool:
        nonlocal tried
        tried += 1
        trial = msgspec.structs.replace(options, keep=tuple(keep), stages=STAGES, budget=min(options.budget, BUDGET))
        repeated = repeat(trial)
        if repeated.stopped:
            raise _Interrupted(repeated.stopped)
        return repeated.run.ended != "complete"

    try:
        if fails(()):
            trial = EnvironmentTrial(passes=False, runs=tried)
        elif not fails(names):
            # With all variables in force it passes as well: what failed does not come back, and no variable brought it.
            return result
        else:
            culprits = _smallest(names, fails, lambda: tried < MAX_RUNS)
            values, hosts = _where(culprits, result, options)
            trial = EnvironmentTrial(passes=True, culprits=tuple(culprits), values=values, hosts=hosts, runs=tried)
    except ValueError:
        return result
    except _Interrupted as stop:
        return msgspec.structs.replace(result, stopped=stop.reason)
    return msgspec.structs.replace(result, run=msgspec.structs.replace(run, environment_trial=trial))


class _Interrupted(Exception):
    def __init__(self, reason: BaseException) -> None:
        super().__init__(reason)
        self.reason = reason


def variables_in_force(result: SmokeResult, options: SmokeOptions) -> list[str]:
    """The job's variables, of the controller and of any host, and the choice of an interface where nothing sets it."""
    names = set(options.variables).union(*result.variables.values())
    plan = result.run.plan
    choice = f"{plan.backend.upper()}_SOCKET_IFNAME"
    free = choice not in names and not options.interface and len({place.host for place in plan.places}) > 1
    return [OWN_CHOICE] * free + sorted(names)


def _smallest(names: Sequence[str], fails: Callable[[Sequence[str]], bool], may: Callable[[], bool]) -> list[str]:
    """The names that make a run fail, by halving; more than one where no half does so alone, or runs are used up."""
    pool = list(names)
    while len(pool) > 1 and may():
        half, rest = pool[: len(pool) // 2], pool[len(pool) // 2 :]
        if fails(half):
            pool = half
        elif len(rest) == len(pool) - 1 == 1 or not may() or fails(rest):
            pool = rest
        else:
            break
    return pool


def _where(names: Sequence[str], result: SmokeResult, options: SmokeOptions) -> tuple[dict[str, str], tuple[str, ...]]:
    """The values of these variables, and the hosts that have them of their own."""
    values = {name: options.variables[name] for name in names if name in options.variables}
    own = {agent: some for agent, some in result.variables.items() if set(names) & set(some) - set(options.variables)}
    for some in own.values():
        values.update({name: some[name] for name in names if name in some and name not in values})
    hosts = tuple(dict.fromkeys(agent.split(" rank ")[0] for agent in own))
    return {name: strip_control_chars(value, 100) for name, value in values.items()}, hosts
