"""Who trains what, where: hosts become ranks, and the world's size the layouts that it allows. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from doctor.engine.addresses import means_own_host
from doctor.engine.pairwise_blame import folded
from doctor.engine.record import LaunchOptions
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled
from doctor.job.variables import communication
from doctor.smoke.model import STAGES, Backend, Baseline, GroupRule, Layout, RankPlacement, SmokePlan, SmokeSettings
from doctor.smoke.programs import RANKS_ON_SINGLE_HOST
from doctor.smoke.programs.process_groups import Plan, PlannedLayout, PlannedRank, partitions, why_no_group
from doctor.transport.program import filled_here

HEADS = 8
"""Of the model's attention: tensor parallelism must divide them."""
LAYERS = 2
"""Of the model: there are no more pipeline stages."""
DEVICE_SECONDS = 20.0
"""Of the devices stage, at most: on CPUs some four."""
RANKS_ON_EACH_HOST = 2
"""Ranks on CPUs of each of several hosts."""
HCCL_BUFFER = 200
"""MB; the default of HCCL_BUFFSIZE."""
ATLAS_TRAINING = "d801"
"""PCI device id of the Atlas training series (910A, 910ProA and their like)."""
_GROUPS_OF_HALVES = "1, 2, 4 or 8 on each host, 2 and 4 within NPUs 0-3 or 4-7"
KINDS: dict[Backend, str] = {"hccl": "npu", "nccl": "gpu"}
_LAYOUT_FORM = "dp=4,tp=2,pp=1, then zero=1, acc=2 or recompute as wished"


class PlanHost(msgspec.Struct, frozen=True):
    """Data of a host for the plan."""

    devices: Mapping[str, Sequence[int]] = {}
    """Numbers of its accelerators: ``npu``, ``gpu``."""
    slots: int = 0
    """Ranks that the inventory wants there; 0: it does not say."""
    server: str = ""
    """The address that it was reached at, as the host itself saw it."""
    npu_model: str = ""
    """PCI device id of its NPUs."""
    hidden: Sequence[str] = ()
    """The kinds of accelerators that its environment hides."""


class SmokeOptions(SmokeSettings, frozen=True, kw_only=True):
    """Options of the user; empty values are left to the plan."""

    backend: Backend | None = None
    ranks_per_host: int = 0
    devices: tuple[int, ...] = ()
    """On every host."""
    layouts: tuple[str, ...] = ()
    """Each as `parse_layout` reads it."""
    native: bool = False
    stages: tuple[str, ...] = ()
    """Empty: all."""
    baseline: Baseline | None = None
    """Speeds of earlier runs to compare with."""
    cell_size: int = 0
    """Hosts of a cell in the screening of a fleet; 0: as `doctor.smoke.triage.screening` has it."""

    @property
    def words(self) -> tuple[str, ...]:
        """Of the command line: what starts the same ranks in the same layouts again.

        >>> SmokeOptions(ranks_per_host=2, layouts=("dp=4", "pp=2"), native=True).words
        ('--ranks-per-host', '2', '--layout', 'dp=4', '--layout', 'pp=2', '--native')
        """
        options = [
            ("--backend", self.backend),
            ("--ranks-per-host", self.ranks_per_host),
            ("--devices", ",".join(map(str, self.devices))),
            *(("--layout", layout) for layout in self.layouts),
            ("--python", self.python),
            ("--interface", self.interface),
            ("--master-addr", self.master_addr),
        ]
        result = tuple(word for option, value in options if value for word in (option, str(value)))
        return (*result, "--native") if self.native else result


def options_of_launch(launch: LaunchOptions, environ: Mapping[str, str]) -> SmokeOptions:
    """What the job's launch settles. A launch for one host, run on each of several, does not say where they meet.

    >>> options_of_launch(LaunchOptions(max_nodes=1, master_addr="127.0.0.1", master_port=29500), {}).words
    ()
    """
    is_local = launch.max_nodes == 1 and means_own_host(launch.master_addr)
    return SmokeOptions(
        python=launch.python,
        ranks_per_host=launch.ranks_per_host if isinstance(launch.ranks_per_host, int) else 0,
        master_addr="" if is_local else launch.master_addr,
        master_port=launch.master_port or 0,
        variables=communication(environ),
    )


