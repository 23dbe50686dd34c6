"""Rule "named by the scheduler": the state in which a scheduler says that the job ended."""

from __future__ import annotations

from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import Cause, Confidence, Culprit, first_evidence
from doctor.diagnose.events import Event
from doctor.diagnose.signature import ERROR_ROLES
from doctor.engine.texts import filled
from doctor.hosts.nodeset import InventoryError, expand_nodeset

RULE = "named by the scheduler"
_MAX_NAMED = 16
"""Hosts of one step above which a state that one of them caused names none."""


def named_by_scheduler(case: Case) -> list[Cause]:
    """A job that ran out of memory, or lost a node; with the host, where the scheduler shows which."""
    causes = []
    memory = _reports(case, "slurm-job-out-of-memory")
    if memory:
        hosts = sorted({host for event in memory for host in _only_host(event)})
        culprits = tuple(Culprit(host=host) for host in hosts)
        where = filled("on host {0}", ", ".join(hosts[:4])) if hosts else "on a host that it does not name"
        summary = filled("Slurm ended the job for memory {0}", where)
        causes.append(Cause("slurm-job-out-of-memory", RULE, "certain", culprits, summary, first_evidence(memory)))
    failed = _reports(case, "slurm-job-node-failed")
    if failed:
        down = _reports(case, "slurm-node-down")
        hosts = sorted({event.values.get("culprit_host", "") for event in down} - {""})
        confidence: Confidence = "certain"
        only = only_node(case)
        if only:
            hosts = [only]
            summary = filled("Slurm lost host {0}, the only node of the job", only)
        elif hosts:
            # Which node is down is known of now alone; one that is up again is not among them.
            confidence = "likely" if len(hosts) == 1 else "possible"
            summary = filled("Slurm lost a node of the job, and host {0} is down now", ", ".join(hosts[:4]))
        else:
            summary = "Slurm lost a node of the job; which one, its records do not say"
        culprits = tuple(Culprit(host=host) for host in hosts[:_MAX_NAMED])
        causes.append(
            Cause("slurm-job-node-failed", RULE, confidence, culprits, summary, first_evidence([*failed, *down]))
        )
    boot = _reports(case, "slurm-job-boot-failed")
    if boot:
        hosts = sorted({host for event in boot for host in _only_host(event)})
        culprits = tuple(Culprit(host=host) for host in hosts)
        summary = (
            filled("Slurm could not start host {0}", hosts[0]) if hosts else "Slurm could not start a node of the job"
        )
        causes.append(Cause("slurm-job-boot-failed", RULE, "certain", culprits, summary, first_evidence(boot)))
    return causes


def ended_from_outside(case: Case) -> list[Cause]:
    """A job that its scheduler, or a person, ended: no rank is a culprit, unless the logs show a fault before it."""
    for signature, claim in (
        ("slurm-job-timeout", "Slurm ended the job at its time limit"),
        ("slurm-job-cancelled", "the job was cancelled"),
        ("slurm-job-requeued", "Slurm put the job back into the queue"),
    ):
        events = _reports(case, signature)
        if events:
            user = next((event.values["canceller"] for event in events if event.values.get("canceller")), "")
            summary = filled("{0} by the user with id {1}", claim, user) if user else claim
            return [Cause(signature, RULE, "certain", (), summary, first_evidence(events))]
    return []


def crashed_step(case: Case) -> list[Cause]:
    """A step where the signal of a crash ended a task, as Slurm shows, but no log shows which task."""
    events = _reports(case, "slurm-step-crashed")
    if not events:
        return []
    hosts = sorted({host for event in events for host in _only_host(event)})
    values = events[0].values
    where = filled(" on host {0}", hosts[0]) if len(hosts) == 1 else ""
    step = values["slurm_job"], values["slurm_step"]
    summary = filled("a task of step {0}.{1} was ended by signal {2}{3}", *step, values["signal"], where)
    culprits = tuple(Culprit(host=host) for host in hosts[:1] if len(hosts) == 1)
    return [Cause("slurm-step-crashed", RULE, "likely", culprits, summary, first_evidence(events))]


def only_node(case: Case) -> str:
    """The node of a job that had one node; empty where it had more, or where Slurm does not show it.

    Neither sacct nor scontrol of Slurm 22.05 has a field for the node that failed.
    """
    lists = {
        event.values["culprit_hosts"]
        for event in _reports(case, "slurm-job-nodes") + _reports(case, "slurm-job-node-failed")
        if event.values.get("culprit_hosts")
    }
    hosts = {host for text in lists for host in _expanded(text)}
    return hosts.pop() if len(hosts) == 1 else ""


def explains_all(case: Case, causes: list[Cause]) -> bool:
    """Whether the logs show no error but what follows when all ranks are ended."""
    explained = {name for cause in causes for name in case.signatures[cause.signature].explains}
    events = case.events
    return bool(causes) and all(event.signature in explained or case.role(event) not in ERROR_ROLES for event in events)


def _reports(case: Case, signature: str) -> list[Event]:
    return [event for event in case.reports if event.signature == signature]


def _only_host(event: Event) -> list[str]:
    """The host of a step that ran on one host alone."""
    hosts = _expanded(event.values.get("culprit_hosts", ""))
    return hosts if len(hosts) == 1 else []


def _expanded(text: str) -> list[str]:
    try:
        return expand_nodeset(text, "the job's node list")
    except InventoryError:
        return []
