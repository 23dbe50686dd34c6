from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.hccn.traffic import TlsSwitches

CAUSES = {"tls-switch-differs": ("npu",)}


@check(severity=ERROR, area="links", follows_from=CAUSES)
def tls_certificate_expired(switches: TlsSwitches) -> Iterator[Finding]:
    """No NPU with TLS on has an expired certificate.

    ## Why it matters
    With TLS on, an expired certificate ends the handshake: the NPU connects to no other, and HCCL times out.

    ## What to do
    On {host}, as root: turn TLS off where the other NPUs have it off, `hccn_tool -i {npu} -tls -s enable 0`; else
    install new certificates on NPU {npu}.

    ## Source
    `hccn_tool -tls -g` of newer drivers shows `tls expiration status[2]`, has expired; older ones do not report it.
    """
    for npu in switches.expired:
        if switches.by_npu[npu]:
            yield Finding(
                "NPU {npu} has TLS on, but its certificate has expired", npu=npu, expected="a valid certificate"
            )
