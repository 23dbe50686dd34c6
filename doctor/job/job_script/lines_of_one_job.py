"""Lines of one file that each start a host of one job, and do not fit each other. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Literal

import msgspec

from doctor.engine.addresses import means_own_host
from doctor.engine.record import OptionProblem
from doctor.engine.texts import filled, joined
from doctor.job.job_script.read import JobScript
from doctor.job.job_size import ONE_ON_EACH_HOST
from doctor.job.launch_line.model import IN_BACKGROUND, OF_LOOP, LaunchCall, LaunchLine, split_endpoint
from doctor.job.launch_line.recipes import SERVERS
from doctor.job.variables import TORCH_PORT

COMPOSE, BY_HAND = "docker compose", "ranks"
"""What starts services on one machine; and the launcher of a program that gets its rank by variables."""


def meets_at(line: LaunchLine) -> str:
    """The address at which the hosts of a line meet, without the port; empty: the line does not say it."""
    call = line.innermost
    return (call.rdzv_endpoint.partition(":")[0] or call.master_addr) if call else ""


def with_misfits(scripts: Sequence[JobScript], host_of: Callable[[int, LaunchLine], str]) -> list[JobScript]:
    """The scripts, with a problem at the last of the lines of a job that do not fit each other.

    ``host_of``: by the place of a script and its line, the one host on which it surely runs; empty: not known. More
    lines than the job has hosts are several jobs.
    """
    jobs: dict[tuple[object, ...], dict[str, list[LaunchLine]]] = defaultdict(lambda: defaultdict(list))
    origin: dict[int, LaunchLine] = {}
    for place, script in enumerate(scripts):
        for written in script.launch_lines:
            line = _with_own_rank(written)
            call, host, origin[id(line)] = line.innermost, host_of(place, line), written
            if call and host and call.node_rank == call.fixed_node_rank is not None and not line.conditional:
                arguments = () if line.program in SERVERS else line.arguments
                jobs[call.launcher, line.nodes, line.program, arguments][host].append(line)
    misfits: dict[int, list[OptionProblem]] = defaultdict(list)
    for by_host in jobs.values():
        lines = [line for (line, *_) in by_host.values()]
        if sum(map(len, by_host.values())) == len(lines) <= (lines[0].nodes or 0):
            for wrong, value in [*_alike(lines), *_apart(lines, by_host)]:
                places = joined(" and ", map(str, sorted(line.line for line in wrong)))
                kind: Literal["alike", "apart"] = "alike" if value.isdecimal() else "apart"
                misfits[id(origin[id(wrong[-1])])].append(
                    OptionProblem(wrong[0].launchers[-1].launcher, "", value, places, kind)
                )
    for script in scripts:
        for line, problem in (*_waiting(script), *_at_one_port(script)):
            misfits[id(line)].append(problem)
    of_machine = {id(line) for script in scripts for line in of_one_machine(script.launch_lines)}
    marked = [tuple(_with(line, misfits[id(line)], of_machine) for line in script.launch_lines) for script in scripts]
    return [msgspec.structs.replace(script, launch_lines=lines) for script, lines in zip(scripts, marked, strict=True)]


def _with_own_rank(line: LaunchLine) -> LaunchLine:
    """Of a program that gets its rank by variables, here or over SSH: as if a launcher started it."""
    number, ranks, port = (line.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    is_by_hand = line.innermost.launcher == "ssh" if line.innermost else line.operator == "&" or line.is_left
    is_one = is_by_hand and f"{number}{ranks}".isdecimal()
    if not (is_one and number and ranks and len(f"{number}{ranks}{port}") < 16) or not (port or "0").isdecimal():
        return line
    call = LaunchCall(
        launcher=BY_HAND,
        command=line.interpreter or line.program,
        nodes=int(ranks),
        node_rank=int(number),
        master_addr=line.environ.get("MASTER_ADDR", ""),
        master_port=int(port) if port else None,
        unresolved={key: key for key in line.unresolved if key.startswith("MASTER_")},
    )
    return msgspec.structs.replace(line, launchers=(*line.launchers, call))


def _with(line: LaunchLine, problems: Sequence[OptionProblem], of_machine: Set[int]) -> LaunchLine:
    is_whole_here = line.is_whole_here or id(line) in of_machine
    return msgspec.structs.replace(line, problems=(*line.problems, *problems), is_whole_here=is_whole_here)


def of_one_machine(lines: Sequence[LaunchLine]) -> list[LaunchLine]:
    """Of lines that run on one machine, those that start all hosts of one job there: each number of a host once."""
    jobs: dict[tuple[object, ...], dict[int, list[LaunchLine]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        call, outer = line.innermost, [call.launcher for call in line.launchers[:-1]]
        is_here = outer in ([], [COMPOSE]) and (line.nodes or 0) > 1
        if call is None or call.launcher not in ONE_ON_EACH_HOST or not is_here:
            continue
        loop = line.loops.get(call.option("node-rank").strip("${}")) if line.operator == "&" else None
        numbers = range(min(loop.rounds, (line.nodes or 0) + 1)) if loop and loop.least == 0 else [call.node_rank]
        for number in numbers if not line.conditional or loop else ():
            if number is not None:
                jobs[call.launcher, line.nodes, line.program, meets_at(line), _port(call)][number].append(line)
    complete_jobs = [by_number for by_number in jobs.values() if sorted(by_number) == list(range(_hosts(by_number)))]
    return [line for by_number in complete_jobs for each in by_number.values() for line in each if len(each) == 1]


def on_one_machine(scripts: Sequence[JobScript]) -> list[JobScript]:
    """Of services of docker compose those in the network of their machine, where they are all hosts of a job."""
    lines = [line for script in scripts for line in script.launch_lines]
    of_machine = {id(line) for line in of_one_machine([line for line in lines if line.is_whole_here])}
    marked = [
        tuple(msgspec.structs.replace(line, is_whole_here=id(line) in of_machine) for line in script.launch_lines)
        for script in scripts
    ]
    return [msgspec.structs.replace(script, launch_lines=each) for script, each in zip(scripts, marked, strict=True)]


def _hosts(by_number: dict[int, list[LaunchLine]]) -> int:
    return next(line.nodes or 0 for each in by_number.values() for line in each)


def _alike(lines: Sequence[LaunchLine]) -> Iterator[tuple[list[LaunchLine], str]]:
    """Those that give their hosts one number, and meet at one place."""
    places = [(line.launchers[-1].node_rank, meets_at(line), line.launchers[-1].master_port) for line in lines]
    for place in dict.fromkeys(places):
        alike = [line for line, other in zip(lines, places, strict=True) if other == place]
        if place[1] and len(alike) > 1:
            yield alike, str(place[0])


def _apart(lines: Sequence[LaunchLine], hosts: dict[str, list[LaunchLine]]) -> Iterator[tuple[list[LaunchLine], str]]:
    """All hosts of the job by their numbers, where they meet at different hosts of it, or at different ports."""
    calls = [line.launchers[-1] for line in lines]
    if sorted(call.node_rank or 0 for call in calls) != list(range(lines[0].nodes or 0)):
        return
    ports = {_port(call) for call in calls}
    addresses = {meets_at(line) for line in lines if not means_own_host(meets_at(line))}
    open_names = {"master-addr", "master-port", "rdzv-endpoint", "MASTER_ADDR=", "MASTER_PORT="}
    is_open = any(open_names & call.unresolved.keys() for call in calls)
    if not is_open and (len(ports) > 1 or (len(addresses) > 1 and addresses <= hosts.keys())):
        points = [f"{meets_at(line)}:{_port(line.launchers[-1])}" for line in lines]
        yield list(lines), joined(" and ", dict.fromkeys(points))


def _port(call: LaunchCall) -> int:
    return (split_endpoint(call.rdzv_endpoint)[1] if call.rdzv_endpoint else call.master_port) or TORCH_PORT


_RETURNS = re.compile(
    r"(?<![>&])&(?![>&\d])|\s(?:-[a-zA-Z]*[df][a-zA-Z]*|--detach|--bg)\s|\b(?:tmux|screen|setsid|at)\b"
)
"""What may return before the ranks end: a text of the other host, options of ssh and docker."""
_IN_SESSION = re.compile(r"\s*(?:tmux new\S* (?:\S+ ){0,8}?-d|screen -\w*d)", re.ASCII)
"""What leaves its command behind, to a server."""


def _waiting(script: JobScript) -> Iterator[tuple[LaunchLine, OptionProblem]]:
    """Lines that start one host of a job in the foreground, and others of its hosts after them; and lines in the
    background of a batch script that ends behind them.
    """
    lines = script.launch_lines
    for line in lines:
        is_beside = line.operator == "&" or _IN_SESSION.match(line.text)
        if is_beside and line.is_left and script.resources.scheduler:
            why = "as the scheduler ends what still runs when the script has ended"
            yield line, OptionProblem("bash", "wait", filled("behind line {0}", line.line), why, "needed")
        if line.operator == ";" and _starts_one_host(line) and not _RETURNS.search(line.text):
            alike = [other for other in lines if _job_of(other) == _job_of(line)]
            is_waited_for = alike[-1] is not line and _is_one(alike, line)
            if is_waited_for or (len(alike) == 1 and _in_rounds(line)):
                why = "as it waits there for hosts that the script starts later"
                end = filled("at the end of line {0}", line.line)
                yield line, OptionProblem(line.launchers[0].command.split()[0], IN_BACKGROUND, end, why, "needed")


def _at_one_port(script: JobScript) -> Iterator[tuple[LaunchLine, OptionProblem]]:
    """Launchers beside each other on the script's own host: the second finds its port in use."""
    beside: dict[tuple[int, int], LaunchLine] = {}
    for line in script.launch_lines:
        call = line.launchers[0] if len(line.launchers) == 1 and not line.conditional else None
        if call is None or call.launcher not in ONE_ON_EACH_HOST or not call.master_port or call.rdzv_endpoint:
            continue
        before = beside.setdefault((line.waits, call.master_port), line)
        if before is not line and before.operator == "&" and (call.node_rank or 0) == 0 and not call.standalone:
            expected = filled("another port than that of line {0}, which runs beside it", before.line)
            option = "--main_process_port" if call.launcher == "accelerate" else "--master_port"
            yield line, OptionProblem(call.command, option, str(call.master_port), expected)


