"""How NVIDIA GPUs are connected: NVLinks, the topology that nvidia-smi shows, the fabric manager."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import takewhile

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.gpu import GpuInventory, tool_text
from doctor.facts.reported_value import reported_count, require_no_complaint, table_problem

_BASEBOARDS = {re.compile(r"SXM|HBM3|\b(?:H20(?:-3e)?|H200|H800|B[123]00)$"): 8, re.compile(r"\bGB[123]00$"): 4}


def board_size(product: str) -> int:
    """How many GPUs, with all links in use, a baseboard of this product has; 0: its GPUs are single cards."""
    return next((size for name, size in _BASEBOARDS.items() if name.search(product)), 0)


class NvLinks(Fact, frozen=True):
    """The NVLinks of each GPU: how many are active, how many are not.

    Raw output, from nvidia-smi nvlink -s::

        GPU 3: Tesla V100-SXM2-32GB (UUID: GPU-5269b708-678a-b1a8-60f0-c90406537486)
             Link 0: 25.781 GB/s
             Link 3: <inactive>
    """

    probe = run("nvidia-smi nvlink -s", requires="nvidia-smi", timeout=30, inventory=GpuInventory)

    active: dict[int, int]
    """By GPU number; without those whose links could not be read."""
    inactive: dict[int, tuple[int, ...]]
    """Numbers of the links that are down, by GPU number; only GPUs that have such."""
    products: dict[int, str] = {}
    """By GPU number, such as ``NVIDIA A100-SXM4-80GB``."""
    rates: dict[int, float] = {}
    """Of the slowest active link of each GPU, in GB/s."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NvLinks:
        text = tool_text(answer)
        active: dict[int, int] = {}
        inactive: dict[int, list[int]] = {}
        products: dict[int, str] = {}
        rates: dict[int, float] = {}
        unread: dict[int, str] = {}
        gpu = -1
        for line in text.splitlines():
            if match := re.match(r"GPU ([0-9]{1,3}): ([^(]{0,80})", line):
                gpu = int(match[1])
                if gpu in active:
                    unread[gpu] = filled("its answer stands there twice")
                active[gpu] = 0
                products[gpu] = match[2].strip()
            elif gpu >= 0 and (match := re.match(r"\s+Link {1,4}[0-9]{1,3}: ([0-9]{1,6}(?:\.[0-9]{1,6})?) GB/s", line)):
                active[gpu] += 1
                rates[gpu] = min(float(match[1]), rates.get(gpu, math.inf))
            elif gpu >= 0 and (match := re.match(r"\s+Link {1,4}([0-9]{1,3}): <?inactive>?", line, re.I)):
                inactive.setdefault(gpu, []).append(int(match[1]))
            elif gpu >= 0 and (match := re.match(r"\s+Link {1,4}[0-9]{1,3}: .", line)):
                unread.setdefault(gpu, strip_control_chars(line.strip(), 80))
        is_any_dark = _is_any_dark(answer)
        if not active or not (any(active.values()) or inactive or unread or is_any_dark):
            raise Absent("nvidia-smi lists no NVLinks")
        listed = {gpu: count + len(inactive.get(gpu, ())) for gpu, count in active.items()}
        for gpu, most in _short_lists(listed, products, is_any_dark).items():
            unread.setdefault(gpu, filled("{0} of {1} NVLinks are listed", listed[gpu], most))
        up = {gpu: count for gpu, count in active.items() if gpu not in unread}
        down = {gpu: tuple(links) for gpu, links in inactive.items() if gpu not in unread}
        rates = {gpu: rate for gpu, rate in rates.items() if gpu in up}
        return cls(up, down, products, rates, unread={filled("GPU {0}", gpu): why for gpu, why in unread.items()})


def _is_any_dark(answer: ProbeAnswer) -> bool:
    """A card that can have links has none in use: without a bridge, or as all of them failed."""
    return "all links are inactive" in f"{answer[''].out}\n{answer[''].err}".lower()


def _short_lists(listed: dict[int, int], products: dict[int, str], is_any_dark: bool) -> dict[int, int]:
    """GPUs with fewer rows than others of their product, which has as many links, and how many these have."""
    most = {gpu: max(listed[other] for other in listed if products[other] == products[gpu]) for gpu in listed}
    return {gpu: most[gpu] for gpu, count in listed.items() if count < most[gpu] and (count or not is_any_dark)}


NVLINK_COUNTERS = {
    **dict.fromkeys(("Replay Errors", "CRC Errors", "CRC Flit Errors", "CRC Data Errors"), 100),
    "Recovery Errors": 1,
    "Malformed packet Errors": 1,
    "Buffer overrun Errors": 1,
    "Rx Errors": 1,
    "Rx remote Errors": 1,
    "Rx General Errors": 1,
    "Local link integrity Errors": 1,
    "Tx discards": 1,
    "Link recovery successful events": 1,
    "Link recovery failed events": 1,
    "Effective Errors": 1,
    "Symbol Errors": 1,
}
"""The counters of errors of NVLinks to the fourth generation, then of the fifth; so many of one link are too many. Of
the fifth generation the corrected ones are left out (``FEC Errors - 0``, raw errors and rates): sound links have them.
"""


