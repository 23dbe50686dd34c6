import re
from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.facts.nvlink import NvLinks
from doctor.facts.vendor_tests import DcgmHealth

ADVISORY = ("links",)
LINK_DOWN = re.compile(r"NVLINK system: GPU [0-9]{1,3}'s NvLink link [0-9]{1,3} is currently down\b.*", re.IGNORECASE)
IMEX = re.compile(r"[\w ]{1,40}: (?:GPU [0-9]{1,3}'s )?IMEX daemon status is .*")
"""Of a whole incident: another one of the same system is none of these."""
SHOWN = 8


@check(severity=WARNING, area="devices", advisory=ADVISORY)
def dcgm_unhealthy(health: DcgmHealth, links: NvLinks | None) -> Iterator[Finding]:
    """DCGM's health watches report no problem.

    ## Why it matters
    NVIDIA's data centre GPU manager watches PCIe replays, memory, temperature, power and NVLinks over time;
    nvidia-smi shows only the present state.

    ## What to do
    On {host}: `dcgmi health -g 0 -c`, then `dcgmi diag -r 2` while no job runs. PCIe
    replays: reseat the card, and check its riser and slot. Where the diagnosis fails as well, have the card replaced.

    ## Source
    NVIDIA DCGM, `dcgmi health -c -j` (dcgmi/Health.cpp of github.com/NVIDIA/DCGM). It is left out where the host engine
    does not run, or no watch is on. NVLinks that are down on a PCIe card that has none in use are left out: DCGM
    reports them where no bridge is (NVSentinel pull request 1481). An IMEX daemon that does not run is left out: single
    hosts need none, and on racks it is started with the job (NVSentinel issue 1471, DCGM issue 308);
    `imex-domain-not-up` asks it.
    """
    if health.overall == "Healthy":
        return
    by_device: dict[str, list[str]] = {}
    bare = _without_links(links) if links else set()
    problems = [
        problem
        for problem in health.problems
        if not IMEX.fullmatch(problem[2]) and not (problem[0] in bare and LINK_DOWN.fullmatch(problem[2]))
    ]
    if health.problems and not problems:
        return
    for device, _, words in problems:
        by_device.setdefault(device, []).append(words)
    for device, reports in by_device.items():
        more = [filled("{0} more", len(reports) - SHOWN)] if len(reports) > SHOWN else []
        yield Finding("DCGM: {device}: {observed}", device=device, observed=[*reports[:SHOWN], *more])
    if not by_device:
        yield Finding(
            "DCGM: overall health is {observed}; expected {expected}", observed=health.overall, expected="Healthy"
        )


def _without_links(links: NvLinks) -> set[str]:
    """PCIe cards that have no link in use."""
    return {f"GPU {gpu}" for gpu, count in links.active.items() if not count and "PCIe" in links.products.get(gpu, "")}
