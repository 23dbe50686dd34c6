"""Jobs of MindSpore under msrun that fail, and the diagnosis of their logs.

Real jobs run where ``MINDSPORE_PYTHON`` names an interpreter with MindSpore (``pip install mindspore``, 800 MB); the
lines in this file are of such runs with MindSpore 2.10 on CPU.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from doctor.diagnose.read.readings import read_all
from doctor.diagnose.read.sources import find_sources
from doctor.diagnose.separate_jobs import diagnose_jobs
from doctor.diagnose.signature import load_signatures
from tests.diagnose.test_rules import logs
from tests.smoke.slurm import free_ports

SIGNATURES = load_signatures()
PYTHON = os.environ.get("MINDSPORE_PYTHON", "")
with_mindspore = pytest.mark.skipif(not PYTHON, reason="MINDSPORE_PYTHON names no interpreter with MindSpore")
HEAD = "[ERROR] ME(29748:139695065611136,MainProcess):2026-11-22-05:36:1{}.298.000 [mindspore/parallel/_api.py:365] "
WORKER = (
    "[WARNING] DISTRIBUTED({},7fbd846aab80,python):2026-11-22-05:36:06.849.974 [mindspore/ccsrc/cluster/topology/"
    "compute_graph_node.cc:201] Register] Failed to connect to the meta server node url: 127.0.0.1:8434\n"
    "epoch: 1 step: 7, loss is 0.1429\n"
)
ENDED = "RuntimeError: Distributed job exited with exception. Please check logs in directory: log.\n"
PROGRAM = """
import os, signal, sys, time
import numpy as np
import mindspore as ms
from mindspore import Tensor, ops
from mindspore.communication import get_rank, init
ms.set_device("CPU")
init("mccl")
all_reduce = ops.AllReduce()
for step in range(9):
    all_reduce(Tensor(np.ones(8, np.float32))).asnumpy()
    print(f"epoch: 1 step: {step + 1}, loss is {1 / (step + 1):.4f}", flush=True)
    if step == 4 and get_rank() == 1:
        FAULT
