from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.engine.fact import Unreadable
from doctor.facts.container import HostContainer
from doctor.facts.interfaces import Interfaces
from doctor.facts.slurm import SlurmDaemon
from doctor.job import LaunchConfig


@check(severity=ERROR, area="connectivity")
def slurmd_not_running(
    daemon: SlurmDaemon, launch: LaunchConfig, place: HostContainer | None, interfaces: Interfaces | None
) -> Iterator[Finding]:
    """In a job of Slurm, slurmd runs on every node and takes connections.

    ## Why it matters
    srun starts the ranks of a host through its slurmd. SSH works without it, so that the host looks healthy, and the
    job ends with "Task launch failed: Communication connection failure", or waits for minutes.

    ## What to do
    On {host}: `systemctl restart slurmd`; the processes of jobs there are not touched. Where it ends again, `journalctl
    -u slurmd -n 50` says why, and `scontrol update NodeName={host} State=DRAIN Reason=slurmd` keeps new jobs off the
    host until it is repaired; `scontrol update NodeName={host} State=RESUME` takes it in again.

    ## Source
    slurm.conf(5): SlurmdPort, SlurmdSpoolDir; slurmd(8): a restart leaves running jobs alone. Measured with Slurm
    22.05: a killed slurmd, and one that is stopped, whose port the kernel goes on answering. A host is judged where
    slurm.conf is in its usual place or named by SLURM_CONF, and slurmd runs or has left its spool folder.
    """
    if "SLURM_JOB_ID" not in launch.env:
        raise Skip("not in a job of Slurm")
    if place and place.engine and not daemon.states:
        raise Skip("a container does not show the processes of its host")
    stopped = [state for state in daemon.states if state in "TtZX"]
    if not daemon.states:
        yield Finding("no slurmd runs; expected one that takes connections on port {port}", port=daemon.port)
    elif len(stopped) == len(daemon.states):
        yield Finding("slurmd is stopped (state {state}): it answers no request", state=stopped[0], port=daemon.port)
    elif daemon.port and not daemon.answers:
        if interfaces and any(link.is_loopback and not link.is_up for link in interfaces.links):
            raise Unreadable("lo is down, and no program of this host reaches another: `ip link set lo up`")
        yield Finding("slurmd runs, and its port {port} takes no connections", port=daemon.port)
