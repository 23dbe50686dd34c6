from collections.abc import Iterator

from doctor import WARNING, Finding, ago_text, check
from doctor.facts.bmc_events import BmcEvents


@check(severity=WARNING, area="devices")
def bmc_fault_logged(log: BmcEvents) -> Iterator[Finding]:
    """The management controller has logged no fault of a part since the host was started.

    ## Why it matters
    It sees what the operating system does not: a power supply that is gone, a fan that stands still. It also sees a
    temperature beyond its limit, and a memory module that ended the host. Such a host is slowed down, or dies in a job.

    ## What to do
    On {host}: `ipmitool sel elist last 50` shows what was before and after it, `ipmitool sdr elist` the present state.
    Take the host out of the job; have {sensor} examined, and replaced where it fails. Then `ipmitool sel clear`.

    ## Source
    `ipmitool sel elist`: events of IPMI 2.0, tables 42-1 to 42-3, as include/ipmitool/ipmi_sel.h of
    github.com/ipmitool/ipmitool names them. Counted are those since the host was started, and in the half hour before.
    An event that was taken back (Deasserted, Fully Redundant) is left out, and so are those of errors that were
    corrected, up to the controller's limit. It is left out where the host has no such controller, or an ordinary user
    may not ask it.
    """
    for event in log.events:
        yield Finding(
            "the management controller logged {meaning}, {count} times, last {age}: {sensor}: {observed}",
            meaning=event.meaning,
            count=event.count,
            age=ago_text(event.age),
            sensor=event.sensor,
            observed=event.event,
        )
