"""A process that a launcher has started takes its part in the smoke run: it leads, or it follows as a member."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import select
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from doctor.engine.bounded_read import read_bounded_text
from doctor.engine.exit_code import Exit
from doctor.engine.streams import print_stderr
from doctor.engine.texts import filled
from doctor.environment.job_context import JobContext
from doctor.job import NotARankTable, read_rank_table
from doctor.remote.runtime.processes import die_with_parent
from doctor.remote.runtime.reading import read_text
from doctor.smoke.model import SmokeResult
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.programs.agent import agent
from doctor.smoke.programs.agent.procfs import accelerators, npu_model
from doctor.smoke.rendezvous.leader import Leader
from doctor.smoke.rendezvous.link import Hello, job_token, launch_secret
from doctor.smoke.rendezvous.reachability import RendezvousError, attempt_connection, connect_to_leader
from doctor.smoke.rendezvous.relay import LeaderOrder, RelayInbox, RelaySender
from doctor.smoke.run import programs
from doctor.smoke.run.supervisor import StageCallback
from doctor.transport.launcher.slurm_steps import node_addresses
from doctor.transport.peer_handshake import ForeignPeer, read_line, send_line

PATIENCE = 30.0
"""Seconds for all processes of the job to come together."""


LINGER_SECONDS = 10.0
"""Seconds that a process that cannot come stays longer than the leader waits: its end would end the others."""
_END_SECONDS = 3.0
_ATTEMPTS = 5
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def run_member(context: JobContext, key: bytes, hello: Hello, patience: float) -> int:
    """Returns the exit code: the leader's, if it is received."""
    for problem in context.problems:
        print_stderr(filled("doctor: {0}", problem.text))
    sender = RelaySender(key, hello)
    try:
        connection = connect_to_leader(context, key, hello, time.monotonic() + patience, sender.send_error)
        if isinstance(connection, RendezvousError):
            return _report_unreachable(context, connection, sender)
    finally:
        sender.close()
    agent_process = _AgentProcess(context, key, hello)
    code = None
    try:
        agent_process.start(0)
        code = _wait_for_verdict(connection, RelayInbox(key), agent_process.start)
    finally:
        agent_process.end(code is not None)
        connection.close()
    if code is None:
        print_stderr(filled("doctor: {0} lost its connection to rank 0, which has ended", _process_name(context)))
        return Exit.UNKNOWN
    return code


def _report_unreachable(context: JobContext, error: RendezvousError, sender: RelaySender) -> int:
    """Says why, and waits for the leader's verdict as long as there may be one."""
    target = "the scheduler" if context.leader_is_scheduler else "itself" if context.rank == 0 else "rank 0"
    print_stderr(filled("doctor: {0} cannot reach {1}: {2}", _process_name(context), target, error.text))
    deadline = time.monotonic() + LINGER_SECONDS
    while sender.verdict is None and time.monotonic() < deadline and not sender.send_error(error):
        time.sleep(0.1)
    return Exit.FAILED if sender.verdict is None else sender.verdict


def _process_name(context: JobContext) -> str:
    return "this process" if context.rank is None else filled("rank {0}", context.rank)


def _wait_for_verdict(link: socket.socket, mailbox: RelayInbox, start: Callable[[int, int], None]) -> int | None:
    """The verdict; None when the leader is gone. Passes on what others of this host have to say meanwhile.

    ``start``: has this process's rank take part in a further run, by the run's number and the rank's in it.
    """
    poll = select.poll()
    poll.register(link, select.POLLIN)
    if mailbox.fileno() >= 0:
        poll.register(mailbox.fileno(), select.POLLIN)
    code = None
    try:
        while True:
            ready = [file for file, _ in poll.poll()]
            if mailbox.fileno() in ready and (relayed_error := mailbox.receive()):
                send_line(link, relayed_error)
            if link.fileno() in ready:
                order = msgspec.json.decode(read_line(link, time.monotonic() + _END_SECONDS), type=LeaderOrder)
                if order.verdict is not None:
                    code = order.verdict
                    return code
                start(order.attempt, order.rank)
    except (OSError, ForeignPeer, msgspec.MsgspecError):
        return None
    finally:
        mailbox.close(code)


