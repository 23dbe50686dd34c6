from collections.abc import Iterator
from ipaddress import ip_address

from doctor import WARNING, Finding, Skip, check
from doctor.facts.container import JobContainer
from doctor.facts.network import HostAddresses
from doctor.facts.pod_networks import PodNetworks


@check(severity=WARNING, area="connectivity")
def pod_network_missing(networks: PodNetworks, addresses: HostAddresses, container: JobContainer) -> Iterator[Finding]:
    """Every network that the pod requests is attached, with its interface and its addresses.

    ## Why it matters
    The fast network of a pod is a second one, which Multus attaches: where it is not there, the pod may start all the
    same, with eth0 alone. Collectives then take the cluster's own network, or fail where NCCL_SOCKET_IFNAME or
    HCCL_SOCKET_IFNAME names the interface.

    ## What to do
    `kubectl delete pod {host}`: its Job or StatefulSet starts it again, and a pod gets its networks at its start only.
    Where the new pod lacks the network as well: `kubectl get net-attach-def -A` shows whether it exists, `kubectl -n
    kube-system get pods -o wide | grep multus` whether Multus runs on the pod's node, and `kubectl describe pod {host}`
    the events of Multus.

    ## Source
    Kubernetes Network Custom Resource Definition De-facto Standard: `k8s.v1.cni.cncf.io/networks` requests networks,
    `k8s.v1.cni.cncf.io/network-status` says which were attached. The annotations are known over
    `--transport kubernetes`, and in pods that mount them at /etc/podnetinfo, as network-resources-injector does. An
    interface that a program of the pod has renamed or taken down is called missing wrongly; one with a device of its
    own (`device-info`), which may be no interface of the kernel, is not judged.
    """
    if not networks.attached and container.engine and not container.has_own_network:
        raise Skip("the job's container has the network of its host")
    names = {network.name.rpartition("/")[2] for network in networks.attached}
    for name in networks.requested:
        if name not in names:
            yield Finding("the pod requests the network {network}, and it was not attached", network=name)
    observed = {
        interface: {ip_address(item.address) for item in addresses.interfaces if item.interface == interface}
        for interface in networks.links
    }
    for network in networks.attached:
        if network.may_lack_interface:
            continue
        if network.interface not in observed:
            yield Finding(
                "the network {network} was attached as {interface}, and there is no such interface",
                network=network.name,
                interface=network.interface,
            )
            continue
        absent = [address for address in network.ips or () if ip_address(address) not in observed[network.interface]]
        if absent:
            yield Finding(
                "{interface}, of the network {network}, lacks its address {addresses}",
                network=network.name,
                interface=network.interface,
                addresses=absent,
            )
