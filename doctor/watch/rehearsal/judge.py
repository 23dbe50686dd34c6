"""What does not fit in what the ranks of a job got: among each other, and each with its own place. Pure.

The same for a rehearsal and for ranks that run. A variable that each rank has with a value of its own, and one that no
majority of the ranks agrees on, is no difference: launchers number ranks with many.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from doctor.analysis.majority import split
from doctor.analysis.rank_numbers import rank_numbers
from doctor.engine.addresses import means_own_host
from doctor.engine.grouping import lists_by_key
from doctor.engine.sanitize import number_ranges
from doctor.engine.texts import beginning, filled
from doctor.facts.names import short_name
from doctor.facts.rdma import chosen_ports
from doctor.facts.smoke.first_stages import CpuBinding
from doctor.facts.socket_choice import absent_names
from doctor.job.variables import EQUAL_EVERYWHERE, GLOO_INTERFACE, HCCL_INTERFACE, JOB_WIDE, NCCL_INTERFACE
from doctor.smoke.speed.cpu_quotas import shared_cpus
from doctor.watch.rehearsal.rank_view import LOCAL_NAMES, RANK_NAMES, SIZE_NAMES, RankView
from doctor.watch.rehearsal.stub import IN_USE

Severity = Literal["error", "warning"]

_OF_RANK = re.compile(
    r"(LOCAL_|GROUP_|ROLE_|NODE_|GLOBAL_|CROSS_)?(RANK|WORLD_SIZE|WORLD_RANK|ID|RANK_ID)$|_$|SHLVL$|OLDPWD$|PWD$|HOSTNAME$|HOST$"
    r"|(SSH|XDG|DBUS|TERM|LS|LC|LESS|DISPLAY|WINDOWID|SUDO|MAIL|TORCHELASTIC|OMPI|PMI|PMIX|PRTE|ORTE|OPAL|MPI|HYDRA"
    r"|SLURM|SLURMD|SRUN|PBS|LSB|KUBERNETES|CONDOR)_?.*$|(DEVICE_ID|MS_NODE_ID|MASTER_PORT)$|JOURNAL_STREAM$|INVOCATION_ID$"
)
"""Names that launchers, schedulers and logins set for one process or one host."""
MAX_SHOWN = 60


class Misfit(NamedTuple):
    """One thing that does not fit."""

    severity: Severity
    subject: str
    """The variable or property."""
    text: str
    """One sentence."""
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]


def judge(views: Sequence[RankView]) -> list[Misfit]:
    """All that does not fit, errors first."""
    rules = (_numbers, _variables, _properties, _stores, _links, _hidden_modules, _devices, _cpus, _places)
    misfits = [misfit for rule in rules for misfit in rule(views)]
    return sorted(misfits, key=lambda misfit: misfit.severity != "error")


def _misfit(severity: Severity, subject: str, text: str, views: Sequence[RankView]) -> Misfit:
    ranks = tuple(sorted({view.rank for view in views if view.rank is not None}))
    return Misfit(severity, subject, text, ranks, tuple(dict.fromkeys(view.host for view in views)))


def describe_ranks(views: Sequence[RankView]) -> str:
    """``ranks 0-3 on n1, n2``."""
    ranks = sorted({view.rank for view in views if view.rank is not None})
    hosts = ", ".join(list(dict.fromkeys(view.host for view in views))[:8])
    if not ranks:
        return filled("{0} processes on {1}", len(views), hosts)
    if len(ranks) == 1:
        return filled("rank {0} on {1}", ranks[0], hosts)
    return filled("ranks {0} on {1}", number_ranges(ranks), hosts)


def _numbers(views: Sequence[RankView]) -> Iterator[Misfit]:
    numbers = rank_numbers(views, lambda view: view.rank)
    for rank, same in numbers.repeated.items():
        text = filled("{0} processes have rank {1}, on {2}", len(same), rank, ", ".join(view.host for view in same))
        yield _misfit("error", "RANK", text, same)
    for view in views:
        if view.rank is not None and view.size is not None and view.rank >= view.size:
            yield _misfit(
                "error", "RANK", filled("rank {0} of {1} ranks, on {2}", view.rank, view.size, view.host), [view]
            )
    for view in views:
        for name in _not_numbers(view):
            text = filled("{0} is {1}: expected a number, on {2}", name, repr(view.variables[name]), view.host)
            yield _misfit("error", name, text, [view])
    unnumbered = [view for view in numbers.unnumbered if not view.is_numbered_later]
    if unnumbered and len(views) > 1:
        text = filled("{0} of {1} processes got no rank, on {2}", len(unnumbered), len(views), unnumbered[0].host)
        yield _misfit("error", "RANK", text, unnumbered)


def _not_numbers(view: RankView) -> Iterator[str]:
    """The variables by which a rank would know its number and that of all ranks, where they hold something else."""
    for value, names in ((view.rank, RANK_NAMES), (view.local_rank, LOCAL_NAMES), (view.size, SIZE_NAMES)):
        name = next((name for name in names if view.variables.get(name)), "")
        if value is None and name:
            yield name


def judge_running(views: Sequence[RankView]) -> list[Misfit]:
    """Misfits of ranks that already run: variables that all must have alike, and where the ranks run."""
    alike = [misfit for misfit in _variables(views) if misfit.severity == "error"]
    return [*alike, *_cpus(views), *_places(views)]


def _variables(views: Sequence[RankView]) -> Iterator[Misfit]:
    for name in sorted({name for view in views for name in view.variables}):
        strict = name in (*JOB_WIDE, *EQUAL_EVERYWHERE)
        if strict or not _OF_RANK.match(name):
            severity: Severity = "error" if strict else "warning"
            compared = _without_master(views, name) if name.endswith(("_ADDR", "_HOST")) and strict else views
            yield from _unlike(compared, name, _named(name, "variables"), severity, strict)


def _without_master(views: Sequence[RankView], name: str) -> Sequence[RankView]:
    """The ranks without those of the one host that calls itself localhost: the master's own, as operators of Kubernetes
    set it.
    """
    here = [view for view in views if means_own_host(view.variables.get(name, ""))]
    return [view for view in views if view not in here] if len({view.host for view in here}) == 1 else views


def _properties(views: Sequence[RankView]) -> Iterator[Misfit]:
    for name in sorted({name for view in views for name in view.properties}):
        yield from _unlike(views, name, _named(name, "properties"), "warning")


def _named(name: str, field: Literal["variables", "properties"]) -> Callable[[RankView], str]:
    if name.endswith(("_ADDR", "_HOST")):
        return lambda view: short_name(str(getattr(view, field).get(name, "")))
    return lambda view: str(getattr(view, field).get(name, ""))


def _unlike(
    views: Sequence[RankView], subject: str, value: Callable[[RankView], str], severity: Severity, strict: bool = False
) -> Iterator[Misfit]:
    """Ranks with another value than most; ``strict``: also where no value has a majority."""
    parts = split(views, value)
    if parts is None:
        return
    if not parts.majority:
        if strict:
            excerpt = ", ".join(sorted(_excerpt(text) for text in _groups(views, value))[:4])
            yield _misfit(severity, subject, filled("{0} has several values: {1}", subject, excerpt), views)
        return
    for observed, members in _groups(parts.differing, value).items():
        who, most = describe_ranks(members), len(parts.agreeing)
        text = "{0}: {1} is {2}; {3} of {4} ranks have {5}"
        text = filled(text, who, subject, _excerpt(observed), most, len(views), _excerpt(value(parts.norm)))
        yield _misfit(severity, subject, text, members)


def _groups(views: Sequence[RankView], key: Callable[[RankView], str]) -> dict[str, list[RankView]]:
    return lists_by_key((key(view), view) for view in views)


def _excerpt(text: str) -> str:
    return (text if len(text) <= MAX_SHOWN else f"{beginning(text, MAX_SHOWN)}...") or "not set"


def _stores(views: Sequence[RankView]) -> Iterator[Misfit]:
    """Ranks that do not come to the store, and those for which the name of its host means their own."""
    hosts = {view.host for view in views if view.rank == 0}
    for problem, members in _groups(views, lambda view: view.store).items():
        address, port = (members[0].variables.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
        text = "{0}: the store at {1}:{2} takes no connection: {3}"
        if problem == IN_USE:
            text = "{0}: another program listens at {1}:{2} already, so the ranks' store cannot"
        text = filled(text, describe_ranks(members), address, port, problem)
        if problem:
            yield _misfit("error", "MASTER_ADDR", text, members)
    for name, members in _groups(views, lambda view: view.variables.get("MASTER_ADDR", "")).items():
        strays = [view for view in members if view.master and all(map(means_own_host, view.master))]
        strays = [view for view in strays if hosts and view.host not in hosts and not means_own_host(name)]
        if strays:
            where = ", ".join(sorted(hosts))
            text = "{0}: MASTER_ADDR {1} means the rank's own host, and rank 0 is on {2}"
            text = filled(text, describe_ranks(strays), name, where)
            yield _misfit("error", "MASTER_ADDR", text, strays)


def _links(views: Sequence[RankView]) -> Iterator[Misfit]:
    """Variables that name an interface which the rank's host lacks; their addresses are judged by `doctor check`."""
    for view in views:
        for variable in (GLOO_INTERFACE, *((NCCL_INTERFACE, HCCL_INTERFACE) if view.device else ())):
            setting = view.variables.get(variable, "")
            if absent := absent_names(variable, setting, view.links) if view.links else []:
                problem = filled("there is no interface {0}", ", ".join(absent) or "''")
                text = filled("{0}: {1} is {2}: {3}", describe_ranks([view]), variable, _excerpt(setting), problem)
                yield _misfit("error", variable, text, [view])


