"""What one rank got: read by the stub of a rehearsal, or of a rank that runs. Untrusted, so typed and bounded here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from doctor.engine.sanitize import printable
from doctor.engine.secrets import HIDDEN, hide_in_output, is_secret_name
from doctor.engine.texts import filled
from doctor.facts.smoke.first_stages import cpu_numbers
from doctor.remote.runtime.rank_variables import RANK_VARIABLES, is_no_rank
from doctor.smoke.programs.agent.procfs import VISIBLE

RANK_NAMES, SIZE_NAMES, LOCAL_NAMES = (tuple(filter(None, names)) for names in zip(*RANK_VARIABLES, strict=True))
"""Of each the first that is set counts."""
_LIMITS = ("open files", "locked memory", "processes", "address space", "cpu time", "file size")


class HostPlace(msgspec.Struct, frozen=True):
    """Where a host's CPUs, memory, accelerators and adapters are, as `doctor.remote.runtime.rank_place` reads it."""

    cpus_of_nodes: dict[str, str]
    nodes_with_memory: str
    accelerators: list[tuple[str, int]]
    interfaces: dict[str, int]
    """The NUMA node of each one that is up; -1: not known. So of adapters."""
    adapters: dict[str, int]

    def nodes(self) -> dict[int, frozenset[int]]:
        """The CPUs of each NUMA node that has some."""
        return {
            int(node): cpus
            for node, text in self.cpus_of_nodes.items()
            if node.isascii() and node.isdecimal() and len(node) < 5 and (cpus := cpu_numbers(text))
        }


class StubAnswer(msgspec.Struct, frozen=True):
    """The stub's own words."""

    host: str
    pid: int
    uid: int
    folder: str
    python: str
    version: str
    variables: dict[str, str]
    cpus: list[int]
    permitted: list[int]
    memory_nodes: str
    place: HostPlace
    limits: dict[str, str]
    shm: int
    master: list[str]
    store: str
    """Why the ranks' store takes no connection; empty where it does, or its host answers."""
    links: list[str] = []
    """Names of its network interfaces, up or not."""
    began: int = 0
    """Clock ticks since the host's start; 0: not known. So of its end."""
    ended: int = 0
    hidden: list[str] = []
    """Modules of Python and of frameworks in whose place one beside the program stands."""


class RankView(msgspec.Struct, frozen=True, kw_only=True):
    """One rank."""

    host: str
    pid: int
    rank: int | None
    local_rank: int | None
    size: int | None
    """Ranks of the job, as given to this one."""
    variables: dict[str, str]
    """Without secrets."""
    properties: dict[str, str] = {}
    """What ranks should have alike: interpreter, folder, user, limits; by name."""
    cpus: frozenset[int] = frozenset()
    permitted: frozenset[int] = frozenset()
    cpu_nodes: frozenset[int] = frozenset()
    """NUMA nodes of its CPUs; empty where the host does not show them."""
    memory_nodes: frozenset[int] = frozenset()
    """NUMA nodes that its memory may come from; empty where that is not known."""
    nodes: frozenset[int] = frozenset()
    """NUMA nodes of the host that have CPUs."""
    full_nodes: frozenset[int] = frozenset()
    """Those of them that have memory, too."""
    device: tuple[int, str, int] | None = None
    """The accelerator that its local rank chooses: number, bus address, NUMA node (-1: not known)."""
    adapters: dict[str, int] = {}
    """NUMA nodes of the host's RDMA adapters with an active port; -1: not known. So of interfaces."""
    interfaces: dict[str, int] = {}
    links: frozenset[str] = frozenset()
    """Its network interfaces, up or not; empty: not known."""
    hidden_modules: frozenset[str] = frozenset()
    """Of Python or a framework: a module beside the program stands in their place."""
    began: int = 0
    ended: int = 0
    """Clock ticks since the host's start, when its process began and ended; 0: not known."""
    store: str = ""
    master: frozenset[str] = frozenset()
    """The addresses that MASTER_ADDR has here."""

    @property
    def is_scheduler(self) -> bool:
        """Of MindSpore's dynamic cluster: it runs the job's program, and is no rank (mindspore, "Dynamic Cluster")."""
        return bool(is_no_rank(self.variables))  # type: ignore[no-untyped-call]

    @property
    def is_numbered_later(self) -> bool:
        """Its number comes from MindSpore's scheduler, when the ranks meet: a worker without MS_NODE_ID."""
        return self.rank is None and self.variables.get("MS_ROLE") == "MS_WORKER"


