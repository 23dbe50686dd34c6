"""Who trains what, where: hosts become ranks, and the world's size the layouts that it allows. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from doctor.smoke.model import STAGES, Backend, Layout, Place, Plan

HEADS = 8
"""Of the model's attention: tensor parallelism must divide them."""
LAYERS = 2
"""Of the model: there are no more pipeline stages."""
ALONE = 4
"""Ranks on CPUs of a single host."""
TOGETHER = 2
"""Ranks on CPUs of each of several hosts."""
LOCAL_ADDRESS = "127.0.0.1"
_KINDS: dict[Backend, str] = {"hccl": "npu", "nccl": "gpu"}
_FORM = "dp=4,tp=2,pp=1, then zero=1, acc=2 or recompute as wished"


class Host(msgspec.Struct, frozen=True):
    """What a plan needs to know of a host."""

    devices: Mapping[str, Sequence[int]] = {}
    """Numbers of its accelerators: ``npu``, ``gpu``."""
    slots: int = 0
    """Ranks that the inventory wants there; 0: it does not say."""
    server: str = ""
    """The address that it was reached at, as the host itself saw it."""


class Wish(msgspec.Struct, frozen=True):
    """What the user asked for; empty values are left to the plan."""

    backend: Backend | None = None
    ranks_per_host: int = 0
    devices: tuple[int, ...] = ()
    """On every host."""
    layouts: tuple[str, ...] = ()
    """Each as `parse_layout` reads it."""
    native: bool = False
    steps: int = 3
    seed: int = 1
    max_bytes: int = 1 << 20
    master_addr: str = ""
    master_port: int = 0
    timeout: float = 60.0
    budget: float = 120.0
    python: str = ""
    interface: str = ""


def make(hosts: Mapping[str, Host], wish: Wish) -> Plan:
    """The plan for these hosts, which are in inventory order. Raises: ValueError."""
    backend = wish.backend or _backend(hosts)
    places = _places(hosts, backend, wish)
    world = len(places)
    chosen = tuple(parse_layout(text, world) for text in wish.layouts) or layouts(world)
    return Plan(
        backend=backend,
        places=places,
        layouts=chosen,
        stages=tuple(stage for stage in STAGES if wish.native or stage != "native"),
        steps=wish.steps,
        seed=wish.seed,
        max_bytes=wish.max_bytes,
        master_addr=wish.master_addr or _master(hosts),
        master_port=wish.master_port,
        timeout=wish.timeout,
        budget=wish.budget,
        python=wish.python,
        interface=wish.interface,
    )


def spelled_out(plan: Plan) -> dict[str, Any]:
    """The plan as agents and workers get it: with every default, for they know none."""
    whole = msgspec.structs.asdict(plan)
    for name in ("places", "layouts"):
        whole[name] = [msgspec.structs.asdict(one) for one in whole[name]]
    return whole