# ---- the agent of this one rank


class _AgentProcess:
    """The process that starts and watches this one's rank: another one for every run of the leader."""

    def __init__(self, context: JobContext, key: bytes, hello: Hello) -> None:
        self._context, self._key, self._hello = context, key, hello
        self._child = 0

    def start(self, attempt: int, rank: int = -1) -> None:
        """For a run of this number, as this rank (-1: its own); the agent of the run before ends first."""
        self.end(True)
        if not self._context.problems:
            self._child = _start_agent(self._context, self._key, self._hello, attempt, rank)

    def end(self, well: bool) -> None:
        child, self._child = self._child, 0
        _end_agent(child, well)


def _start_agent(context: JobContext, key: bytes, hello: Hello, attempt: int, rank: int) -> int:
    """A process of its own, on a connection of its own. Returns its number; 0 when there is no connection for it."""
    hello = msgspec.structs.replace(hello, use="lines", attempt=attempt)
    for _ in range(_ATTEMPTS):
        link = attempt_connection(context, key, hello)
        if isinstance(link, socket.socket):
            break
        time.sleep(0.1)
    else:
        return 0  # the leader says so
    parent, child = os.getpid(), fork()
    if child == 0:
        _become_agent(parent, link, hello.rank if rank < 0 else rank)
    link.close()
    return child


