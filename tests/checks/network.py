"""Network interfaces in a line."""

from __future__ import annotations

from doctor.engine.fact import Fact
from doctor.facts.gpu import GpuCards
from doctor.facts.interfaces import Interfaces, Link, LinkAddress, RouteTarget
from doctor.facts.names import HostNames, NameResolution
from doctor.facts.npu import NpuInventory

NPUS = NpuInventory(devices=(0,), pci_count=1, manager=True, denied_files=(), tools=("npu-smi",), newer_than_boot=())
GPUS = GpuCards(pci=1, driver="NVRM", tool=True)
LO = Link("lo", True, True, True, 65536, "", False, False)


def link(name: str, *, up: bool = True, running: bool = True, mtu: int = 1500, kind: str = "", index: int = 0) -> Link:
    return Link(name, up, up and running, name == "lo", mtu, kind, not kind, False, index=index)


def interfaces(*links: Link, routes: tuple[str, ...] = (), has_rules: bool = False, **addresses: str) -> Interfaces:
    """``interfaces(eth0="10.0.0.1/24")``: names without a link of their own are up; lo is always there."""
    parameters = {"lo": "127.0.0.1/8 ::1/128", **{name.replace("_", "-"): text for name, text in addresses.items()}}
    names = {entry.name for entry in links}
    created_links = [LO, *links, *(link(name) for name in parameters if name not in {"lo", *names})]
    every = [(name, *text.split("/")) for name, texts in parameters.items() for text in texts.split()]
    every.sort(key=lambda row: ":" in row[1])  # as the kernel lists them: IPv4 first
    return Interfaces(
        links=tuple(created_links),
        addresses=tuple(LinkAddress(name, name, address, int(prefix)) for name, address, prefix in every),
        routes=tuple(RouteTarget(text.split("/")[0], int(text.split("/")[1]), "eth0") for text in routes),
        has_rules=has_rules,
    )


def named(own_name: str, address: str, **others: str) -> HostNames:
    """A host whose own name means this address; ``others``: what further names mean on it."""
    names = {own_name: NameResolution((address,), bindable=address) if address else NameResolution(error="unknown")}
    names.update({name: NameResolution((text,)) for name, text in others.items()})
    return HostNames(own=own_name, names=names, fleet=1 + len(others))


def alike_hosts(count: int = 3, first: str = "10.0.0.") -> dict[str, list[Fact]]:
    """Hosts w1, w2, ... with eth0 and lo in one network, each with a name that means its address."""
    return {f"w{n}": [interfaces(eth0=f"{first}{n}/24"), named(f"w{n}", f"{first}{n}")] for n in range(1, count + 1)}
