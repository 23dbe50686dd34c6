from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.engine.addresses import means_own_host
from doctor.facts.gpu import GpuCards
from doctor.facts.interfaces import Interfaces
from doctor.facts.master_address import host_of_master
from doctor.facts.names import HostNames
from doctor.facts.npu import NpuInventory
from doctor.facts.socket_peers import fleet_sockets
from doctor.job import LaunchConfig

LOCALHOST = "127.0.0.1"


@check(severity=ERROR, area="connectivity")
def loopback_down(
    interfaces: PerHost[Interfaces],
    names: PerHost[HostNames] | None,
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    r"""The loopback interface lo is up, by which programs of one host reach each other, and has the address they use.

    ## Why it matters
    The kernel sends what goes to an address of the host itself through lo, whichever interface has the address. While
    lo is down nothing answers there: ranks of one host do not connect to each other, nor does rank 0 to its own store.
    Other hosts reach the host, so that it looks healthy, and the job waits at its start until a timeout.

    ## What to do
    As root on {host}: `{command}`. `grep -rnsE '\blo\b' /etc/network /etc/systemd/network
    /etc/sysconfig/network-scripts` prints the files that may change it at boot.

    ## In a container
    The container of {host} has a lo of its own: `{command}` in its network namespace, as root of the
    machine: `nsenter --net --target PID`. Or start it again with the machine's network, `docker run --network host`.

    ## Source
    ip-link(8); the routes are those of `ip route show table local`. Measured with PyTorch 2.13 and Gloo on three hosts:
    with lo down on one of them two ranks on each do not meet, and neither does one rank on each where that host is
    MASTER_ADDR. One rank on a host that is not the master needs no lo, and is not judged; where the number of ranks is
    not known, it is a warning.
    """
    fleet = fleet_sockets(interfaces, names or {}, launch, npus, gpus)
    master = host_of_master(list(interfaces), names or {}, interfaces, launch)
    is_meeting_here = launch.is_on_one_host or means_own_host(launch.master_addr or "-")
    for host, own in interfaces.items():
        ranks, is_master = fleet.ranks_on(host), host == master
        alone = "several ranks on this host do not reach each other, nor does rank 0 reach its own store"
        among = filled("the {0} ranks of this host do not reach each other", ranks) if ranks > 1 else alone
        for link in own.links if ranks != 1 or master in ("", host) else ():
            if not link.is_loopback:
                continue
            if link.is_up:
                if is_meeting_here and not any(means_own_host(one.address) for one in own.addresses):
                    yield Finding(
                        "interface {interface} has no address, and the ranks meet at {address}",
                        hosts=[host],
                        interface=link.name,
                        address=launch.master_addr or LOCALHOST,
                        command=f"ip address add {LOCALHOST}/8 dev {link.name}",
                        observed="none",
                        expected=LOCALHOST,
                    )
                continue
            yield Finding(
                "interface {interface} is down: {consequence}",
                hosts=[host],
                interface=link.name,
                command=f"ip link set {link.name} up",
                consequence="rank 0 does not reach its own store" if is_master else among,
                observed="down",
                expected="up",
            ).as_warning(ranks < 2 and not is_master)