def fork() -> int:
    """Like `os.fork`, but the child takes the signals of a launcher as they are meant, not as our handlers do."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = os.fork()
    if child == 0:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    return child


def _become_agent(parent: int, link: socket.socket, rank: int) -> None:
    """Never returns."""
    code = 3
    try:
        die_with_parent(parent)
        request = read_line(link, float("inf"))
        link.setblocking(True)
        os.dup2(link.fileno(), 0)
        os.dup2(link.fileno(), 1)
        os.closerange(3, 1 << 16)
        _LocalAgent.rank = rank
        agent.main(request, agent_class=_LocalAgent)  # type: ignore[no-untyped-call]
    except (OSError, ForeignPeer):  # the leader does not want it any more
        pass
    except Exception as error:  # noqa: BLE001 - the rim: the leader sees the end, and this says why
        print_stderr(filled("doctor: the agent of rank {0} failed: {1}: {2}", rank, type(error).__name__, error))
        code = Exit.BUG
    finally:
        os._exit(code)


class _LocalAgent(agent.Agent):
    """An agent that runs what is installed here, and nothing that came over the network."""

    rank = -1

    def start(self, **orders: Any) -> None:  # type: ignore[override]
        if list(orders["mine"]) != [self.rank]:
            raise ValueError(filled("rank {0} runs here, not {1}", self.rank, orders["mine"]))
        ours = {
            "worker": programs.program(orders["plan"].get("stages", ()), orders["plan"].get("library", "torch")),
            "python": shlex.quote(sys.executable),
            "start": "exec",
        }
        super().start(**{**orders, **ours})  # type: ignore[no-untyped-call]


def _end_agent(child: int, well: bool) -> None:
    """Waits for the agent, which ends its rank first."""
    if not child:
        return
    deadline = time.monotonic() + (_END_SECONDS if well else 0.0)
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
        while True:
            if os.waitpid(child, os.WNOHANG)[0]:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        deadline = time.monotonic() + _END_SECONDS


def run_launched(
    context: JobContext, options: SmokeOptions, report: Callable[[SmokeResult], int], on_stage: StageCallback
) -> int:
    """Returns the exit code, the same for all of the job. Where the job is led, ``report`` makes it of the run.

    Raises: ValueError and OSError there, when the requested run is impossible.
    """
    patience = min(PATIENCE, options.budget)
    context = with_leader_address(context, os.environ)
    key = job_token(context, os.geteuid(), launch_secret(os.environ))
    hello = build_hello(context, os.environ)
    if not context.leads_ranks:
        return run_member(context, key, hello, patience)
    leader = Leader(context, key)
    child = _fork(leader, key, hello, patience) if not context.is_scheduler_process else 0
    try:
        return _run_leader(leader, options, patience, report, on_stage)
    except BaseException:
        if child:
            os.kill(child, signal.SIGTERM)
        raise
    finally:
        if child:
            os.waitpid(child, 0)


def _run_leader(
    leader: Leader,
    options: SmokeOptions,
    patience: float,
    report: Callable[[SmokeResult], int],
    on_stage: StageCallback,
) -> int:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))  # four files a rank
    try:
        with leader:
            try:
                leader.exit_code = report(leader.run_smoke(options, patience, on_stage))
            except ValueError:
                leader.exit_code = Exit.USAGE
                raise
            except SystemExit as stop:
                leader.exit_code = stop.code if isinstance(stop.code, int) else leader.exit_code
                raise
        return leader.exit_code
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _fork(leader: Leader, key: bytes, hello: Hello, patience: float) -> int:
    """Rank 0 goes the same way as all others, in a process of its own."""
    parent, child = os.getpid(), fork()
    if child:
        return child
    code: int = Exit.BUG
    try:
        die_with_parent(parent)
        leader.abandon()
        code = run_member(leader.context, key, msgspec.structs.replace(hello, pid=os.getpid()), patience)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else code
    finally:
        sys.stderr.flush()
        os._exit(code)


def build_hello(context: JobContext, environ: Mapping[str, str]) -> Hello:
    """What this process tells of itself."""
    counts = {kind: len(numbers) for kind, numbers in accelerators(environ).items()}  # type: ignore[no-untyped-call]
    return Hello(
        rank=_or_unset(context.rank),
        world=_or_unset(context.world_size),
        host=context.launcher_host_name or os.uname().nodename,
        pid=os.getpid(),
        boot=read_text("/proc/sys/kernel/random/boot_id").strip(),
        local=_or_unset(context.local_rank),
        local_world=_or_unset(context.local_world_size),
        device=_or_unset(context.device),
        counts=counts,
        npu_model=npu_model(),  # type: ignore[no-untyped-call]
        launcher=context.launcher,
        version=hashlib.sha256(programs.AGENT.source + programs.worker().encode()).hexdigest()[:16],
        problems=tuple(problem.text for problem in context.problems),
        notes=context.launch_notes,
    )


def _or_unset(number: int | None) -> int:
    """A `Hello` has -1 for what is not known."""
    return -1 if number is None else number


# ---- where rank 0 is, when no variable tells


def with_leader_address(context: JobContext, environ: Mapping[str, str]) -> JobContext:
    """With the address that Slurm or the rank table knows for rank 0, where it is needed."""
    addresses, source = context.leader_addresses, context.leader_address_source
    if source == "SLURM_STEP_NODELIST" and addresses:
        addresses = (*addresses, *node_addresses(addresses[:1]).values())
    elif context.launcher == "environment" and not environ.get("MASTER_ADDR") and environ.get("RANK_TABLE_FILE"):
        address = _table_address(environ["RANK_TABLE_FILE"])
        addresses, source = ((address,), "RANK_TABLE_FILE") if address else (addresses, source)
    addresses = tuple(filter(None, addresses))
    return msgspec.structs.replace(context, leader_addresses=addresses, leader_address_source=source)


def _table_address(path: str) -> str:
    """The address of the host that the table has rank 0 on."""
    try:
        table = read_rank_table(path, read_bounded_text(path))
    except (OSError, UnicodeError, NotARankTable):
        return ""
    for server in table.servers:
        if any(rank.rank_id == 0 for rank in server.ranks):
            return server.host_ip or server.server_id
    return ""