class NvLinkErrors(Fact, frozen=True):
    """The error counters of each NVLink since the driver was loaded, or since they were set to zero.

    Raw output, from nvidia-smi nvlink -e::

        GPU 2: Tesla V100-SXM2-32GB (UUID: GPU-d9eeee97-c180-66de-23e0-d995387934dc)
             Link 0: Replay Errors: 148
             Link 0: Recovery Errors: 0
             Link 0: CRC Errors: 65535
    """

    probe = run("nvidia-smi nvlink -e", requires="nvidia-smi", timeout=30, inventory=GpuInventory)

    by_gpu: dict[int, dict[int, dict[str, int]]]
    """By GPU, link and name of the counter, such as ``CRC``: those of errors that the driver reports."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NvLinkErrors:
        by_gpu: dict[int, dict[int, dict[str, int]]] = {}
        unread, counters, products = dict[str, str](), dict[int, str](), dict[int, str]()
        for gpu, product, link, name, text in _counter_rows(tool_text(answer)):
            products[gpu] = product
            if name:
                counters.setdefault(gpu, name)
            if name not in (*NVLINK_COUNTERS, "NVLink"):
                continue
            try:
                count = reported_count(name, text)
            except Unreadable as why:
                unread[f"GPU {gpu}"] = str(why)
                continue
            links = by_gpu.setdefault(gpu, {})
            if count is not None:
                links.setdefault(link, {})[name.removesuffix(" Errors")] = count
        for gpu, links in by_gpu.items():
            names = {name for counts in links.values() for name in counts}
            if any(counts.keys() != names for counts in links.values()):
                unread.setdefault(f"GPU {gpu}", "a link lacks counters that others of the GPU have")
        listed = {gpu: sum(map(len, by_gpu.get(gpu, {}).values())) for gpu in products}
        for gpu, most in _short_lists(listed, products, _is_any_dark(answer)).items():
            unread.setdefault(f"GPU {gpu}", filled("{0} of {1} counters of NVLinks are listed", listed[gpu], most))
        for gpu in counters.keys() - by_gpu.keys():
            unread.setdefault(f"GPU {gpu}", filled("no counter of NVLink errors among those like {0}", counters[gpu]))
        if not any(by_gpu.values()) and not unread:
            raise Absent("nvidia-smi reports no error counters of NVLinks")
        return cls(by_gpu={gpu: links for gpu, links in by_gpu.items() if links}, unread=unread)


def _counter_rows(text: str) -> Iterator[tuple[int, str, int, str, str]]:
    """GPU and product, link, counter and value; of a GPU's heading no counter, of a row of another form ``NVLink``."""
    gpu, product = -1, ""
    for line in text.splitlines():
        if match := re.match(r"GPU ([0-9]{1,3}): ([^(]{0,80})", line):
            gpu, product = int(match[1]), match[2].strip()
            yield gpu, product, -1, "", ""
        elif match := re.match(r"\s+Link {1,4}([0-9]{1,3}): ([A-Z][^:\x00-\x1f]{2,60}): {0,20}(.{0,40})$", line):
            if gpu < 0:
                raise Unreadable("nvidia-smi reports NVLinks before the first GPU")
            yield gpu, product, int(match[1]), match[2], match[3].strip()
        elif gpu >= 0 and re.match(r"\s+Links?\b", line):
            yield gpu, product, -1, "NVLink", line


