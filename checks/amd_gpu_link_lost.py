from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from doctor import WARNING, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.amd_smi import AmdGpus

FEWEST = 4
"""Hosts with fewer GPUs are not judged: their bridges may connect two GPUs each."""


@check(severity=WARNING, area="links")
def amd_gpu_link_lost(amd: AmdGpus) -> Iterator[Finding]:
    """Every AMD GPU reaches its peers over XGMI where the others do.

    ## Why it matters
    Without its XGMI link RCCL sends to a GPU over PCIe: collectives are several times slower on that host, and the job
    is as slow as that host. Where two GPUs cannot access each other at all, RCCL copies through the host's memory.

    ## What to do
    On {host}: `amd-smi topology`, `amd-smi xgmi`, `dmesg | grep -i xgmi`. Restart the host with a power cycle
    (`ipmitool chassis power cycle`); if the link stays away, have the GPU or its baseboard replaced.

    ## Source
    `link_type` and `link_status` of `amd-smi topology --json` (amd-smi's change log, ROCm 6.3; its program prints
    DISABLED where amdsmi_is_P2P_accessible fails). Judged is a host of four GPUs or more on which no more links are
    missing than one GPU has: all reach all on MI300X and MI250X. Hosts with bridges, or without XGMI, have no finding.
    """
    kinds = {(gpu.index, peer): (kind, state) for gpu in amd.gpus for peer, kind, state in gpu.links}
    gpus = sorted({gpu for gpu, _ in kinds})
    if len(gpus) < FEWEST:
        raise Skip(filled("{0} shows no links among four GPUs", amd.tool))
    pairs = [pair for pair in combinations(gpus, 2) if pair in kinds]
    xgmi = [pair for pair in pairs if kinds[pair][0] == "XGMI"]
    is_meshed = len(xgmi) >= (len(gpus) - 1) * (len(gpus) - 2) // 2  # those of all GPUs but one are there
    lost = [pair for pair in pairs if pair not in xgmi] if is_meshed else []
    barred = [pair for pair in xgmi if "DISABLED" in (kinds[pair][1], kinds.get(pair[::-1], ("", ""))[1])]
    for template, faulty, observed, expected in (
        ("AMD GPU {gpu} has no XGMI link to GPU {peers}; the others reach each other over XGMI", lost, "PCIE", "XGMI"),
        ("AMD GPU {gpu} cannot access GPU {peers} over their XGMI link", barred, "DISABLED", "ENABLED"),
    ):
        for gpu, peers in _by_common_gpu(faulty):
            yield Finding(template, gpu=gpu, peers=peers, observed=observed, expected=expected)
    states = ("ENABLED", "DISABLED") if any(state for _, state in kinds.values()) else ("",)
    shown = {pair: [kinds[way][1] for way in (pair, pair[::-1]) if way in kinds] for pair in combinations(gpus, 2)}
    untold = [pair for pair, ways in shown.items() if not ways or not {*ways} <= {*states}]
    if is_meshed and untold:
        gpu, peer = untold[0]
        raise Unreadable(filled("{0}: no link type and status of GPU {1} to GPU {2}", amd.tool, gpu, peer))


def _by_common_gpu(pairs: list[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Pairs as few GPUs, each with its peers: that which most pairs have in common, then that of most of the rest."""
    while pairs:
        counts = Counter(gpu for pair in pairs for gpu in pair)
        gpu = max(sorted(counts), key=counts.__getitem__)
        yield gpu, sorted(sum(pair) - gpu for pair in pairs if gpu in pair)
        pairs = [pair for pair in pairs if gpu not in pair]