def _hidden_modules(views: Sequence[RankView]) -> Iterator[Misfit]:
    """Modules that whoever imports them gets from the program's folder: a framework that needs Python's own fails."""
    one = "{0}: module {1} beside the program has the name of another, which imports no longer find: rename it"
    several = "{0}: modules beside the program have the names of others, which imports no longer find: rename {1}"
    for names, members in _groups(views, lambda view: ", ".join(sorted(view.hidden_modules))).items():
        if names:
            text = filled(several if ", " in names else one, describe_ranks(members), names)
            yield _misfit("warning", "modules", text, members)


def _devices(views: Sequence[RankView]) -> Iterator[Misfit]:
    users = lists_by_key(((view.host, view.device[0]), view) for view in views if view.device)
    for same in users.values():
        if len(same) > 1 and same[0].device:
            text = filled(
                "{0} would all use device {1} ({2})", describe_ranks(same), same[0].device[0], same[0].device[1]
            )
            yield _misfit("error", "device", text, same)


def _cpus(views: Sequence[RankView]) -> Iterator[Misfit]:
    for host, members in _groups(views, lambda view: view.host).items():
        bindings: Mapping[int, CpuBinding] = {
            place: CpuBinding(view.cpus, view.permitted or view.cpus) for place, view in enumerate(members) if view.cpus
        }
        for shared in shared_cpus(bindings):
            sharing = [members[place] for place in shared.ranks]
            cpus = number_ranges(sorted(shared.cpus))
            text = filled(
                "{0} share CPU {1}, of {2} CPUs of {3}", describe_ranks(sharing), cpus, shared.permitted, host
            )
            yield _misfit("warning", "CPU set", text, sharing)