class GpuTopology(Fact, frozen=True):
    """How the GPUs, and the network adapters, of a host are connected.

    Raw output, from nvidia-smi topo -m::

                GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity
        GPU0     X      NV12    PXB     48-63           3
        GPU1    NV12     X      SYS     48-63           3
        NIC0    PXB     SYS      X
    """

    probe = run("nvidia-smi topo -m", requires="nvidia-smi", timeout=30)

    links: tuple[tuple[str, ...], ...]
    """One row for each device: its name, then its connection to each device in their order."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> GpuTopology:
        text = re.sub(r"\x1b\[[0-9;]*m", "", tool_text(answer))
        rows = [line.split() for line in text.splitlines()]
        header = next((row for row in rows if row and row[0] == "GPU0" and "X" not in row[1:2]), None)
        if header is None and re.search("not supported", text, re.I):
            raise Absent("nvidia-smi shows no topology")
        if header is None:
            raise Unreadable("nvidia-smi topo -m: no row of GPU0")
        devices = list(takewhile(lambda name: name not in ("CPU", "NUMA", "GPU"), header))
        links = [
            tuple(row[: len(devices) + 1])
            for row in rows
            if row and row[0] in devices and len(row) > len(devices) and "X" in row[1 : len(devices) + 1]
        ]
        if not links:
            raise Unreadable("nvidia-smi topo -m: no row that fits its header")
        cells = {(row[0], other): cell for row in links for other, cell in zip(devices, row[1:], strict=True)}
        reason = table_problem(cells, [row[0] for row in links], devices)
        return cls(links=tuple(links), unread={"nvidia-smi topo -m": reason} if reason else {})


_FABRIC = """echo "switches $(ls /proc/driver/nvidia-nvswitch/devices 2>/dev/null | wc -l)"
echo "init $(cat /proc/1/comm 2>/dev/null)"
grep -qsx nv-fabricmanage /proc/[0-9]*/comm && echo "process yes"
command -v nv-fabricmanager >/dev/null && echo "version $(nv-fabricmanager --version 2>&1 | head -1)"
systemctl show nvidia-fabricmanager -p LoadState -p ActiveState 2>/dev/null
exit 0"""


class FabricManager(Fact, frozen=True):
    """NVIDIA's fabric manager, which a host with NVSwitches needs.

    Raw output, from the host::

        switches 6
        init systemd
        process yes
        version Fabric Manager version is : 535.129.03
        LoadState=loaded
        ActiveState=active
    """

    probe = run(_FABRIC, requires="nvidia-smi", timeout=20)

    switches: int
    """NVSwitches that their driver lists."""
    version: str
    """Empty if it is not installed, or does not report its version."""
    is_installed: bool
    is_running: bool
    state: str
    """Of its service, as systemd has it; empty without systemd."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> FabricManager:
        text = answer.text()
        fields = dict(re.findall(r"^(switches|init|process|version|LoadState|ActiveState)[ =](.*)$", text, re.M))
        switches = fields.get("switches", "").strip()
        if not switches.isdecimal():
            raise Unreadable("fabric manager: no number of NVSwitches")
        require_no_complaint("nv-fabricmanager", text, r"^(?:LoadState|ActiveState)=")
        if int(switches) and fields.get("init") == "systemd" and not fields.keys() >= {"LoadState", "ActiveState"}:
            raise Unreadable("systemctl does not say how the fabric manager's service is")
        match = re.search(r"\b([0-9]{3,4}(?:\.[0-9]+)+)\b", fields.get("version", ""))
        running = "process" in fields or fields.get("ActiveState") == "active"
        if not running and fields.get("init", "") not in ("systemd", "init") and "version" not in fields:
            raise Absent("neither a fabric manager nor a service manager is seen, as in a container")
        return cls(
            switches=int(switches),
            version=match[1] if match else "",
            is_installed="version" in fields or fields.get("LoadState") == "loaded",
            is_running=running,
            state=fields.get("ActiveState", ""),
        )


MAX_NODES = 256
_NODE = re.compile(r"^Node #[0-9]{1,4}[ \t]+-[ \t]+([0-9A-Za-z.:_-]{1,64})[ \t]+-[ \t]+(\S{1,40}(?: \S{1,20})?)", re.M)
_STATE = re.compile(r"^Domain State:[ \t]*([A-Za-z_]{1,20})", re.M)


class ImexDomain(Fact, frozen=True):
    r"""The state of the IMEX domain as this host's service sees it, where the service runs.

    Raw output, from nvidia-imex-ctl::

        Nodes:
        Node #0   - 172.31.48.81    - READY                - Version: 570.172
        Node #1   - 172.31.48.98    - READY                - Version: 570.172

         Nodes From\To  0   1
               0        C   C
               1        C   C

        Domain State: UP
    """

    probe = run("nvidia-imex-ctl -N", requires="nvidia-imex-ctl", timeout=20, limit=1 << 18)

    state: str
    """UP, DEGRADED or DOWN."""
    nodes: dict[str, str]
    """By address: READY, or another state."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> ImexDomain:
        output = answer.get("")
        state = _STATE.search(output.out) if output is not None else None
        if output is not None and output.ended == "exited" and not output.cut and "Node" not in output.out:
            # A scheduler's prolog, or Kubernetes, starts the service for a job, and not before.
            raise Absent("the service nvidia-imex does not run, or has no domain")
        text = answer.text(codes=(0,) if state is None or state[1].upper() == "UP" else tuple(range(256)))
        if len(_STATE.findall(text)) != 1 or state is None:
            raise Unreadable("nvidia-imex-ctl: no state of the domain")
        require_no_complaint("nvidia-imex-ctl", f"{text}\n{answer[''].err}", r"^[A-Z] - ")
        nodes = {match[1]: match[2].strip() for match in _NODE.finditer(text)}
        return cls(state=state[1].upper(), nodes=dict(list(nodes.items())[:MAX_NODES]))
