"""The hosts of a job, and what contradicts what, by the environments that launchers and schedulers really make."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.environment.inventory import InventoryError
from doctor.environment.job_context import choose_scope, detect
from tests.environment.contexts import (
    TABLE,
    TABLE_HOSTS,
    Environ,
    Files,
    context,
    fields,
    launcher_examples,
    scheduler_examples,
    summary,
)
from tests.environment.launchers.test_environment import EXAMPLE as LOOP
from tests.environment.launchers.test_environment import WITH_TABLE
from tests.environment.launchers.test_torchrun import EXAMPLE as TORCHRUN
from tests.environment.schedulers.test_mindcluster import MINDSPORE
from tests.environment.schedulers.test_modelarts import EXAMPLE as MODELARTS
from tests.environment.schedulers.test_slurm import ALLOCATED, BATCH, TASK


@pytest.mark.parametrize(
    ("environ", "files", "expected_summary", "expected"),
    [
        ({}, {}, ("this host alone", "no-job", "cluster"), {"kind": "alone", "started": "once", "hosts": None}),
        (
            {"RANK_TABLE_FILE": "/job/rank.json"},
            {"/job/rank.json": TABLE},
            ("rank table /job/rank.json, named by RANK_TABLE_FILE", "rank-table", "cluster"),
            {
                "started": "once",
                "hosts": TABLE_HOSTS,
                "rank_table_path": "/job/rank.json",
                "slots": dict.fromkeys(TABLE_HOSTS, 8),
            },
        ),
        (
            {"DOCTOR_HOSTFILE": "/job/hosts"},
            {"/job/hosts": "w1 slots=8\nw2 slots=8\n"},
            ("hostfile /job/hosts (host slots=N), named by DOCTOR_HOSTFILE", "hostfile", "cluster"),
            {"kind": "hostfile", "hosts": ("w1", "w2"), "slots": {"w1": 8, "w2": 8}},
        ),
        ({"DOCTOR_HOSTS": "n[1-2]"}, {}, ("DOCTOR_HOSTS", "hosts", "cluster"), {"hosts": ("n1", "n2")}),
    ],
)
def test_without_a_launcher_and_a_scheduler(
    environ: Environ, files: Files, expected_summary: tuple[str, str, str], expected: dict[str, Any]
) -> None:
    detected = context(environ, files)
    assert summary(detected) == expected_summary
    assert fields(detected, expected) == expected


class TestHosts:
    def test_the_users_own_list_wins_over_the_jobs(self) -> None:
        detected = context({**BATCH, "DOCTOR_HOSTS": "n[1-2]"})
        assert (detected.hosts, detected.hosts_source) == (("n1", "n2"), "DOCTOR_HOSTS")
        assert detected.conflicts == ("DOCTOR_HOSTS names 2 hosts, and SLURM_JOB_NODELIST names 4",)

    def test_as_an_inventory(self) -> None:
        fleet = context(WITH_TABLE, {"/job/rank.json": TABLE}).inventory()
        assert fleet and (fleet.hosts, fleet.slots) == (TABLE_HOSTS, dict.fromkeys(TABLE_HOSTS, 8))
        assert fleet.source == "2 hosts from rank table /job/rank.json, named by RANK_TABLE_FILE"
        assert context({}).inventory() is None

    @pytest.mark.parametrize(
        ("environ", "part"),
        [
            ({**BATCH, "SLURM_JOB_NODELIST": "n[0-"}, "SLURM_JOB_NODELIST: "),
            ({**MODELARTS, "VC_WORKER_HOSTS": "a,a"}, "VC_WORKER_HOSTS: lists 2 hosts, 1 of them distinct"),
            ({**MODELARTS, "VC_WORKER_HOSTS": "a;reboot,b"}, "is not a host name"),
            ({"DOCTOR_HOSTFILE": "/none"}, "/none: No such file or directory"),
            ({"RANK_TABLE_FILE": "/none.json"}, "rank table /none.json: No such file or directory; expected one"),
        ],
    )
    def test_a_list_that_cannot_be_used_is_refused_not_passed_over(self, environ: Environ, part: str) -> None:
        detected = context(environ)
        assert detected.hosts is None
        with pytest.raises(InventoryError) as caught:
            detected.inventory()
        assert part in str(caught.value) and "\n" not in str(caught.value)

    def test_a_job_of_several_hosts_that_nobody_names(self) -> None:
        (note,) = context(TORCHRUN).notes
        assert note.startswith("the names of the job's hosts are unknown (2 or more): each host checks itself")
        assert context({**TORCHRUN, "DOCTOR_HOSTS": "n[1-2]"}).notes == ()
        assert context({**TORCHRUN, "RANK": "1", "WORLD_SIZE": "4", "GROUP_RANK": "0"}).notes == ()


class TestContradictions:
    @pytest.mark.parametrize(
        ("environ", "files", "text"),
        [
            ({**TASK, "RANK": "0"}, {}, "RANK is 0, but srun made this rank 3 of 4"),
            ({**LOOP, "RANK": "4"}, {}, "RANK='4', expected a whole number from 0 to 3"),
            ({**MODELARTS, "MA_NUM_HOSTS": "3"}, {}, "the job has 3 hosts, and VC_WORKER_HOSTS names 2"),
            (
                {**BATCH, "RANK_TABLE_FILE": "/t.json"},
                {"/t.json": TABLE},
                "SLURM_JOB_NODELIST names 4 hosts, and rank table /t.json, named by RANK_TABLE_FILE names 2",
            ),
            (
                {**WITH_TABLE, "RANK_SIZE": "32"},
                {"/job/rank.json": TABLE},
                "the job has 32 ranks, and the rank table /job/rank.json lists 16",
            ),
            (
                {**ALLOCATED, "DOCTOR_HOSTS": "n[1-4]"},
                {},
                "DOCTOR_HOSTS names n4, which SLURM_JOB_NODELIST does not",
            ),
            ({"JOB_COMPLETION_INDEX": "abc"}, {}, "JOB_COMPLETION_INDEX='abc', expected a whole number from 0"),
        ],
    )
    def test_each_is_said(self, environ: Environ, files: Files, text: str) -> None:
        (conflict,) = context(environ, files).conflicts
        assert conflict.startswith(text)

    def test_names_and_addresses_are_not_compared(self) -> None:
        environ = {**MODELARTS, "RANK_TABLE_FILE": "/t.json"}
        assert context(environ, {"/t.json": TABLE}).conflicts == ()


EXAMPLES = [example for _, example in (*launcher_examples(), *scheduler_examples())]
NAMES = sorted({name for example in (*EXAMPLES, TASK, MINDSPORE, WITH_TABLE) for name in example})


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=12), max_size=14), st.text(max_size=60))
def test_no_environment_is_too_strange(environ: Environ, text: str) -> None:
    detected = detect(environ, lambda path: text)
    scope = choose_scope(detected)
    assert scope in ("local", "cluster", "follower")
    assert detected.description.isprintable()
    assert detected.tag.isascii() and " " not in detected.tag and len(detected.tag) <= 80
    assert all(line.isprintable() for line in (*detected.conflicts, *detected.notes, detected.hosts_error))
    if scope == "follower":
        assert detected.shares_host


STATEFUL_SET = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "REPLICAS": "4"}


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({"_CONDOR_PROCNO": "0", "_CONDOR_NPROCS": "3"}, "_CONDOR_NPROCS=3"),
        ({"BEAKER_REPLICA_COUNT": "2", "BEAKER_REPLICA_RANK": "0"}, "BEAKER_REPLICA_COUNT=2"),
        ({"LEPTON_JOB_TOTAL_WORKERS": "4", "LEPTON_JOB_WORKER_INDEX": "1"}, "LEPTON_JOB_TOTAL_WORKERS=4"),
        ({"MF_PARALLEL_NUM_NODES": "2", "MF_PARALLEL_NODE_INDEX": "0"}, "MF_PARALLEL_NUM_NODES=2"),
        ({"ARNOLD_WORKER_NUM": "2", "ARNOLD_ID": "0"}, "ARNOLD_WORKER_NUM=2"),
        ({"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "0"}, "PADDLE_TRAINERS_NUM=2"),
        ({"PMI_SIZE": "16", "PMI_RANK": "0"}, "PMI_SIZE=16"),
        ({"HOSTS_NUM": "2", "HOST_RANK": "0"}, "HOSTS_NUM=2"),
        ({"AZUREML_NODE_COUNT": "2", "NODE_RANK": "0"}, "AZUREML_NODE_COUNT=2"),
        ({"CLOUD_WORKER_COUNT": "2", "CLOUD_WORKER_RANK": "1"}, "CLOUD_WORKER_COUNT=2"),
        ({"NUM_MACHINES": "2", "NODE_RANK": "1"}, "NUM_MACHINES=2"),
        ({"NEW_PLATFORM_NUM_HOSTS": "3", "NEW_PLATFORM_HOST_INDEX": "2"}, "NEW_PLATFORM_NUM_HOSTS=3"),
        ({**STATEFUL_SET, "HOSTNAME": "train-0"}, "REPLICAS=4"),
        ({"REPLICAS": "2", "POD_INDEX": "1"}, "REPLICAS=2"),
        ({"NOMAD_ALLOC_INDEX": "1", "NOMAD_JOB_NAME": "train"}, "NOMAD_ALLOC_INDEX=1"),
        ({"CCP_NODES": "2 N1 8 N2 8", "CCP_JOBID": "12", "CCP_TASKID": "1"}, "CCP_NODES=2 N1 8 N2 8"),
        ({"ALPS_APP_PE": "0", "ALPS_APP_DEPTH": "1"}, "ALPS_APP_PE=0"),
        ({"PALS_NODEID": "1", "PALS_RANKID": "4", "PALS_LOCAL_SIZE": "4"}, "PALS_NODEID=1"),
        (
            {"NEURON_PJRT_PROCESSES_NUM_DEVICES": "64,64", "NEURON_PJRT_PROCESS_INDEX": "0"},
            "NEURON_PJRT_PROCESSES_NUM_DEVICES=64,64",
        ),
        ({"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "0"}, "MEGASCALE_NUM_SLICES=2"),
        ({"WORKER_NUM": "4", "WORKER_RANK": "0", "WORKER_TYPE": "worker"}, "WORKER_NUM=4"),
        ({"MACHINES": "n1,n2", "MACHINE_ID": "0"}, "MACHINES=n1,n2"),
        ({"NEURON_RT_ROOT_COMM_ID": "10.0.0.1:44444"}, "NEURON_RT_ROOT_COMM_ID=10.0.0.1:44444"),
        ({"TORCHX_RANK0_HOST": "ip-10-0-0-1"}, "TORCHX_RANK0_HOST=ip-10-0-0-1"),
        ({"NGC_ARRAY_SIZE": "2", "NGC_ARRAY_INDEX": "1"}, "NGC_ARRAY_SIZE=2"),
        ({"GANG_SIZE": "4", "GANG_RANK": "0"}, "GANG_SIZE=4"),
        ({"TRAIN_WORKERS": "2", "TRAIN_WORKER_ID": "0"}, "TRAIN_WORKERS=2"),
    ],
)
def test_a_variable_that_states_several_hosts_makes_the_hosts_unknown(environ: Environ, variable: str) -> None:
    assert context(environ).hosts_unknown == f"the names of the job's hosts are unknown: {variable}"


@pytest.mark.parametrize(
    ("environ", "hosts"),
    [
        ({"NUM_NODES": "2", "NODE_RANK": "0", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, 2),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": "0", "NNODES": "2", "MASTER_ADDR": "n1"}, 2),
        ({"WORLD_SIZE": "17", "LOCAL_WORLD_SIZE": "8"}, 3),
        ({"PET_NNODES": "4"}, 4),
        ({"JSM_NAMESPACE_SIZE": "12", "JSM_NAMESPACE_LOCAL_SIZE": "6", "JSM_NAMESPACE_RANK": "0"}, 2),
        ({"MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_LOCAL_SIZE": "4", "MV2_COMM_WORLD_RANK": "0"}, 2),
    ],
)
def test_sizes_that_need_several_hosts(environ: Environ, hosts: int) -> None:
    assert f"({hosts} or more)" in context(environ).hosts_unknown


def test_sizes_that_need_more_hosts_than_are_listed() -> None:
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1"}
    assert context(slurm).hosts_unknown == ""
    assert context({**slurm, "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}).hosts_unknown == ""
    unknown = context({**slurm, "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}).hosts_unknown
    assert unknown.startswith("the job has 2 hosts or more, and ")


@pytest.mark.parametrize(
    "environ",
    [
        {"PMI_SIZE": "8", "PMI_RANK": "0", "MPI_LOCALNRANKS": "8"},
        {"BEAKER_REPLICA_COUNT": "1", "BEAKER_REPLICA_RANK": "0"},
        {"OMP_NPROCS": "8", "USER_ID": "7"},
        {"NEURON_RT_ROOT_COMM_ID": "localhost:48620"},
        {"TORCHX_RANK0_HOST": "w1", "HOSTNAME": "w1"},
        {"TORCHX_RANK0_HOST": "localhost"},
        {"NGC_ARRAY_SIZE": "1", "NGC_ARRAY_INDEX": "0"},
        {"AWS_BATCH_JOB_ARRAY_SIZE": "4", "AWS_BATCH_JOB_ARRAY_INDEX": "1"},
        {"GANG_SIZE": "4"},
        {"TRAIN_WORKERS": "8", "TRAIN_EPOCHS": "3"},
        {"GUNICORN_WORKERS": "4", "GUNICORN_ID": "1"},
        {"CACHE_SIZE": "100", "CACHE_ID": "3", "RANK0_FOLDER": "/x"},
        {"JSM_NAMESPACE_SIZE": "6", "JSM_NAMESPACE_LOCAL_SIZE": "6", "JSM_NAMESPACE_RANK": "0"},
        {"CLUSTER_NODE_COUNT": "100", "NODE_RANK": "0", "NNODES": "1"},
        {"NUM_NODES": "2"},
        {"MAKE_NPROCS": "16"},
        {"DATALOADER_WORKER_NUM": "8"},
        {"BEAKER_REPLICA_COUNT": "2", "BEAKER_REPLICA_RANK": "0", "DOCTOR_HOSTS": "a,b"},
        {**STATEFUL_SET, "HOSTNAME": "web-55d7b-x8z2c"},
        {**STATEFUL_SET, "REPLICAS": "1", "HOSTNAME": "train-0"},
        {"REPLICAS": "4", "HOSTNAME": "node-2"},
        {"KAFKA_HOSTS": "a,b", "KAFKA_CLIENT_ID": "3", "KAFKA_REPLICAS": "3"},
        {"NOMAD_ALLOC_INDEX": "0", "NOMAD_JOB_NAME": "train"},
        {"CCP_NODES": "1 N1 8", "CCP_JOBID": "12", "CCP_TASKID": "1"},
        {"NEURON_PJRT_PROCESSES_NUM_DEVICES": "64", "NEURON_PJRT_PROCESS_INDEX": "0"},
        {"MEGASCALE_NUM_SLICES": "1", "MEGASCALE_SLICE_ID": "0"},
        {"CT_NUM_SLICES": "120", "CT_SLICE_ID": "3"},
        {"CIRCLE_NODE_TOTAL": "4", "CIRCLE_NODE_INDEX": "1", "CI_NODE_TOTAL": "4", "CI_NODE_INDEX": "2"},
        {"SPARK_WORKER_INSTANCES": "2", "SPARK_WORKER_ID": "1"},
        {"NODES": "a,b", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"},
        {"CLUSTER_SPEC": '{"worker": ["a:1"]}', "JOB_NAME": "worker", "TASK_INDEX": "0", "TASK_NUM": "1"},
    ],
)
def test_a_number_beside_which_nothing_numbers_this_host_is_no_mark_of_a_job(environ: Environ) -> None:
    assert context(environ).hosts_unknown == ""


@pytest.mark.parametrize(
    ("environ", "ranks_per_host", "is_known"),
    [
        *(({name: size}, 8, False) for name in ("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM") for size in ("15", "16")),
        ({"PADDLE_TRAINERS_NUM": "15"}, 8, False),
        ({"WORLD_SIZE": "2"}, 8, False),  # pods, as older operators count, or ranks
        ({"WORLD_SIZE": "8"}, 8, True),
        ({"WORLD_SIZE": "1"}, 8, True),
        ({"WORLD_SIZE": "16"}, 0, True),
        ({"WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}, 8, True),
        ({"WORLD_SIZE": "16", "MASTER_ADDR": "localhost"}, 8, False),
        ({"RANK": "0", "WORLD_SIZE": "16", "MASTER_ADDR": "127.0.0.1"}, 8, False),
        ({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}, 8, True),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "RANK": "0", "LOCAL_RANK": "0"}, 4, True),
        ({"MS_WORKER_NUM": "16", "MS_SCHED_HOST": "10.0.0.1"}, 0, False),
        ({"WORLD_SIZE": "16", "DOCTOR_HOSTS": "n1"}, 8, True),  # named by the user; the checks compare the numbers
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1", "WORLD_SIZE": "16"}, 8, False),
    ],
)
def test_ranks_per_host_and_a_size_say_whether_there_are_other_hosts(
    environ: Environ, ranks_per_host: int, is_known: bool
) -> None:
    assert (detect(environ, ranks_per_host=ranks_per_host).hosts_unknown == "") is is_known
