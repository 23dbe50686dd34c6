"""Lines of one file that start several hosts of a job with the same number of the host. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from doctor.engine.texts import joined
from doctor.job.job_script.read import JobScript
from doctor.job.launch_line.model import LaunchLine, OptionProblem


def meets_at(line: LaunchLine) -> str:
    """The address at which the hosts of a line meet, without the port; empty: the line does not say it."""
    call = line.innermost
    return (call.rdzv_endpoint.partition(":")[0] or call.master_addr) if call else ""


def with_repeated_ranks(scripts: Sequence[JobScript], host_of: Callable[[int, LaunchLine], str]) -> list[JobScript]:
    """The scripts, with a problem at each line of a number that a line for another host has.

    ``host_of``: by the place of a script and its line, the one host on which it surely runs; empty: not known. More
    lines than the job has hosts are several jobs.
    """
    jobs: dict[tuple[object, ...], list[tuple[str, LaunchLine]]] = defaultdict(list)
    for place, script in enumerate(scripts):
        for line in script.launch_lines:
            call, host = line.innermost, host_of(place, line)
            if call and host and call.node_rank == call.fixed_node_rank is not None and not line.conditional:
                key = (call.launcher, line.nodes, meets_at(line), call.master_port, line.program, line.arguments)
                jobs[key].append((host, line))
    alike: dict[int, OptionProblem] = {}
    for (launcher, nodes, address, *_), entries in jobs.items():
        if not address or not nodes or len(entries) > int(str(nodes)) or len(dict(entries)) < len(entries):
            continue
        for rank in {line.launchers[-1].node_rank for _, line in entries}:
            lines = [line for _, line in entries if line.launchers[-1].node_rank == rank]
            places = joined(" and ", map(str, sorted(line.line for line in lines)))
            alike |= {id(line): OptionProblem(str(launcher), "#", str(rank), places) for line in lines[1:][-1:]}
    return [
        msgspec.structs.replace(
            script,
            launch_lines=tuple(
                msgspec.structs.replace(line, problems=(*line.problems, alike[id(line)])) if id(line) in alike else line
                for line in script.launch_lines
            ),
        )
        for script in scripts
    ]


def host_over_ssh(_: int, line: LaunchLine) -> str:
    """The host to which ssh logs in; empty where it is not one that the line names."""
    calls = line.launchers[:-1]
    hosts = calls[0].hosts if len(calls) == 1 and calls[0].launcher == "ssh" else ()
    return hosts[0] if len(hosts) == 1 and "[" not in hosts[0] else ""
