"""Rule "named by the launcher", for hosts: one that a launcher or scheduler lost, or could not reach."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import Cause, Confidence, Culprit
from doctor.diagnose.events import Event
from doctor.diagnose.rules.scheduler_states import only_node
from doctor.engine.texts import filled


def lost_hosts(case: Case, event: Event) -> Iterator[Cause]:
    """The host that this report of a launcher is about, if it is one of these.

    Slurm's controller decides that a host is lost, so its report is certain. mpirun reports that it lost its daemon,
    which the network may have cut off as well.
    """
    host = event.values.get("culprit_host", "")
    if event.signature == "slurm-node-failure":
        # The one on which a step was cancelled for it is not the one that failed.
        if host:
            yield _cause(event, host, "certain", filled("Slurm lost host {0} during the job", host))
        elif not _names_lost_host(case, event.signature):
            text = "Slurm lost a host of the job, which the logs do not name: its controller's log does"
            yield _cause(event, "", "certain", text)
    elif event.signature == "ompi-daemon-lost" and (host or not _names_lost_host(case, event.signature)):
        where = filled("host {0}", host) if host else "another host"
        summary = filled("mpirun lost its daemon on {0}: that host ended, or the network to it failed", where)
        yield _cause(event, host, "likely", summary)


def _cause(event: Event, host: str, confidence: Confidence, summary: str) -> Cause:
    culprits = (Culprit(host=host),) if host else ()
    return Cause(event.signature, "named by the launcher", confidence, culprits, summary, (event,))


def _names_lost_host(case: Case, signature: str) -> bool:
    """Whether another line names it; of a host that is down, `named_by_scheduler` speaks where the job ended for it."""
    named = case.host_reports
    ended = case.has_report("slurm-job-node-failed")
    return signature in named or (ended and bool("slurm-node-down" in named or only_node(case)))
