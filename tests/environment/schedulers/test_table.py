"""Schedulers and platforms in other documented environments than their samples: hosts, place, unknown hosts."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from doctor.environment.inventory import HostSelection, InventoryError, resolve_hosts
from doctor.environment.job_context import Scope, choose_scope
from tests.environment.contexts import Environ, context, printer, reader, scheduler_sample

NODES = ("n1", "n2")
ADDRESSES = ("10.0.0.4", "10.0.0.5")


class Row(NamedTuple):
    """One environment and what comes of it."""

    environ: Environ
    hosts: tuple[str, ...] | None = None
    files: dict[str, str] = {}
    outputs: dict[str, str] = {}
    scope: Scope = "cluster"
    node_rank: int | None = None
    tag: str = ""
    unknown: str = ""
    """A part of why hosts are unknown; empty: they are known."""


PBS = scheduler_sample("pbs")
LSF = scheduler_sample("lsf")
SGE = scheduler_sample("grid_engine")
FLUX = scheduler_sample("flux")
VOLCENGINE = scheduler_sample("volcengine")
AWS = scheduler_sample("aws_batch")
OPENPAI = scheduler_sample("openpai")
SKYPILOT = scheduler_sample("skypilot")

ROWS = {
    "pbs-no-file": Row(PBS, unknown="PBS_NODEFILE=/aux/17.head: No such file or directory"),
    "pbs-no-list": Row({"PBS_JOBID": "17.head"}, unknown="PBS job 17.head does not list them"),
    "pbs-too-short": Row({**PBS, "PBS_NUM_NODES": "3"}, NODES, {"/aux/17.head": "n1\nn2\n"}, unknown="has 3 hosts"),
    "lsf-no-file": Row(LSF, NODES),
    "lsf-hosts-alone": Row({"LSB_JOBID": "17", "LSB_HOSTS": "n1 n1 n2"}, NODES),
    "lsf-launch-node": Row(
        {"LSB_JOBID": "17", "CSM_ALLOCATION_ID": "9", "LSB_MCPU_HOSTS": "batch1 1 n1 42 n2 42"}, NODES
    ),
    "lsf-launch-node-file": Row({**LSF, "CSM_ALLOCATION_ID": "9"}, NODES, {"/l/17.hf": "batch1\nn1\nn1\nn2\n"}),
    "lsf-first-host-with-one-slot": Row({"LSB_JOBID": "17", "LSB_MCPU_HOSTS": "n1 1 n2 42"}, NODES),
    "lsf-no-list": Row({"LSB_JOBID": "17"}, unknown="LSF job 17 does not list them"),
    "grid_engine-no-file": Row(SGE, unknown="PE_HOSTFILE=/s/pe_hostfile"),
    "grid_engine-serial": Row({"JOB_ID": "17", "SGE_TASK_ID": "undefined", "NHOSTS": "1"}),
    "donau-no-list": Row({"CCS_JOB_ID": "17"}, unknown="Donau job 17 does not list them"),
    "flux-older": Row(FLUX, NODES, outputs={"flux getattr hostlist": "n[1-2]\n"}),
    "flux-absent": Row(FLUX, unknown="flux hostlist: flux is not installed"),
    "mpijob-intel": Row(
        {"K_MPI_JOB_ROLE": "launcher", "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile"},
        NODES,
        {"/etc/mpi/hostfile": "n1:8\nn2:8\n"},
    ),
    "mpijob-worker": Row({"K_MPI_JOB_ROLE": "worker"}, unknown="MPIJob does not list them"),
    "lws-one": Row({"LWS_LEADER_ADDRESS": "l.s.ns", "LWS_GROUP_SIZE": "1", "LWS_WORKER_INDEX": "0"}, node_rank=0),
    "indexed_job-second": Row({"JOB_COMPLETION_INDEX": "1"}, scope="local", node_rank=1, unknown="2 or more"),
    "skypilot-first": Row({**SKYPILOT, "SKYPILOT_NODE_RANK": "0"}, ADDRESSES, node_rank=0),
    "azure_batch-nodes": Row({"AZ_BATCH_TASK_ID": "t", "AZ_BATCH_NODE_LIST": "10.0.0.4;10.0.0.5"}, ADDRESSES),
    "azure_batch-one": Row({"AZ_BATCH_JOB_ID": "j", "AZ_BATCH_TASK_ID": "t"}),
    "aws_batch-one": Row({"AWS_BATCH_JOB_ID": "a1"}),
    "aws_batch-last-is-main": Row(
        {**AWS, "AWS_BATCH_JOB_MAIN_NODE_INDEX": "1"}, scope="local", node_rank=1, unknown="2"
    ),
    "openpai-no-list": Row(
        {name: value for name, value in OPENPAI.items() if "HOST_IP" not in name},
        scope="local",
        node_rank=1,
        unknown="2",
    ),
    "openpai-other-role": Row(
        {**OPENPAI, "PAI_TASK_ROLE_LIST": "ps,worker", "PAI_TASK_ROLE_TASK_COUNT_ps": "1"},
        scope="local",
        node_rank=2,
        unknown="3",
    ),
    "openpai-count": Row(
        {**OPENPAI, "PAI_TASK_ROLE_TASK_COUNT_worker": "two"}, scope="local", node_rank=1, unknown="2"
    ),
    "ray-local": Row({"RAY_ADDRESS": "local"}),
    "volcengine-by-host": Row(
        {name: value for name, value in VOLCENGINE.items() if "ALL" not in name}, ADDRESSES, scope="local", node_rank=1
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_documented_environment(name: str) -> None:
    row = ROWS[name]
    detected = context(row.environ, row.files, row.outputs)
    assert (detected.hosts, detected.hosts_error, detected.conflicts[1:]) == (row.hosts, "", ())
    assert (choose_scope(detected), detected.node_rank) == (row.scope, row.node_rank)
    assert row.unknown in detected.hosts_unknown
    assert bool(row.unknown) == bool(detected.hosts_unknown)
    assert row.tag in detected.tag
    assert detected.scheduler == ("" if name == "ray-local" else name.partition("-")[0])


@pytest.mark.parametrize("name", [name for name in ROWS if name.partition("-")[0] in ("pbs", "lsf", "oar", "flux")])
def test_a_command_that_a_user_types_in_the_job_is_for_its_hosts(name: str) -> None:
    row = ROWS[name]
    try:
        inventory = resolve_hosts(HostSelection(), row.environ, reader(row.files), printer(row.outputs))
    except InventoryError as error:
        assert row.unknown in str(error)
    else:
        assert inventory.local if row.hosts is None else inventory.hosts == row.hosts
        assert inventory.slots == {}, "slots of a batch scheduler are cores"


@pytest.mark.parametrize(
    ("environ", "files", "part"),
    [
        (PBS, {"/aux/17.head": "n1\n$(reboot)\n"}, "/aux/17.head:2"),
        (PBS, {"/aux/17.head": ""}, "contains no host"),
        ({"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "n1 n2"}, {}, "LSB_MCPU_HOSTS: "),
        ({"SM_HOSTS": "algo-1"}, {}, "SM_HOSTS: "),
        ({"SM_HOSTS": '["a b"]'}, {}, '"a b" is not a host name'),
        ({"TF_CONFIG": "{"}, {}, "TF_CONFIG: "),
        ({"TF_CONFIG": '{"cluster": {"worker": "n1"}}'}, {}, "TF_CONFIG: "),
        ({"CLUSTER_SPEC": "[" * 100_000}, {}, "CLUSTER_SPEC: "),
        ({"SKYPILOT_NODE_IPS": "10.0.0.4;-x"}, {}, "SKYPILOT_NODE_IPS"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(environ: Environ, files: dict[str, str], part: str) -> None:
    detected = context(environ, files)
    assert detected.hosts is None
    assert part in detected.hosts_error
    assert detected.hosts_error.isprintable()
    assert len(detected.hosts_error) < 500