def build_plan(hosts: Mapping[str, PlanHost], options: SmokeOptions) -> SmokePlan:
    """The plan for these hosts, which are in inventory order. Raises: ValueError."""
    backend = options.backend or common_backend([host.devices for host in hosts.values()])
    placements = _placements(hosts, backend, options)
    if len(hosts) > 1 and means_own_host(options.master_addr):
        text = "ranks of {0} hosts cannot meet at {1}, which is each host itself; name another one with --master-addr"
        raise ValueError(filled(text, len(hosts), options.master_addr))
    rule = group_rule(backend, (host.npu_model for host in hosts.values()))
    first, host = next(iter(hosts.items()))  # by the address that it was reached at
    address = options.master_addr or ("127.0.0.1" if len(hosts) == 1 else host.server or first)
    return settled_plan(backend, placements, rule, options, master_addr=address)


def settled_plan(
    backend: Backend, places: tuple[RankPlacement, ...], rule: GroupRule, options: SmokeOptions, **more: Any
) -> SmokePlan:
    """The plan for these ranks. ``more``: fields that the options do not settle, or otherwise. Raises: ValueError."""
    layouts = plan_layouts(places, options.layouts, rule)
    return SmokePlan(backend=backend, places=places, layouts=layouts, group_rule=rule, **settings(options) | more)


def settings(options: SmokeOptions) -> dict[str, Any]:
    """Fields of a `SmokePlan` that the options settle alone, whoever starts the ranks."""
    return {
        **{name: getattr(options, name) for name in SmokeSettings.__struct_fields__},
        "stages": options.stages or planned_stages(options.native, options.soak, options.device_seconds),
        "budget": options.budget + options.soak + options.device_seconds,
    }


def planned_stages(native: bool = False, soak: float = 0.0, device_seconds: float = 0.0) -> tuple[str, ...]:
    """The stages of a run, without those that were not asked for."""
    requested = {"native": native, "soak": soak > 0, "devices": device_seconds > 0}
    return tuple(stage for stage in STAGES if requested.get(stage, True))


def plan_as_dict(plan: SmokePlan) -> Plan:
    """The plan as agents and workers get it: with every default, for they know none."""
    fields = msgspec.structs.asdict(plan)
    for name in ("places", "layouts"):
        fields[name] = [msgspec.structs.asdict(value) for value in fields[name]]
    return cast(Plan, fields)


def group_rule(backend: Backend, npu_models: Iterable[str]) -> GroupRule:
    """What limits the groups of these hosts: HCCL on the Atlas training series (910A)."""
    return "halves" if backend == "hccl" and ATLAS_TRAINING in npu_models else ""


def plan_layouts(placements: Sequence[RankPlacement], texts: Sequence[str], rule: GroupRule) -> tuple[Layout, ...]:
    """The layouts asked for, or the default ones. Raises: ValueError, also where the product forms no such groups."""
    world = len(placements)
    chosen = tuple(parse_layout(text, world) for text in texts) or default_layouts(world)
    plan: Plan = {
        "places": [cast(PlannedRank, msgspec.structs.asdict(place)) for place in placements],
        "group_rule": rule,
    }
    if problem := filled_here(why_no_group(plan, list(range(world)))):
        raise ValueError(
            filled("HCCL forms no group of these NPUs: {0}; expected {1}, see --devices", problem, _GROUPS_OF_HALVES)
        )
    refused = {layout: problem for layout in chosen if (problem := _group_problem(plan, layout))}
    if texts and refused:
        layout, problem = next(iter(refused.items()))
        raise ValueError(
            filled("--layout {0}: HCCL forms no such group: {1}; expected {2}", layout.name, problem, _GROUPS_OF_HALVES)
        )
    *others, last = (layout for layout in chosen if layout not in refused)
    return (*others, last if texts else msgspec.structs.replace(last, recompute=True))


def _group_problem(plan: Plan, layout: Layout) -> str:
    """Why a group that the layout needs cannot be formed, or the empty string."""
    needed = partitions({**plan, "layouts": [cast(PlannedLayout, msgspec.structs.asdict(layout))]})
    return next(
        (problem for _, groups in needed for group in groups if (problem := filled_here(why_no_group(plan, group)))), ""
    )