"""
FAULTS = {
    "raise": 'raise ValueError("the data of this rank are broken")',
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
    "segv": "os.kill(os.getpid(), signal.SIGSEGV)",
    "sleep": "time.sleep(1000)",
}


def diagnosed(folder: Path) -> tuple[list[tuple[str, list[int | None]]], list[str]]:
    """Causes with their ranks, and their confidence."""
    diagnosis = diagnose_jobs(read_all(find_sources([str(folder)]), SIGNATURES), SIGNATURES)
    causes = [(cause.signature, [culprit.rank for culprit in cause.culprits]) for cause in diagnosis.causes]
    return causes, [cause.confidence for cause in diagnosis.causes]


def write_logs(folder: Path, *lines: str) -> None:
    """The logs of three workers with the pids 100 to 102, and what msrun itself printed."""
    for rank in range(3):
        (folder / f"worker_{rank}.log").write_text(WORKER.format(100 + rank))
    text = "".join(HEAD.format(second) + line + "\n" for second, line in enumerate(lines))
    (folder / "msrun.out").write_text(text + ENDED)


class TestWhatMsrunPrints:
    def test_the_first_worker_that_a_signal_ended_is_named_by_its_pid(self, tmp_path: Path) -> None:
        killed = "Worker process {} exit with exception. Error code: -9."
        write_logs(tmp_path, killed.format(101), "There's worker exits with exception, kill all other workers.")
        assert diagnosed(tmp_path) == ([("torchrun-sigkill", [1])], ["certain"])

    def test_those_that_msrun_kills_afterwards_are_innocent(self, tmp_path: Path) -> None:
        killed = "Worker process {} exit with exception. Error code: -9."
        write_logs(tmp_path, killed.format(102), killed.format(100), killed.format(101))
        assert diagnosed(tmp_path)[0] == [("torchrun-sigkill", [2])]

    def test_the_first_worker_that_ended_with_a_code_outranks_a_timeout_of_the_others(self, tmp_path: Path) -> None:
        """The scheduler counts 30 s later the worker that msrun has killed since."""
        timed_out = (
            "[ERROR] DISTRIBUTED(31660,7f9cfa09e6c0,python):2026-11-22-05:36:48.018.585 [mindspore/ccsrc/cluster/"
            "topology/meta_server_node.cc:548] UpdateTopoState] The node: 0 is timed out. It may exit with exception, "
            "please check this node's log.\nRuntimeError: The total number of timed out node is 1. Timed out node list "
            "is: [const vector]{0}, worker 0 is the first one timed out, please check its log.\n"
        )
        write_logs(tmp_path, "Worker process 101 exit with exception. Error code: 9.")
        (tmp_path / "scheduler.log").write_text(timed_out)
        assert diagnosed(tmp_path) == ([("worker-exited", [1])], ["likely"])
        for rank in range(3):
            (tmp_path / f"worker_{rank}.log").unlink()
        assert diagnosed(tmp_path) == ([], [])
        (tmp_path / "msrun.out").unlink()
        assert diagnosed(tmp_path) == ([("ms-node-timed-out", [0])], ["likely"])

    def test_the_first_worker_that_sigterm_ended_was_ended_from_outside(self, tmp_path: Path) -> None:
        write_logs(tmp_path, "Worker process 100 exit with exception. Error code: -15.")
        assert diagnosed(tmp_path) == ([("rank-terminated", [0])], ["likely"])

    def test_what_msrun_repeats_of_a_worker_s_log_is_no_second_process(self, tmp_path: Path) -> None:
        raised = 'Traceback (most recent call last):\n  File "t.py", line 6, in <module>\nValueError: bad record 5\n'
        write_logs(tmp_path, "Worker process 101 exit with exception. Error code: 1.")
        for name in ("worker_1.log", "msrun.out"):
            with (tmp_path / name).open("a") as file:
                file.write(raised)
        assert diagnosed(tmp_path)[0][0][1] == [1]

    @pytest.mark.parametrize("code", ["1", "255"])
    def test_a_worker_that_gave_up_may_have_lost_the_silent_one(self, tmp_path: Path, code: str) -> None:
        write_logs(tmp_path, f"Worker process 100 exit with exception. Error code: {code}.")
        assert diagnosed(tmp_path) == ([], [])

    def test_of_a_pid_that_two_hosts_have_no_rank_is_named(self, tmp_path: Path) -> None:
        for host in "ab":
            (tmp_path / host).mkdir()
            (tmp_path / host / "worker_0.log").write_text(WORKER.format(101))
        write_logs(tmp_path, "Worker process 101 exit with exception. Error code: -9.")
        assert diagnosed(tmp_path)[0] == [("torchrun-sigkill", [None])]


@with_mindspore
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_real_job(tmp_path: Path, fault: str) -> None:
    program, logs = tmp_path / "train.py", tmp_path / "logs"
    program.write_text(PROGRAM.replace("FAULT", FAULTS[fault]))
    msrun = Path(PYTHON).with_name("msrun")
    argv = [str(msrun), "--worker_num=3", "--local_worker_num=3", f"--master_port={free_ports(1)[0]}", "--join=True"]
    environ = {**os.environ, "PATH": f"{msrun.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    logs.mkdir()
    with open(logs / "msrun.out", "wb") as out:
        argv += [f"--log_dir={logs}", str(program)]
        subprocess.run(argv, env=environ, cwd=tmp_path, stdout=out, stderr=out, timeout=280, check=False)
    causes, confidence = diagnosed(logs)
    named = {rank for _, ranks in causes for rank in ranks} - {None}
    assert named == {1}, (causes, confidence)


def test_a_worker_that_met_its_scheduler_after_retries_and_raises_is_named_with_its_exception() -> None:
    """MindSpore 2.10 on CPU, msrun with two workers; lines of a real run. Waiting at the start is behind it."""
    retry = (
        "[WARNING] DISTRIBUTED({0},7f804049ce40,python):2026-11-27-10:46:32.438.672 [mindspore/ccsrc/cluster/topology/"
        "cluster_context.cc:316] BuildCluster] Topology build timed out., retry(1/1200).\n"
    )
    built = (
        "[WARNING] DISTRIBUTED({0},7f804049ce40,python):2026-11-27-10:46:32.940.225 [mindspore/ccsrc/cluster/topology/"
        "cluster_context.cc:319] BuildCluster] Cluster is successfully initialized.\n"
        "[WARNING] DISTRIBUTED({0},7f804049ce40,python):2026-11-27-10:46:32.940.283 [mindspore/ccsrc/cluster/topology/"
        "cluster_context.cc:428] PostProcess] This node {1} rank id: {1}\n"
    )
    raised = (
        "Traceback (most recent call last):\n"
        '  File "/home/user/a.py", line 6, in <module>\n    if r==1 and i==3: raise ValueError("bad record 5")\n'
        "ValueError: bad record 5\n"
    )
    scheduler = (
        "[ERROR] DISTRIBUTED(29474,7f960f59e6c0,python):2026-11-27-10:47:03.240.575 [mindspore/ccsrc/cluster/topology/"
        "meta_server_node.cc:548] UpdateTopoState] The node: 1 is timed out. It may exit with exception, please check "
        "this node's log.\n"
        "RuntimeError: The total number of timed out node is 1. Timed out node list is: [const vector]{1}, worker 1 is "
        "the first one timed out, please check its log.\n"
    )
    start = [(retry + built).format(pid, rank) for rank, pid in enumerate((29477, 29479))]
    found = logs(worker_0=start[0], worker_1=start[1] + raised, scheduler=scheduler)
    (cause,) = found.causes
    assert [culprit.rank for culprit in cause.culprits] == [1] and cause.signature == "python-exception"
    never = logs(worker_0=retry.format(29477, 0), worker_1=retry.format(29479, 1) + raised, scheduler=scheduler)
    assert never.causes[0].signature == "ms-node-timed-out"


@pytest.mark.parametrize("folder", ["", "msrun_log/", "/home/me/output/msrun_log/"])
@pytest.mark.parametrize("with_own_log", [False, True])
def test_the_lines_that_msrun_shows_of_its_workers_logs_name_the_worker(folder: str, with_own_log: bool) -> None:
    worker = (
        'step: 9, loss is 2.1\n\nTraceback (most recent call last):\n  File "/home/me/train.py", line 35, in f\n'
        "    model.train(1, ds)\nValueError: For 'MatMul', the input dimensions must be equal, but got 512 and 256.\n"
    )
    lines = [(":" if "rror" in line or "Trace" in line else "-", line) for line in worker.splitlines()]
    copied = "".join(f"{folder}worker_3.log{sign}{at}{sign}{line}\n" for at, (sign, line) in enumerate(lines, 40))
    text = f"{HEAD.format(1)}Worker process 162149 exit with exception.\n{copied}{ENDED}"
    (cause,) = logs(msrun=text, **({"worker_3": worker} if with_own_log else {})).causes
    assert [culprit.rank for culprit in cause.culprits] == [3]
    assert "ValueError" in cause.summary
