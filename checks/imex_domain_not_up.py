from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.nvlink import ImexDomain


@check(severity=WARNING, area="links")
def imex_domain_not_up(domain: ImexDomain) -> Iterator[Finding]:
    """Every IMEX domain that has a host as a member is up.

    ## Why it matters
    The hosts of one NVLink domain (GB200, GB300) reach each other's GPU memory by the service nvidia-imex. Where a
    member is missing, NCCL fails when it maps the memory of that host, or falls back to the network.

    ## What to do
    On {host}: `nvidia-imex-ctl -N` shows who reaches whom, `journalctl -u nvidia-imex` and /var/log/nvidia-imex.log
    why. All members need the same /etc/nvidia-imex/nodes_config.cfg in the same order, the same version, and port 50000
    open between them. The file is read only when the service starts: `systemctl restart nvidia-imex` on all of them.

    ## Source
    `nvidia-imex-ctl -N` (NVIDIA IMEX Service Guide): Domain State UP, DEGRADED or DOWN. A host on which the service
    does not run is left out: schedulers and the DRA driver of Kubernetes start it with the job (NVIDIA/DCGM issue 308).
    """
    if domain.state != "UP":
        away = [address for address, state in domain.nodes.items() if state != "READY"]
        yield Finding(
            "the IMEX domain of {total} hosts is {observed}; expected {expected}",
            observed=domain.state,
            expected="UP",
            total=len(domain.nodes),
            away=away,
        )
