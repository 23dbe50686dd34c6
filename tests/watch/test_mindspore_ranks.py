"""What the hook records of MindSpore: of stand-ins with the names and parameters of 2.10, and of real jobs.

Real jobs run where ``MINDSPORE_PYTHON`` names an interpreter with MindSpore (``pip install mindspore``, 800 MB).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doctor.watch.rank_process import RankProcess
from tests.smoke.slurm import free_ports
from tests.watch.running import Watched, doctor_watch

EMULATED = """
import sys, types
sys.modules["sitecustomize"] = sys.modules["__main__"]
from doctor.watch.hook import mindspore_ranks as hook
from doctor.watch.hook.rank_files import recording

class Tensor:
    dtype, size = "Float32", 12

def module(name, **values):
    made = types.ModuleType(name)
    for key, value in values.items():
        if isinstance(value, type):
            value.__module__ = name
        setattr(made, key, value)
    return made

class GlobalComm:
    BACKEND, WORLD_COMM_GROUP = "mccl", "mccl_world_group"

class DistCommAllReduce:
    def __call__(self, input, op_type, group, async_op=True):
        return "sum"

class DistCommAllToAllV:
    def __call__(self, other, input, group, send_numel_list, recv_numel_list, rank_size, async_op=True):
        return "parts"

class DistCommIsend:
    def __call__(self, input, dst, group, tag):
        return "handle"

class Gather:  # an operator on one tensor: no collective
    def __call__(self, input, indices, axis):
        return "rows"

class AllGather:
    group = "tp-0-1"
    def __call__(self, *args):
        return "gathered"

class Optimizer:
    def __call__(self, gradients):
        return True

class TrainOneStepCell:
    def __call__(self, *inputs):
        return optimizer(inputs) if inputs else "graph"

management = module(
    "mindspore.communication.management", GlobalComm=GlobalComm, init=lambda backend=None: None,
    get_rank=lambda: 1, get_group_size=lambda: 4, create_group=lambda group, rank_ids, options=None: None,
)
primitives = module("mindspore.ops.auto_generate.gen_ops_prim", DistCommAllReduce=DistCommAllReduce,
    DistCommAllToAllV=DistCommAllToAllV, DistCommIsend=DistCommIsend, Gather=Gather)
operations = module("mindspore.ops.operations.comm_ops", AllGather=AllGather)
for part in (management, primitives, operations, module("mindspore.nn.optim.optimizer", Optimizer=Optimizer),
        module("mindspore.nn.wrap.cell_wrapper", TrainOneStepCell=TrainOneStepCell)):
    hook.MINDSPORE_MODULES[part.__name__](part)
management.init("mccl")
management.init()  # a second call changes nothing
optimizer, group = Optimizer(), "mccl_world_group"
management.create_group("tp-0-1", [0, 1])
assert DistCommAllReduce()(Tensor(), "sum", group, False) == "sum"
assert AllGather()(Tensor()) == "gathered"
assert DistCommAllToAllV()([Tensor()], [Tensor()], group, [1], [1], 4) == "parts"
assert Gather()(Tensor(), [0], 0) == "rows"
assert optimizer([]) and TrainOneStepCell()() == "graph" and TrainOneStepCell()(1)
if recording():
    assert recording().step == 3, recording().step
    assert DistCommIsend()(Tensor(), 1, group, 0) == "handle"
    assert recording().state == 0, recording().state  # what it does now, nobody knows
    assert DistCommAllReduce()(Tensor(), "sum", "unknown", False) == "sum"
print("over")
"""
JOB = """
import os, time
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.communication import get_rank, init, release
ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
init("mccl")
net = nn.Dense(8, 4)
optimizer = nn.SGD(net.trainable_params(), 0.01)
all_reduce, loss_of = ops.AllReduce(), nn.MSELoss()
gradient = ms.value_and_grad(lambda x, y: loss_of(net(x), y), None, optimizer.parameters)
for step in range(12):
    if step == 7 and get_rank() == 1:
        FAULT
    loss, gradients = gradient(Tensor(np.ones((2, 8), np.float32)), Tensor(np.ones((2, 4), np.float32)))
    optimizer(tuple(all_reduce(each) for each in gradients))
    loss.asnumpy()
release()
"""
GRAPH_JOB = """
import time
import numpy as np
import mindspore as ms
from mindspore import Callback, Model, dataset, nn
from mindspore.communication import get_group_size, get_rank, init, release
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("CPU")
init("mccl")
ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)

class Fault(Callback):
    def on_train_step_end(self, run_context):
        if get_rank() == 1 and run_context.original_args().cur_step_num == 5:
            FAULT