def layouts(world: int) -> tuple[Layout, ...]:
    """Every way to be parallel that the world's size allows, from plain to mixed, each once.

    Accumulation and recomputation come with others: where they cost no collective, or few in small groups.
    """
    tensor = next(size for size in (8, 4, 2, 1) if world % size == 0)
    found = [Layout(dp=world), Layout(dp=world, zero=True, accumulate=2), Layout(dp=world // tensor, tp=tensor)]
    found += [Layout(dp=world // 2, tp=2), Layout(dp=world // 2, pp=2)] if world % 2 == 0 else []
    found += [Layout(dp=world // 4, pp=2, tp=2)] if world % 4 == 0 else []
    *plain, last = dict.fromkeys(found)
    return (*plain, msgspec.structs.replace(last, recompute=True))


def parse_layout(text: str, world: int) -> Layout:
    """A layout for ``world`` ranks. Raises: ValueError."""
    layout = read_layout(text)
    problem = _problem(layout, world)
    if problem:
        raise ValueError(f"layout {text!r}: {problem}")
    return layout


def read_layout(text: str) -> Layout:
    """A layout for as many ranks as it names: ``dp=4,tp=2,pp=1,zero=1,acc=2,recompute``. Raises: ValueError."""
    values = _words(text)
    given = {name: values[name] for name in ("dp", "tp", "pp") if name in values}
    if not given:
        raise ValueError(f"layout {text!r}: names none of dp, tp, pp; expected {_FORM}")
    zero, recompute = values.get("zero", 0), values.get("recompute", 0)
    for name, value in (("zero", zero), ("recompute", recompute)):
        if value > 1:
            raise ValueError(f"layout {text!r}: {name}={value}; expected 0 or 1")
    return Layout(**given, zero=bool(zero), accumulate=values.get("acc", 1), recompute=bool(recompute))


def _words(text: str) -> dict[str, int]:
    values: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = part.strip().partition("=")
        if name not in ("dp", "tp", "pp", "zero", "acc", "recompute"):
            raise ValueError(f"layout {text!r}: {name!r} is not a part of a layout; expected {_FORM}")
        if name in values:
            raise ValueError(f"layout {text!r}: {name} is there twice; expected each part once")
        if not equals and name in ("zero", "recompute"):
            number = "1"
        least = 0 if name in ("zero", "recompute") else 1
        if not re.fullmatch(r"[0-9]{1,6}", number, re.ASCII) or int(number) < least:
            raise ValueError(f"layout {text!r}: {name}={number}; expected a whole number from {least} on")
        values[name] = int(number)
    return values


def _problem(layout: Layout, world: int) -> str:
    """Why this world cannot train like that, or the empty string."""
    if layout.world != world:
        product = f"dp {layout.dp} x tp {layout.tp} x pp {layout.pp} = {layout.world}"
        return f"{product}; expected {world}, the number of ranks"
    if HEADS % layout.tp:
        return f"tp={layout.tp}; expected a divisor of {HEADS}, the attention heads of the model"
    if layout.pp > LAYERS:
        return f"pp={layout.pp}; expected at most {LAYERS}, the layers of the model"
    if layout.accumulate not in (1, 2, 4):
        return f"acc={layout.accumulate}; expected 1, 2 or 4"
    return ""


def _backend(hosts: Mapping[str, Host]) -> Backend:
    """NPUs or GPUs where every host has some, else CPUs."""
    for backend, kind in _KINDS.items():
        if all(host.devices.get(kind) for host in hosts.values()):
            return backend
    return "gloo"


def _places(hosts: Mapping[str, Host], backend: Backend, wish: Wish) -> tuple[Place, ...]:
    """The ranks: hosts in their order, those of one host one after the other."""
    places: list[Place] = []
    for name, host in hosts.items():
        devices = _devices(name, host, backend, wish)
        count = wish.ranks_per_host or len(wish.devices) or host.slots or len(devices)
        count = count or (ALONE if len(hosts) == 1 else TOGETHER)
        if devices and count > len(devices):
            kind = _KINDS[backend].upper()
            raise ValueError(f"{name}: {count} ranks for {len(devices)} {kind}s; expected one {kind} a rank")
        numbers = devices or (-1,) * count
        places += [Place(len(places) + local, name, local, numbers[local]) for local in range(count)]
    return tuple(places)


def _devices(name: str, host: Host, backend: Backend, wish: Wish) -> tuple[int, ...]:
    if backend == "gloo" and wish.devices:
        raise ValueError(f"devices {_listed(wish.devices)} are asked for, and gloo runs on CPUs; expected nccl or hccl")
    if backend == "gloo":
        return ()
    kind = _KINDS[backend]
    there = tuple(host.devices.get(kind, ()))
    missing = sorted(set(wish.devices) - set(there))
    if missing:
        raise ValueError(f"{name}: no {kind.upper()} {missing[0]}; it has {_listed(there)}")
    if not there:
        raise ValueError(f"{name}: has no {kind.upper()}; expected at least one for {backend}")
    return wish.devices or there


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers) or "none"


def _master(hosts: Mapping[str, Host]) -> str:
    """Where the ranks meet: on the first host, by the address that it was reached at."""
    first, host = next(iter(hosts.items()))
    return LOCAL_ADDRESS if len(hosts) == 1 else host.server or first
