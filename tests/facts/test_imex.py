"""What nvidia-imex-ctl prints on real racks, with the public file that shows it."""

from __future__ import annotations

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.nvlink import ImexDomain
from tests.facts.answers import read_outputs

LEGEND = (
    "Connectivity Table Legend:\nI - Invalid - Node wasn't reachable, no connection status available\n"
    "N - Never Connected\nC - Connected - Ready for operation\n\n"
)
# 57946688978 (AWS ParallelCluster, 18 hosts of p6e-gb200, shortened to three)
UP = (
    LEGEND + "5/12/2025 06:08:10.580\nNodes:\n"
    "Node #0   - 172.31.48.81    - READY                - Version: 570.172\n"
    "Node #1   - 172.31.48.98    - READY                - Version: 570.172\n"
    "Node #2   - 172.31.48.221   - READY                - Version: 570.172\n\n"
    " Nodes From\\To  0   1   2\n       0        C   C   C\n       1        C   C   C\n       2        C   C   C\n\n"
    "Domain State: UP\n"
)
# 21266232491 (the DRA driver of Kubernetes, 570.00): without versions
SINGLE = (
    LEGEND + "3/25/2025 10:39:43.659\nNodes:\nNode #0   - 10.136.206.48   - READY\n\n Nodes From\\To  0\n"
    "       0        C\nDomain State: UP\n"
)


def test_real_domains() -> None:
    assert read_outputs(ImexDomain, one=Output(out=UP)) == ImexDomain(
        state="UP", nodes=dict.fromkeys(("172.31.48.81", "172.31.48.98", "172.31.48.221"), "READY")
    )
    assert read_outputs(ImexDomain, one=Output(out=SINGLE)) == ImexDomain(state="UP", nodes={"10.136.206.48": "READY"})


def test_another_state_is_kept_with_whom_it_is_about() -> None:
    """The words are those of the service's guide; no public output of a degraded domain was found."""
    text = UP.replace("172.31.48.98    - READY", "172.31.48.98    - UNAVAILABLE").replace(
        "State: UP", "State: DEGRADED"
    )
    value = read_outputs(ImexDomain, one=Output(out=text, code=1))
    assert (value.state, value.nodes["172.31.48.98"]) == ("DEGRADED", "UNAVAILABLE")


def test_a_host_without_the_service_has_no_domain() -> None:
    for output in (Output(out="", err="Failed to connect", code=1), Output(ended="absent")):
        why = read_outputs(ImexDomain, one=output)
        assert isinstance(why, Absent) and not isinstance(why, Unreadable)
    assert isinstance(read_outputs(ImexDomain, one=Output(ended="timeout", seconds=20)), Unreadable)
