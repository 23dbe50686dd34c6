"""A process that a launcher has started takes its part in the smoke run: it leads, or it follows."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping

import msgspec

from doctor.engine.bounded_read import read_bounded_text
from doctor.engine.exit_code import Exit
from doctor.environment.job_context import JobContext
from doctor.job import NotARankTable, read_rank_table
from doctor.remote.runtime.processes import die_with_parent
from doctor.remote.runtime.reading import read_text
from doctor.smoke.model import SmokeResult
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.programs.agent.procfs import accelerators, npu_model
from doctor.smoke.rendezvous.leader import Leader
from doctor.smoke.rendezvous.link import Hello, job_token, launch_secret
from doctor.smoke.rendezvous.member import fork, run_member
from doctor.smoke.run import programs
from doctor.smoke.run.supervisor import StageCallback
from doctor.transport.launcher.slurm_steps import node_addresses

PATIENCE = 30.0
"""Seconds for all processes of the job to come together."""


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