def _places(views: Sequence[RankView]) -> Iterator[Misfit]:
    """CPUs, memory, device and network adapter of a rank at one NUMA node, where the host has several."""
    for view in views:
        if len(view.nodes) < 2:
            continue
        if _is_far(view.cpu_nodes, view.memory_nodes, view.full_nodes):
            nodes, memory = (number_ranges(sorted(numbers)) for numbers in (view.cpu_nodes, view.memory_nodes))
            text = "{0}: its CPUs are at NUMA node {1}, its memory comes from node {2} alone"
            text = filled(text, describe_ranks([view]), nodes, memory)
            yield _misfit("warning", "NUMA node", text, [view])
        if view.device is not None and view.device[2] in view.nodes:
            yield from _device_places(view, *view.device)


def _is_far(cpu_nodes: frozenset[int], memory_nodes: frozenset[int], full_nodes: frozenset[int]) -> bool:
    """Whether memory comes from other CPUs' nodes alone. Not of nodes without CPUs, such as fast memory on the chip, or
    for CPUs whose node has no memory.
    """
    return bool(memory_nodes and cpu_nodes & full_nodes and memory_nodes <= full_nodes - cpu_nodes)


def _device_places(view: RankView, number: int, address: str, node: int) -> Iterator[Misfit]:
    if view.cpu_nodes and node not in view.cpu_nodes:
        nodes = number_ranges(sorted(view.cpu_nodes))
        text = "{0}: its CPUs are at NUMA node {1}, its device {2} ({3}) at node {4}"
        text = filled(text, describe_ranks([view]), nodes, number, address, node)
        yield _misfit("warning", "NUMA node", text, [view])
    for name, places in _adapters(view):
        chosen = _chosen(view.variables.get(name, ""), places)
        if chosen and all(place >= 0 and place != node for place in chosen.values()) and node in places.values():
            near = ", ".join(adapter for adapter, place in sorted(places.items()) if place == node)
            text = "{0}: {1} names {2} only, and its device {3} is at NUMA node {4}, as is {5}"
            text = filled(text, describe_ranks([view]), name, ", ".join(chosen), number, node, near)
            yield _misfit("warning", name, text, [view])


def _adapters(view: RankView) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The variables that choose what carries the data, and the NUMA nodes of what they choose from.

    NCCL's data goes over sockets where there is no RDMA adapter, or NCCL_IB_DISABLE forbids it; else the interface only
    brings the ranks together (NCCL documentation, NCCL_SOCKET_IFNAME, NCCL_IB_DISABLE).
    """
    is_disabled = view.variables.get("NCCL_IB_DISABLE", "").strip() not in ("", "0")
    if view.adapters and not is_disabled:
        yield "NCCL_IB_HCA", view.adapters
    else:
        yield "NCCL_SOCKET_IFNAME", view.interfaces


def _chosen(setting: str, places: Mapping[str, int]) -> dict[str, int]:
    """The adapters that a variable names; empty where it is not set or excludes some (``^``)."""
    text = setting.strip()
    named = () if text.startswith("^") else chosen_ports(text, places)[0]
    return {adapter: places[adapter] for adapter in named}