def view_of(answer: StubAnswer) -> RankView:
    """The rank of an answer."""
    variables = {printable(name, 200): _value(name, value) for name, value in answer.variables.items()}
    local = _number(answer.variables, LOCAL_NAMES)
    view = RankView(
        host=printable(answer.host, 200),
        pid=answer.pid,
        rank=_number(answer.variables, RANK_NAMES),
        local_rank=local,
        size=_number(answer.variables, SIZE_NAMES),
        variables=variables,
        properties={name: printable(value, 300) for name, value in _properties(answer).items()},
        links=frozenset(answer.links),
        hidden_modules=frozenset(printable(name, 60) for name in answer.hidden[:64]),
        began=answer.began,
        ended=answer.ended,
        store=printable(answer.store, 200),
        master=frozenset(printable(address, 60) for address in answer.master),
    )
    return placed(
        view, answer.place, frozenset(answer.cpus), frozenset(answer.permitted), cpu_numbers(answer.memory_nodes)
    )


def placed(
    view: RankView, place: HostPlace, cpus: frozenset[int], permitted: frozenset[int], memory_nodes: frozenset[int]
) -> RankView:
    """The view of a rank on a host with such places, that may run on these CPUs."""
    nodes = place.nodes()
    return msgspec.structs.replace(
        view,
        cpus=cpus,
        permitted=permitted,
        cpu_nodes=frozenset(node for node, members in nodes.items() if members & cpus),
        memory_nodes=memory_nodes,
        nodes=frozenset(nodes),
        full_nodes=cpu_numbers(place.nodes_with_memory) & frozenset(nodes),
        device=_device(place.accelerators, view),
        adapters={printable(name, 60): node for name, node in place.adapters.items()},
        interfaces={printable(name, 60): node for name, node in place.interfaces.items()},
    )


def live_view(
    host: str, pid: int, rank: int | None, variables: Mapping[str, str], place: HostPlace | None, cpus: Sequence[str]
) -> RankView:
    """Of a process that runs. ``cpus``: lists of the CPUs on which it runs, those permitted, and of memory nodes."""
    view = RankView(
        host=host,
        pid=pid,
        rank=rank,
        local_rank=_number(variables, LOCAL_NAMES),
        size=None,
        variables={name: value for name, value in variables.items() if not is_secret_name(name)},
    )
    if place is None or len(cpus) != 3:
        return view
    own, permitted, memory_nodes = (cpu_numbers(text) for text in cpus)
    return placed(view, place, own, permitted or own, memory_nodes)


def _value(name: str, value: str) -> str:
    return HIDDEN if value and is_secret_name(name) else printable(hide_in_output(value), 1000)


def _number(variables: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    text = next((variables[name] for name in names if variables.get(name)), "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else None


def _properties(answer: StubAnswer) -> dict[str, str]:
    limits = {filled("limit of {0}", name.removeprefix("Max ")): value for name, value in answer.limits.items()}
    return {
        "the interpreter": filled("{0} ({1})", answer.python, answer.version),
        "the working folder": answer.folder,
        "the user": str(answer.uid),
        "the size of /dev/shm": str(answer.shm),
        "the addresses of MASTER_ADDR": ", ".join(answer.master) or "none",
        **{name: value for name, value in limits.items() if name.endswith(_LIMITS)},
    }


def _device(accelerators: Sequence[tuple[str, int]], view: RankView) -> tuple[int, str, int] | None:
    """The device of the local rank: of the visible ones the one with its number, else the only one."""
    numbers, local = list(range(len(accelerators))), view.local_rank
    for names in (*VISIBLE["npu"], *VISIBLE["amd"]):  # NVIDIA's is among those of AMD
        text = next((view.variables[name] for name in names if name in view.variables), None)
        if text is None:
            continue
        words = [word.strip() for word in text.split(",") if word.strip()]
        if not all(word.isdecimal() and int(word) < len(numbers) for word in words):
            return None
        numbers = [numbers[int(word)] for word in words]
    if not numbers or local is None:
        return None
    chosen = numbers[0] if len(numbers) == 1 else numbers[local] if local < len(numbers) else None
    if chosen is None:
        return None
    address, node = accelerators[chosen]
    return chosen, printable(address, 40), node