def buffer_notes(plan: SmokePlan, variables: Mapping[str, str]) -> tuple[str, ...]:
    """What HCCL's buffers take of each NPU with these variables of the job; none where the run sets their size.

    hiascend.com, envref_07_0080: a communicator takes twice HCCL_BUFFSIZE, 200 MB by default.
    """
    if plan.backend != "hccl" or plan.environment == "clean":
        return ()
    text = variables.get("HCCL_BUFFSIZE", "")
    is_number = bool(re.fullmatch(r"[0-9]{1,6}", text, re.ASCII))
    size = int(text) if is_number else HCCL_BUFFER
    groups = 1 + len(partitions(plan_as_dict(plan)))
    default = "" if is_number else ", the default"
    text = (
        "HCCL_BUFFSIZE is {0} MB{1}: the process groups of a rank ({2}) take {3} GB of its NPU, beside what else runs "
        "there; --env clean sets 16 MB"
    )
    note = filled(text, size, default, groups, f"{2 * size * groups / 1000:.1f}")
    return (note,)


def default_layouts(world: int) -> tuple[Layout, ...]:
    """Every way to be parallel that the world's size allows, from plain to mixed, each once.

    Accumulation and recomputation come with others: where they cost no collective, or few in small groups.
    """
    tensor = next(size for size in (8, 4, 2, 1) if world % size == 0)
    candidates = [Layout(dp=world), Layout(dp=world, zero=True, accumulate=2), Layout(dp=world // tensor, tp=tensor)]
    candidates += [Layout(dp=world // 2, tp=2), Layout(dp=world // 2, pp=2)] if world % 2 == 0 else []
    candidates += [Layout(dp=world // 4, pp=2, tp=2)] if world % 4 == 0 else []
    *others, last = dict.fromkeys(candidates)
    return (*others, msgspec.structs.replace(last, recompute=True))


def parse_layout(text: str, world: int) -> Layout:
    """A layout for ``world`` ranks. Raises: ValueError."""
    layout = read_layout(text)
    problem = _layout_problem(layout, world)
    if problem:
        raise ValueError(filled("--layout {0}: {1}", f"{text!r}", problem))
    return layout


def read_layout(text: str) -> Layout:
    """A layout for as many ranks as it names: ``dp=4,tp=2,pp=1,zero=1,acc=2,recompute``. Raises: ValueError."""
    values = _layout_values(text)
    sizes = {name: values[name] for name in ("dp", "tp", "pp") if name in values}
    if not sizes:
        raise ValueError(filled("--layout {0}: names none of dp, tp, pp; expected {1}", f"{text!r}", _LAYOUT_FORM))
    zero, recompute = values.get("zero", 0), values.get("recompute", 0)
    for name, value in (("zero", zero), ("recompute", recompute)):
        if value > 1:
            raise ValueError(filled("--layout {0}: {1}={2}; expected 0 or 1", f"{text!r}", name, value))
    return Layout(**sizes, zero=bool(zero), accumulate=values.get("acc", 1), recompute=bool(recompute))


def _layout_values(text: str) -> dict[str, int]:
    values: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = part.strip().partition("=")
        if name not in ("dp", "tp", "pp", "zero", "acc", "recompute"):
            problem = "--layout {0}: {1} is not a part of a layout; expected {2}"
            raise ValueError(filled(problem, f"{text!r}", f"{name!r}", _LAYOUT_FORM))
        if name in values:
            raise ValueError(filled("--layout {0}: {1} appears twice; expected each part once", f"{text!r}", name))
        if not equals and name in ("zero", "recompute"):
            number = "1"
        least = 0 if name in ("zero", "recompute") else 1
        if not re.fullmatch(r"[0-9]{1,6}", number, re.ASCII) or int(number) < least:
            problem = "--layout {0}: {1}={2}; expected a whole number of at least {3}"
            raise ValueError(filled(problem, f"{text!r}", name, number, least))
        values[name] = int(number)
    return values


def _layout_problem(layout: Layout, world: int) -> str:
    """Why this world cannot train like that, or the empty string."""
    if layout.world != world:
        product = f"dp {layout.dp} x tp {layout.tp} x pp {layout.pp} = {layout.world}"
        return filled("{0}; expected {1}, the number of ranks", product, world)
    if HEADS % layout.tp:
        return filled("tp={0}; expected a divisor of {1}, the attention heads of the model", layout.tp, HEADS)
    if layout.pp > LAYERS:
        return filled("pp={0}; expected at most {1}, the layers of the model", layout.pp, LAYERS)
    if layout.accumulate not in (1, 2, 4):
        return f"acc={layout.accumulate}; expected 1, 2 or 4"
    return ""


def common_backend(devices: Sequence[Mapping[str, object]]) -> Backend:
    """NPUs or GPUs where every host, or every rank, has some, else CPUs. ``devices``: of each, what it has by kind.

    >>> common_backend([{"gpu": (0, 1)}, {"gpu": (0, 1), "npu": ()}])
    'nccl'
    """
    for backend, kind in KINDS.items():
        if devices and all(held.get(kind) for held in devices):
            return backend
    return "gloo"


def left_unused(plan: SmokePlan, options: SmokeOptions, hidden: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """By host: the devices that its environment hides, where the ranks run on CPUs without a request for that."""
    chosen = options.backend is not None or plan.backend != "gloo"
    return {} if chosen else {host: kinds[0].upper() for host, kinds in hidden.items() if kinds}


def allocation_notes(plan: SmokePlan, options: SmokeOptions, unallocated: Mapping[str, Sequence[str]]) -> list[str]:
    """What ranks on CPUs say nothing of, as their job was allocated CPUs alone. ``unallocated``: kinds, by host."""
    hosts = left_unused(plan, options, unallocated)
    text = "Slurm has allocated this job no GPU of {0}: its ranks ran on CPUs, and the GPUs were not tested"
    return [filled(text, folded(hosts))] if hosts else []


def _placements(hosts: Mapping[str, PlanHost], backend: Backend, options: SmokeOptions) -> tuple[RankPlacement, ...]:
    """The ranks: hosts in their order, those of one host one after the other."""
    placements: list[RankPlacement] = []
    for name, host in hosts.items():
        devices = _devices(name, host, backend, options)
        count = options.ranks_per_host or len(options.devices) or host.slots or len(devices)
        count = count or (RANKS_ON_SINGLE_HOST if len(hosts) == 1 else RANKS_ON_EACH_HOST)
        if devices and count > len(devices):
            kind = KINDS[backend].upper()
            problem = "{0}: {1} ranks for {2}; expected one {3} a rank"
            raise ValueError(filled(problem, name, count, count_noun(len(devices), kind), kind))
        numbers = devices or (-1,) * count
        visible = tuple(host.devices.get(KINDS.get(backend, ""), ()))
        ordinals = [visible.index(number) if number in visible else -1 for number in numbers]
        placements += [
            RankPlacement(len(placements) + local, name, local, numbers[local], ordinals[local])
            for local in range(count)
        ]
    return tuple(placements)


def _devices(name: str, host: PlanHost, backend: Backend, options: SmokeOptions) -> tuple[int, ...]:
    if backend == "gloo" and options.devices:
        text = "devices {0} are requested, but gloo runs on CPUs; expected nccl or hccl"
        raise ValueError(filled(text, _format_numbers(options.devices)))
    if backend == "gloo":
        return ()
    kind = KINDS[backend]
    host_devices = tuple(host.devices.get(kind, ()))
    absent_devices = sorted(set(options.devices) - set(host_devices))
    if absent_devices:
        raise ValueError(
            filled("{0}: no {1} {2}; it has {3}", name, kind.upper(), absent_devices[0], _format_numbers(host_devices))
        )
    if not host_devices:
        raise ValueError(_lack(name, host, backend))
    return options.devices or host_devices


def _lack(name: str, host: PlanHost, backend: Backend) -> str:
    kind = KINDS[backend]
    text = (
        "{0}: its environment hides every {1}; expected at least one for {2}"
        if kind in host.hidden
        else "{0}: has no {1}; expected at least one for {2}"
    )
    return filled(text, name, kind.upper(), backend)


def lacking_devices(hosts: Mapping[str, PlanHost], backend: Backend | None) -> dict[str, str]:
    """By host without a device of the backend asked for, where it hides them or another host has some: what it lacks.

    >>> lacking_devices({"a": PlanHost({"gpu": (0,)}), "b": PlanHost(hidden=["gpu"])}, "nccl")
    {'b': 'b: its environment hides every GPU; expected at least one for nccl'}
    """
    if backend is None or backend == "gloo":
        return {}
    kind = KINDS[backend]
    without = [name for name, host in hosts.items() if not host.devices.get(kind)]
    partly = len(without) < len(hosts)
    return {name: _lack(name, hosts[name], backend) for name in without if partly or kind in hosts[name].hidden}


def _format_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers) or "none"
