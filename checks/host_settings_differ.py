from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, joined
from doctor.analysis.majority import differing
from doctor.facts.host_settings import HostSettings

NAMES = {
    "kernel": "the kernel",
    "governor": "the CPU frequency governor",
    "huge_pages": "transparent huge pages",
    "reserved_huge_pages": "vm.nr_hugepages",
    "numa_balancing": "kernel.numa_balancing",
    "numa_nodes": "the number of NUMA nodes",
    "clock_source": "the clock source",
    "swap": "swap",
    "command_line": "tuning words of the kernel's command line",
}
CAUSES = {
    "clock-source-slow": ("setting",),
    "cpu-governor-slow": ("setting",),
    "numa-balancing-on": ("setting",),
}
ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="kernel", single_host=ONE_HOST, follows_from=CAUSES)
def host_settings_differ(settings: PerHost[HostSettings]) -> Iterator[Finding]:
    """All hosts have the same kernel, and the same settings of it that change performance.

    ## Why it matters
    A host that differs is often the slow one, and what fails on it alone is hard to trace. Every rank waits for the
    slowest host.

    ## What to do
    On {host}, set {setting} as on the other hosts.
    - the kernel: install the package of kernel {expected}, then `reboot`.
    - the CPU frequency governor: `cpupower frequency-set -g {expected}`; for every start `tuned-adm profile
      throughput-performance`.
    - transparent huge pages: `echo {expected} > /sys/kernel/mm/transparent_hugepage/enabled`; for every start `echo 'w
      /sys/kernel/mm/transparent_hugepage/enabled - - - - {expected}' > /etc/tmpfiles.d/transparent-hugepage.conf`.
    - vm.nr_hugepages: `sysctl -w vm.nr_hugepages={expected}`; for every start `echo "vm.nr_hugepages = {expected}" >>
      /etc/sysctl.d/99-zz-cluster.conf`.
    - kernel.numa_balancing: `sysctl -w kernel.numa_balancing={expected}`; for every start `echo "kernel.numa_balancing
      = {expected}" >> /etc/sysctl.d/99-zz-cluster.conf`.
    - the number of NUMA nodes: the firmware's setting "NUMA nodes per socket".
    - the clock source: `dmesg | grep -iE 'tsc|clocksource'` has the reason why the kernel chose another one.
    - swap: `swapon --show` lists it; `swapoff -a && sed -i.bak -E '/[[:space:]]swap[[:space:]]/s/^/#/' /etc/fstab`
      turns it off, for every start too.
    - tuning words of the kernel's command line: GRUB_CMDLINE_LINUX in /etc/default/grub, `update-grub`, then `reboot`.

    ## Source
    The hosts are compared with each other; the majority is the norm. Of the kernel's command line only words that tune
    it are compared, such as iommu, isolcpus and mitigations.
    """
    if len(settings) < 2:
        raise Skip(ONE_HOST)
    for setting, name in NAMES.items():
        values = {host: _value(own, setting) for host, own in settings.items()}
        shown = {host: value for host, value in values.items() if value}
        if len(shown) > 1:
            yield from differing(
                shown, "{setting}: {observed}; {count} of {total} hosts have {expected}", setting=name, case=name
            )


def _value(settings: HostSettings, name: str) -> str:
    """A setting as text; empty where the host does not show it."""
    if name == "governor":
        return joined(" and ", settings.governors)
    if name == "swap":
        return "on" if settings.swap_devices else "off"
    if name == "command_line":
        return " ".join(settings.command_line) or "none"
    value = getattr(settings, name)
    return "" if value is None or value == "" or (name == "numa_nodes" and not value) else str(value)
