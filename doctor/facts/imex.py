"""NVIDIA's IMEX service, by which the hosts of one NVLink domain (GB200, GB300) use each other's GPU memory."""

from __future__ import annotations

import re

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, run
from doctor.facts.reported_value import require_no_complaint

MAX_NODES = 256
_NODE = re.compile(r"^Node #[0-9]{1,4}[ \t]+-[ \t]+([0-9A-Za-z.:_-]{1,64})[ \t]+-[ \t]+(\S{1,40}(?: \S{1,20})?)", re.M)
_STATE = re.compile(r"^Domain State:[ \t]*([A-Za-z_]{1,20})", re.M)


class ImexDomain(Fact, frozen=True):
    r"""The state of the IMEX domain as this host's service sees it, where the service runs.

    Raw output, from nvidia-imex-ctl::

        Nodes:
        Node #0   - 172.31.48.81    - READY                - Version: 570.172
        Node #1   - 172.31.48.98    - READY                - Version: 570.172

         Nodes From\To  0   1
               0        C   C
               1        C   C

        Domain State: UP
    """

    probe = run("nvidia-imex-ctl -N", requires="nvidia-imex-ctl", timeout=20, limit=1 << 18)

    state: str
    """UP, DEGRADED or DOWN."""
    nodes: dict[str, str]
    """By address: READY, or another state."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> ImexDomain:
        output = answer.get("")
        state = _STATE.search(output.out) if output is not None else None
        if output is not None and output.ended == "exited" and not output.cut and "Node" not in output.out:
            # A scheduler's prolog, or Kubernetes, starts the service for a job, and not before.
            raise Absent("the service nvidia-imex does not run, or has no domain")
        text = answer.text(codes=(0,) if state is None or state[1].upper() == "UP" else tuple(range(256)))
        if len(_STATE.findall(text)) != 1 or state is None:
            raise Unreadable("nvidia-imex-ctl: no state of the domain")
        require_no_complaint("nvidia-imex-ctl", f"{text}\n{answer[''].err}", r"^[A-Z] - ")
        nodes = {match[1]: match[2].strip() for match in _NODE.finditer(text)}
        return cls(state=state[1].upper(), nodes=dict(list(nodes.items())[:MAX_NODES]))
