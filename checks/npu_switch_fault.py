from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.npu_fabric import NpuSwitchFaults, switch_fault_level
from doctor.facts.npu_health import STOPS


@check(severity=ERROR, area="devices")
def npu_switch_fault(switch: NpuSwitchFaults) -> Iterator[Finding]:
    """The L1 switch between the host's NPUs has no fault.

    ## Why it matters
    In an A3 or A5 server all NPUs reach each other, and the super pod, over this switch. With a link of it down
    collectives hang or are slow, and every NPU reports that it is healthy.

    ## What to do
    Take {host} out of the job, and have the vendor repair its L1 switch{where}: fault code {code}. The line is in the
    log: `grep -a switch /var/log/mindx-dl/devicePlugin/devicePlugin.log`.

    ## Source
    The log of MindCluster's device plugin (deviceswitch/ascend_switch.go), whose faults count until the same fault is
    reported gone, a later query does not list it, or the host is started again. What a code means is by
    SwitchFaultCode.json of github.com/Ascend/mind-cluster: Separate takes the host out, SubHealth and RestartRequest
    are a warning, NotHandle is none. A code that the file does not have makes the check unknown. Where that plugin does
    not run, nothing on the host shows these faults.
    """
    unlisted = []
    for fault in switch.faults:
        level = switch_fault_level(fault.code)
        if level == "unlisted":
            unlisted.append(fault.code)
        elif level != "none":
            place = (
                filled("chip {0}, port {1}", fault.chip, fault.port)
                if fault.port
                else fault.chip and filled("chip {0}", fault.chip)
            )
            yield Finding(
                "the L1 switch has fault {code}{where}; the vendor's level is {observed}",
                code=fault.code,
                where=filled(" ({0})", place) if place else "",
                chip=fault.chip,
                port=fault.port,
                observed=level,
            ).as_warning(level not in STOPS)
    if unlisted:
        raise Unreadable(filled("fault codes of the switch that the vendor's list does not have: {0}", unlisted[0]))