values = np.random.RandomState(0).randn(90, 8).astype(np.float32)
data = {"x": values, "y": values.sum(1, keepdims=True)}
data = dataset.NumpySlicesDataset(data, num_shards=get_group_size(), shard_id=get_rank(), shuffle=False).batch(3)
net = nn.Dense(8, 1)
model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01))
model.train(1, data, callbacks=[Fault()], dataset_sink_mode=False)
release()
"""
FAULTS = {
    "sleep": ("time.sleep(1000)", {"smoke-rank-blocked", "smoke-rank-busy"}),
    "raise": ('raise ValueError("bad batch 17")', {"smoke-rank-died"}),
    "kill": ("os.kill(os.getpid(), 9)", {"smoke-rank-died"}),
    "size": ("all_reduce(Tensor(np.ones(16, np.float32))).asnumpy()", {"smoke-collective-mismatched"}),
    "step left out": ("continue", {"smoke-rank-left", "smoke-collective-mismatched"}),
}
PYTHON = os.environ.get("MINDSPORE_PYTHON", "")


def recorded(folder: Path, **environ: str) -> list[RankProcess]:
    """Runs the stand-ins as a rank."""
    (folder / "ranks").mkdir()
    names = {"DOCTOR_WATCH": str(folder), "RANK_ID": "1", "MS_WORKER_NUM": "4", "MS_SCHED_HOST": "10.0.0.1"}
    environ = {**os.environ, **names, "MS_SCHED_PORT": "8118", **environ}
    done = subprocess.run([sys.executable, "-c", EMULATED], env=environ, capture_output=True, text=True, timeout=60)
    assert done.stdout == "over\n" and not done.stderr, done.stderr
    return [RankProcess(page) for page in (folder / "ranks").glob("*.page")]


def test_the_collectives_groups_and_steps_of_stand_ins(tmp_path: Path) -> None:
    (process,) = recorded(tmp_path)
    events: dict[str, dict[str, Any]] = {}
    groups = []
    for event in process.new_events():
        events[event["ev"]] = event
        groups += [(event["gid"], event["name"], event["ranks"])] if event["ev"] == "group" else []
    assert (events["rank"]["rank"], events["rank"]["world"], events["rank"]["meeting"]) == (1, 4, "10.0.0.1:8118")
    assert (events["joined"]["rank"], events["joined"]["world"], events["joined"]["backend"]) == (1, 4, "mccl")
    assert groups == [(0, "mccl_world_group", [0, 1, 2, 3]), (1, "tp-0-1", [0, 1]), (2, "unknown", [])]
    assert "hook" not in events and "end" in events
    process.read_recorder()
    assert [call[:5] for call in process.recorder.new_calls] == [
        [0, 1, "all_reduce", "float32", 12],
        [1, 1, "all_gather", "float32", 12],
        [0, 2, "all_to_all", "", 0],
    ]


def test_the_scheduler_is_no_rank(tmp_path: Path) -> None:
    assert not recorded(tmp_path, MS_ROLE="MS_SCHED")


@pytest.mark.skipif(not PYTHON, reason="MINDSPORE_PYTHON names no interpreter with MindSpore")
class TestRealJobs:
    def run(self, fault: str, folder: Path, job: str = JOB) -> Watched:
        program = folder / "train.py"
        program.write_text(job.replace("FAULT", fault))
        (port,) = free_ports(1)
        folders = f"{Path(PYTHON).parent}:{os.environ['PATH']}"
        arguments = ["--worker_num", "3", "--local_worker_num", "3", "--master_port", str(port), "--join", "True"]
        msrun = [str(Path(PYTHON).with_name("msrun")), *arguments, "--log_dir", str(folder / "log"), str(program)]
        return doctor_watch(*msrun, options=("--on-hang", "end"), folder=folder, PATH=folders, GLOG_v="3")

    def test_a_healthy_job_has_no_finding(self, tmp_path: Path) -> None:
        watched = self.run("pass", tmp_path)
        assert not watched.found_ranks, json.dumps(watched.report)[:2000]
        assert "3 of 3 ranks, step 12" in watched.stderr

    @pytest.mark.parametrize("name", FAULTS)
    def test_the_rank_with_the_fault_is_named(self, name: str, tmp_path: Path) -> None:
        fault, checks = FAULTS[name]
        watched = self.run(fault, tmp_path)
        assert len(watched.found_ranks) == 1 and set(watched.found_ranks) <= checks, watched.stderr
        assert watched.failure["culprit_ranks"] == [1]

    def test_the_steps_of_a_compiled_graph_are_counted(self, tmp_path: Path) -> None:
        watched = self.run("pass", tmp_path, GRAPH_JOB)
        assert not watched.found_ranks and "3 of 3 ranks, step 10" in watched.stderr

    def test_of_a_collective_within_a_graph_no_rank_is_named_that_gave_up_waiting(self, tmp_path: Path) -> None:
        watched = self.run("time.sleep(1000)", tmp_path, GRAPH_JOB)
        assert watched.found_ranks == {"smoke-network-silent": []}
        assert "Without an error of their own: rank 1" in watched.failure["evidence"]
