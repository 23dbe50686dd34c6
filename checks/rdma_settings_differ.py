import shlex
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.rdma import RdmaPorts

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="links", single_host=ONE_HOST)
def rdma_settings_differ(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    """All hosts have the same MTU and quality of service on their RoCE ports.

    ## Why it matters
    - Quality of service: RoCE loses packets where one host marks its traffic with another class, or does not react to
      congestion. Its packets land in a queue that is not protected, and the others slow down for it.
    - MTU: a host whose MTU is larger than that of the others loses its large messages, and no small ones.

    ## What to do
    On {host}: `{command}`. Put the same where the host sets it at each start.

    ## Source
    /sys/class/net/NAME/mtu, qos/trust and ecn/*/enable, and /sys/class/infiniband/NAME/tc/1/traffic_class (NVIDIA
    MLNX_OFED, Quality of Service and Explicit Congestion Notification). What a driver does not show is not compared.
    """
    for name in sorted({name for own in adapters.values() for name in own.ports}):
        ports = {
            host: own.ports[name]
            for host, own in adapters.items()
            if name in own.ports and own.ports[name].is_active and own.ports[name].layer == "Ethernet"
        }
        values = {host: {"MTU": port.mtu, **port.quality} for host, port in ports.items()}
        for setting in sorted({key for own_values in values.values() for key in own_values}):
            found = {host: own_values[setting] for host, own_values in values.items() if own_values.get(setting)}
            if len(found) > 1:
                template = "{setting} of {port} is {observed}; {count} of {total} hosts have {expected}"
                for finding in differing(found, template, setting=setting, port=name):
                    expected = str(finding.values.get("expected", "<value>"))
                    interface = ports[finding.hosts[0]].interface
                    finding.values["case"] = "MTU" if setting == "MTU" else "Quality of service"
                    finding.values["command"] = _command(setting, name.partition(":")[0], interface, expected)
                    yield finding


def _command(setting: str, adapter: str, interface: str, value: str) -> str:
    """What gives a port the value of a setting; ``<value>`` where no value has a majority."""
    adapter, interface = shlex.quote(adapter), shlex.quote(interface)
    word = value if value == "<value>" else shlex.quote(value.rpartition("tclass=")[2])
    if setting == "MTU":
        return f"ip link set dev {interface} mtu {word}"
    if setting == "trust":
        return f"mlnx_qos -i {interface} --trust {word}"
    if setting == "traffic class":
        return f"echo {word} > /sys/class/infiniband/{adapter}/tc/1/traffic_class; cma_roce_tos -d {adapter} -t {word}"
    folder = f"/sys/class/net/{interface}/ecn/{setting.rpartition(' ')[2]}/enable"
    digits = " ".join(value) if value.isdecimal() else "<value>"
    return f"p=0; for on in {digits}; do echo $on > {folder}/$p; p=$((p+1)); done"