def _job_of(line: LaunchLine) -> tuple[object, ...]:
    call = line.innermost
    return call and call.launcher, line.nodes, line.program, line.arguments


def _is_one(alike: Sequence[LaunchLine], line: LaunchLine) -> bool:
    """Whether the lines are hosts of one job: each starts one, and all once."""
    return len(alike) <= (line.nodes or 0) and all(not other.conditional and _starts_one_host(other) for other in alike)


def _in_rounds(line: LaunchLine) -> bool:
    """Whether a loop starts it on another host in each of several rounds, which all meet at one place."""
    loops, call = list(line.loops.values()), line.launchers[-1]
    hosts = " ".join(line.launchers[0].unresolved.values())
    meeting = " ".join(call.unresolved.get(name, "") for name in ("master-addr", "master-port", "rdzv-endpoint"))
    is_several = len(loops) < 2 and all(loop.rounds > 1 for loop in loops)
    return (
        is_several
        and line.conditional
        and line.is_repeated
        and bool(OF_LOOP.search(hosts))
        and not OF_LOOP.search(meeting)
    )


def _starts_one_host(line: LaunchLine) -> bool:
    """Whether it starts torchrun, or what else starts the ranks of one host, on one host of several."""
    call, outer = line.innermost, line.launchers[:-1]
    if call is None or call.launcher not in ONE_ON_EACH_HOST or len(outer) != 1 or call.nodes != call.max_nodes:
        return False
    is_one = (outer[0].nodes, outer[0].ranks) == (1, 1) or outer[0].command.partition(" ")[0] == "ssh"
    return is_one and len(outer[0].hosts) < 2 and (call.nodes or 0) > 1


def host_over_ssh(_: int, line: LaunchLine) -> str:
    """The host to which ssh logs in; empty where it is not one that the line names. Of a rank here its line."""
    calls = line.launchers[:-1]
    if not calls and line.launchers and line.launchers[0].launcher == BY_HAND:
        return str(line.line)
    hosts = calls[0].hosts if len(calls) == 1 and calls[0].launcher == "ssh" else ()
    return hosts[0] if len(hosts) == 1 and "[" not in hosts[0] else ""
