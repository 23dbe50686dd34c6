"""A process that a launcher has started takes its part in the smoke run: it leads, or it follows."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from doctor.engine.exit_code import Exit
from doctor.environment.launchers import Adopted
from doctor.job import NotARankTable, read_rank_table
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.programs import agent
from doctor.smoke.rendezvous.leader import Leader
from doctor.smoke.rendezvous.link import Hello, job_token
from doctor.smoke.rendezvous.member import die_with_parent, fork, run_member
from doctor.smoke.run import programs
from doctor.smoke.run.supervisor import SmokeResult, StageCallback

PATIENCE = 30.0
"""Seconds for all processes of the job to come together."""
_VISIBLE = {"npu": "ASCEND_RT_VISIBLE_DEVICES", "gpu": "CUDA_VISIBLE_DEVICES"}


def run_launched(
    adopted: Adopted, options: SmokeOptions, report: Callable[[SmokeResult], int], on_stage: StageCallback
) -> int:
    """Returns the exit code, the same for all of the job. Where the job is led, ``report`` makes it of the run.

    Raises: ValueError and OSError there, when the run that was wished for cannot be.
    """
    patience = min(PATIENCE, options.budget)
    adopted = with_leader_address(adopted, os.environ)
    key = job_token(adopted, os.geteuid(), os.environ.get("DOCTOR_SMOKE_TOKEN", ""))
    hello = build_hello(adopted, os.environ)
    if not adopted.leads:
        return run_member(adopted, key, hello, patience)
    leader = Leader(adopted, key)
    child = _fork(leader, key, hello, patience) if adopted.role == "rank" else 0
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
        code = run_member(leader.adopted, key, msgspec.structs.replace(hello, pid=os.getpid()), patience)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else code
    finally:
        sys.stderr.flush()
        os._exit(code)


def build_hello(adopted: Adopted, environ: Mapping[str, str]) -> Hello:
    """What this process tells of itself."""
    counts = {}
    for kind, numbers in agent.devices().items():  # type: ignore[no-untyped-call]
        visible = environ.get(_VISIBLE[kind])
        counts[kind] = len(numbers) if visible is None else min(len(numbers), len(visible.split(",")) * bool(visible))
    return Hello(
        rank=adopted.rank,
        world=adopted.world,
        host=adopted.host or os.uname().nodename,
        pid=os.getpid(),
        boot=agent.read("/proc/sys/kernel/random/boot_id").strip(),  # type: ignore[no-untyped-call]
        local=adopted.local,
        local_world=adopted.local_world,
        device=adopted.device,
        counts=counts,
        launcher=adopted.launcher,
        version=hashlib.sha256(programs.agent() + programs.worker().encode()).hexdigest()[:16],
        problems=tuple(problem.text for problem in adopted.problems),
        notes=adopted.notes,
    )


# ---- where rank 0 is, when no variable tells


def with_leader_address(adopted: Adopted, environ: Mapping[str, str]) -> Adopted:
    """With the address that Slurm or the rank table knows for rank 0, where it is needed."""
    address = ""
    if adopted.address_from == "SLURM_STEP_NODELIST" and adopted.addresses and not _resolves(adopted.addresses[0]):
        address = _slurm_address(adopted.addresses[0])
    elif adopted.launcher == "environment" and not environ.get("MASTER_ADDR") and environ.get("RANK_TABLE_FILE"):
        address = _table_address(environ["RANK_TABLE_FILE"])
        source = "RANK_TABLE_FILE"
        return msgspec.structs.replace(adopted, addresses=(address,), address_from=source) if address else adopted
    return msgspec.structs.replace(adopted, addresses=(*adopted.addresses, address)) if address else adopted


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False


def _slurm_address(node: str) -> str:
    try:
        done = subprocess.run(
            ["scontrol", "show", "node", node], capture_output=True, text=True, errors="replace", timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"\bNodeAddr=(\S+)", done.stdout)
    return match[1] if match else ""


def _table_address(path: str) -> str:
    """The address of the host that the table has rank 0 on."""
    try:
        table = read_rank_table(path, Path(path).read_text("utf-8"))
    except (OSError, UnicodeError, NotARankTable):
        return ""
    for server in table.servers:
        if any(rank.rank_id == 0 for rank in server.ranks):
            return server.host_ip or server.server_id
    return ""
