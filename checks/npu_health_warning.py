from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.npu_health import REMEDIES, NpuHealth


@check(severity=WARNING, area="devices")
def npu_health_warning(health: NpuHealth) -> Iterator[Finding]:
    """No NPU reports a fault code that asks for an action.

    ## Why it matters
    A code with which the NPU continues to work is the first sign of one with which it does not. Some codes stand for an
    NPU that works slower than its peers, which slows the whole synchronous job.

    ## What to do
    Read the text of the code on {host}: `npu-smi info -t health -i {card} -c {chip}`. Note it, and compare after
    the next restart; report a code that returns to the vendor. For the vendor: `npu-smi info -t board -i {card}`
    and `cat /sys/class/dmi/id/product_serial`.

    ## Source
    `npu-smi info -t health` (npu_info_print.c of github.com/hicann/driver). The codes with which the vendor's scheduler
    lets jobs start are the levels RestartRequest, RestartBusiness and SubHealth of faultCode.json of
    github.com/Ascend/mind-cluster; those of the level NotHandle are no finding, and npu-unhealthy reports all others.
    """
    for report in health.chips:
        if report.verdict != "warning":
            continue
        worst = max(report.levels, key=list(REMEDIES).index)
        yield Finding(
            "NPU card {card} chip {chip} reports fault {observed} ({text}): {remedy}; expected {expected}",
            card=report.npu,
            chip=report.chip,
            health=report.health,
            text=report.text or "no text",
            remedy=REMEDIES[worst],
            observed=list(report.codes[:8]),
            expected="no code",
        )
    if health.refused:
        card, said = min(health.refused.items())
        raise Unreadable(filled("NPU card {0}: {1}", card, said), "npu-unhealthy")
