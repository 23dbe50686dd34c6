from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.container import JobContainer
from doctor.facts.ports import Listeners

PROXIES = (
    ("Istio", (15001, 15006), 'sidecar.istio.io/inject: "false"'),
    ("Linkerd", (4140, 4143), "linkerd.io/inject: disabled"),
)
"""A mesh, the ports on which its proxy takes outgoing and incoming connections, and what keeps it out of a pod."""


@check(severity=WARNING, area="connectivity")
def mesh_proxy_intercepts(container: JobContainer, listeners: Listeners) -> Iterator[Finding]:
    """No proxy of a service mesh takes the connections of the job's pod.

    ## Why it matters
    A sidecar redirects every TCP connection of its pod to itself. It accepts connections before the other side listens,
    waits for the client's first bytes, and reaches no pod by ports that no service names. Then init_process_group hangs
    or ends with "recvValue failed ... got 0 bytes" or "Connection closed by peer", while every port looks open. The pod
    does not complete either, since its proxy goes on.

    ## What to do
    In the template of the job's pods: the label or annotation `{setting}`; pods have it from their start only.

    ## Source
    Istio, Application Requirements, "Ports used by Istio" (15001 outbound, 15006 inbound); Linkerd, linkerd2-proxy's
    log lines "Inbound interface on 0.0.0.0:4143", "Outbound interface on 127.0.0.1:4140". Kubeflow trainer, issues
    1636, 1637 and 2794, and PyTorch, issue 81704: jobs that hang, and the label that helps. Both ports are to listen in
    a container with a network of its own; programs of a job that take both ports themselves would be accused wrongly,
    and a mesh without sidecars (Istio's ambient mode) is not seen.
    """
    if not container.engine:
        raise Skip("the job does not run in a container")
    if not container.has_own_network:
        raise Skip("the job's container has the network of its host")
    for mesh, ports, setting in PROXIES:
        if all(any(socket.listening for socket in listeners.on_port(port)) for port in ports):
            yield Finding(
                "the proxy of {mesh} takes all TCP connections of this pod: it listens on ports {ports}",
                mesh=mesh,
                ports=list(ports),
                setting=setting,
                observed=mesh,
                expected="no proxy",
            )
