"""Where a process runs, by the environments that launchers and platforms really make."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.environment.context import Place, find, inventory, scope, wait_for_table
from doctor.environment.inventory import InventoryError
from doctor.environment.mounted_rank_table import MINDCLUSTER
from tests.checks.tables import a2, legacy

Environ = dict[str, str]


def files(texts: dict[str, str | None]) -> Callable[[str], str]:
    """None: a folder."""

    def read(path: str) -> str:
        if path not in texts:
            raise FileNotFoundError(2, "No such file or directory", path)
        text = texts[path]
        if text is None:
            raise IsADirectoryError(21, "Is a directory", path)
        return text

    return read


def found(environ: Environ, texts: dict[str, str | None] | None = None) -> Place:
    return find(environ, files(texts or {}))


TABLE = json.dumps(a2())
INITIALIZING = json.dumps({"status": "initializing", "server_list": [], "server_count": "0", "version": "1.0"})
HOSTS = ("172.16.0.110", "172.16.0.111")

# What a Slurm 22.05 set: in a shell of salloc, a batch script, a task of srun, and a rank of mpirun's in the script.
ALLOCATED = {
    "SLURM_JOB_ID": "1234",
    "SLURM_JOB_NODELIST": "n[0-3]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_NNODES": "4",
    "SLURM_TASKS_PER_NODE": "2(x4)",
}
BATCH = {
    **ALLOCATED,
    "SLURMD_NODENAME": "n0",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "8",
}
TASK = {
    **ALLOCATED,
    "SLURMD_NODENAME": "n2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "3,1",
    "SLURM_NNODES": "2",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "937033729",
}
DAEMON = {"SLURM_STEP_ID": "1", "SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1"}
TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_RUN_ID": "none",
}
HYDRA = {"PMI_RANK": "4", "PMI_SIZE": "5", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
MSRUN = {
    "MS_ROLE": "MS_WORKER",
    "MS_WORKER_NUM": "8",
    "MS_NODE_ID": "5",
    "RANK_ID": "5",
    "RANK_SIZE": "8",
    "DEVICE_ID": "5",
    "MS_SCHED_HOST": "10.0.0.1",
    "MS_SCHED_PORT": "8118",
}
LOOP = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "w1", "MASTER_PORT": "29500"}
ASCEND = {"RANK_TABLE_FILE": "/job/rank.json", "RANK_ID": "9", "RANK_SIZE": "16", "DEVICE_ID": "1"}
POD = {
    "MINDX_TASK_ID": "6a8f",
    "MASTER_ADDR": "10.96.4.7",
    "MASTER_PORT": "2222",
    "RANK": "1",
    "WORLD_SIZE": "16",
    "LOCAL_WORLD_SIZE": "8",
    "LOCAL_RANK": "0,1,2,3,4,5,6,7",
}
MINDSPORE_POD = {
    "MS_ROLE": "MS_WORKER",
    "MS_NODE_RANK": "1",
    "MS_WORKER_NUM": "16",
    "MS_LOCAL_WORKER": "8",
    "MS_SERVER_NUM": "0",
    "MS_SCHED_HOST": "10.96.4.7",
    "MS_SCHED_PORT": "2222",
}
MODELARTS = {
    "MA_NUM_HOSTS": "2",
    "MA_NUM_GPUS": "8",
    "MA_TASK_NAME": "worker",
    "MA_VJ_NAME": "ma-job-77",
    "VC_TASK_INDEX": "1",
    "VC_WORKER_NUM": "2",
    "VC_WORKER_HOSTS": "job-worker-0.job,job-worker-1.job",
}
VOLCANO = {
    "VC_TASK_INDEX": "0",
    "VK_TASK_INDEX": "0",
    "VC_MASTER_HOSTS": "t-master-0.t",
    "VC_MASTER_NUM": "1",
    "VC_WORKER_HOSTS": "t-worker-0.t,t-worker-1.t",
    "VC_WORKER_NUM": "2",
    "HOSTNAME": "t-worker-0",
}
KUBEFLOW = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "8", "RANK": "1", "WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environ", "texts", "words", "tag", "chosen", "fields"),
    [
        ({}, {}, "this host alone", "alone", "cluster", {"kind": "alone", "started": "once", "hosts": None}),
        (
            ALLOCATED,
            {},
            "Slurm job 1234",
            "slurm:1234",
            "cluster",
            {"started": "once", "hosts": ("n0", "n1", "n2", "n3"), "source": "SLURM_JOB_NODELIST", "nodes": 4},
        ),
        (
            BATCH,
            {},
            "Slurm job 1234, batch script on n0",
            "slurm:1234",
            "cluster",
            {"started": "once", "hosts": ("n0", "n1", "n2", "n3"), "node_rank": 0, "shared": False},
        ),
        (
            TASK,
            {},
            "Slurm job 1234, step 0, task 3 of 4 on n2",
            "slurm:1234",
            "local",
            {
                "started": "ranks",
                "launcher": "srun",
                "hosts": ("n1", "n2"),
                "source": "SLURM_STEP_NODELIST",
                "rank": 3,
                "world": 4,
                "local_rank": 0,
                "local_world": 1,
                "node_rank": 1,
                "nodes": 2,
            },
        ),
        (
            {**TASK, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
            {},
            "Slurm job 1234, step 0 on n2",
            "slurm:1234",
            "cluster",
            {"started": "once", "hosts": ("n0", "n1", "n2", "n3")},
        ),
        (
            {**ALLOCATED, "SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURMD_NODENAME": "n2"},
            {},
            "Slurm job 1234, prolog on n2",
            "slurm:1234",
            "local",
            {"started": "prolog"},
        ),
        (
            MPIRUN,
            {},
            "mpirun, rank 2 of 3",
            "openmpi",
            "follower",
            {"kind": "openmpi", "started": "ranks", "local_rank": 1, "local_world": 2, "shared": True},
        ),
        (
            {**BATCH, **DAEMON, **MPIRUN},
            {},
            "Slurm job 1234, mpirun, rank 2 of 3 on n0",
            "slurm:1234/openmpi",
            "follower",
            {"launcher": "mpirun", "hosts": ("n0", "n1", "n2", "n3"), "rank": 2, "nodes": 4},
        ),
        (
            {**TASK, **TORCHRUN},
            {},
            "Slurm job 1234, torchrun, rank 5 of 8 on n2",
            "slurm:1234/torchrun",
            "follower",
            {"launcher": "torchrun", "hosts": ("n1", "n2"), "rank": 5, "local_world": 4, "node_rank": 1},
        ),
        (
            {**TASK, **TORCHRUN, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            {},
            "Slurm job 1234, step 0, task 3 of 4 on n2",
            "slurm:1234",
            "local",
            {"launcher": "srun", "rank": 3, "conflicts": ()},
        ),
        (
            TORCHRUN,
            {},
            "torchrun, rank 5 of 8",
            "torchrun",
            "follower",
            {"kind": "torchrun", "node_rank": 1, "nodes": None},
        ),
        (
            {**TORCHRUN, "RANK": "4", "LOCAL_RANK": "0"},
            {},
            "torchrun, rank 4 of 8",
            "torchrun",
            "local",
            {"local_rank": 0, "leads": False},
        ),
        (HYDRA, {}, "mpiexec, rank 4 of 5", "mpich", "follower", {"kind": "mpich", "local_rank": 1, "local_world": 2}),
        (
            MSRUN,
            {},
            "msrun, rank 5 of 8",
            "msrun",
            "local",
            {"kind": "msrun", "rank": 5, "local_rank": None, "shared": True},
        ),
        (
            {**MSRUN, "MS_ROLE": "MS_SCHED", "MS_NODE_ID": "sched", "RANK_ID": "0"},
            {},
            "msrun's scheduler",
            "msrun",
            "local",
            {"scheduler": True, "rank": None, "leads": False},
        ),
        (
            LOOP,
            {},
            "a loop in a shell, rank 1 of 4",
            "shell",
            "follower",
            {"kind": "shell", "launcher": "environment", "local_rank": 1, "shared": True},
        ),
        (
            ASCEND,
            {"/job/rank.json": TABLE},
            "a loop in a shell, rank 9 of 16",
            "rank-table",
            "follower",
            {"kind": "rank-table", "local_rank": 1, "local_world": 8, "node_rank": 1, "hosts": HOSTS},
        ),
        (
            {"RANK_TABLE_FILE": "/job/rank.json", "RANK_ID": "8", "DEVICE_ID": "4"},
            {"/job/rank.json": TABLE},
            "a loop in a shell, rank 8 of 16",
            "rank-table",
            "local",
            {"world": 16, "local_rank": 0, "node_rank": 1, "conflicts": ()},
        ),
        (
            {"RANK_TABLE_FILE": "/job/rank.json", "DEVICE_ID": "1"},
            {"/job/rank.json": TABLE},
            "a loop in a shell, rank ? of ?",
            "rank-table",
            "cluster",
            {"started": "ranks", "rank": None, "shared": True},
        ),
        (
            {"RANK_TABLE_FILE": "/job/rank.json"},
            {"/job/rank.json": TABLE},
            "rank table /job/rank.json, named by RANK_TABLE_FILE",
            "rank-table",
            "cluster",
            {"started": "once", "hosts": HOSTS, "rank_table": "/job/rank.json", "slots": dict.fromkeys(HOSTS, 8)},
        ),
        (
            POD,
            {MINDCLUSTER: TABLE},
            "MindCluster job 6a8f, host 1 of 2",
            "mindcluster:6a8f",
            "local",
            {
                "started": "hosts",
                "rank": None,
                "node_rank": 1,
                "hosts": HOSTS,
                "rank_table": MINDCLUSTER,
                "conflicts": (),
            },
        ),
        (
            {**POD, **TORCHRUN},
            {MINDCLUSTER: INITIALIZING},
            "MindCluster job 6a8f, torchrun, rank 5 of 8",
            "mindcluster:6a8f/torchrun",
            "follower",
            {"started": "ranks", "table_waits": True, "hosts": None, "error": ""},
        ),
        (
            MINDSPORE_POD,
            {},
            "MindCluster, host 1 of 2",
            "mindcluster",
            "local",
            {"started": "hosts", "node_rank": 1, "nodes": 2, "scheduler": False},
        ),
        (
            {**MINDSPORE_POD, "MS_ROLE": "MS_SCHED", "MS_NODE_RANK": "0"},
            {},
            "MindCluster, scheduler",
            "mindcluster",
            "local",
            {"scheduler": True, "leads": False},
        ),
        (
            {**MODELARTS, "RANK_TABLE_FILE": "/user/config"},
            {"/user/config": None, "/user/config/jobstart_hccl.json": json.dumps(legacy())},
            "ModelArts job ma-job-77, host 1 of 2",
            "modelarts:ma-job-77",
            "local",
            {
                "started": "hosts",
                "hosts": ("job-worker-0.job", "job-worker-1.job"),
                "source": "VC_WORKER_HOSTS",
                "rank_table": "/user/config/jobstart_hccl.json",
            },
        ),
        (
            {**MODELARTS, "MA_NUM_HOSTS": "1", "VC_WORKER_NUM": "1", "VC_WORKER_HOSTS": "job-worker-0.job"},
            {},
            "ModelArts job ma-job-77",
            "modelarts:ma-job-77",
            "cluster",
            {"started": "once", "nodes": 1},
        ),
        (
            {**MODELARTS, "VC_TASK_INDEX": "0"},
            {},
            "ModelArts job ma-job-77, host 0 of 2",
            "modelarts:ma-job-77",
            "cluster",
            {"leads": True},
        ),
        (
            VOLCANO,
            {},
            "Volcano, host 1 of 3",
            "volcano",
            "local",
            {"hosts": ("t-master-0.t", "t-worker-0.t", "t-worker-1.t"), "node_rank": 1, "nodes": 3},
        ),
        (
            KUBEFLOW,
            {},
            "Kubeflow, host 1 of 2",
            "kubeflow",
            "local",
            {"started": "hosts", "node_rank": 1, "rank": None},
        ),
        (
            {"DOCTOR_HOSTFILE": "/job/hosts"},
            {"/job/hosts": "w1 slots=8\nw2 slots=8\n"},
            "hostfile /job/hosts (host slots=N), named by DOCTOR_HOSTFILE",
            "hostfile",
            "cluster",
            {"kind": "hostfile", "hosts": ("w1", "w2"), "slots": {"w1": 8, "w2": 8}},
        ),
    ],
)
def test_a_place(
    environ: Environ, texts: dict[str, str | None], words: str, tag: str, chosen: str, fields: dict[str, Any]
) -> None:
    place = found(environ, texts)
    assert (place.words, place.tag, scope(place)) == (words, tag, chosen)
    assert {name: getattr(place, name) for name in fields} == fields


class TestScope:
    @pytest.mark.parametrize(
        ("environ", "asked", "chosen"),
        [
            (BATCH, "local", "local"),
            (BATCH, "cluster", "cluster"),
            (TASK, "cluster", "cluster"),
            ({**TASK, "SLURM_PROCID": "0", "SLURM_NODEID": "0"}, "auto", "cluster"),
            ({**TASK, "SLURM_PROCID": "0", "SLURM_NODEID": "0"}, "local", "local"),
            ({**TASK, "SLURM_PROCID": "1", "SLURM_NODEID": "0", "SLURM_LOCALID": "1"}, "auto", "follower"),
            ({**TASK, "SLURM_PROCID": "1", "SLURM_NODEID": "0", "SLURM_LOCALID": "1"}, "local", "follower"),
            (TORCHRUN, "local", "follower"),
            ({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0"}, "auto", "cluster"),
            (MODELARTS, "cluster", "cluster"),
        ],
    )
    def test_what_is_asked_for(self, environ: Environ, asked: Any, chosen: str) -> None:
        assert scope(found(environ), asked) == chosen

    @pytest.mark.parametrize("counts", [(3, 1), (1, 1), (2, 5)])
    def test_one_process_looks_at_each_host_and_one_at_the_fleet(self, counts: tuple[int, ...]) -> None:
        """salloc and mpirun placed 3 and 1 ranks on two nodes: the counts are never equal by nature."""
        chosen: list[list[str]] = []
        rank = 0
        for node, count in enumerate(counts):
            chosen.append([])
            for local in range(count):
                numbers = {"PROCID": rank, "LOCALID": local, "NODEID": node, "STEP_NUM_TASKS": sum(counts)}
                own = {f"SLURM_{name}": str(value) for name, value in numbers.items()}
                own["SLURM_STEP_TASKS_PER_NODE"] = ",".join(map(str, counts))
                chosen[-1].append(scope(found({**TASK, **own})))
                rank += 1
        first, *others = chosen
        assert first == ["cluster", *["follower"] * (counts[0] - 1)]
        assert others == [["local", *["follower"] * (count - 1)] for count in counts[1:]]


class TestHosts:
    def test_the_users_own_list_wins_over_the_jobs(self) -> None:
        place = found({**BATCH, "DOCTOR_HOSTS": "n[1-2]"})
        assert (place.hosts, place.source) == (("n1", "n2"), "DOCTOR_HOSTS")
        assert place.conflicts == ("DOCTOR_HOSTS names 2 hosts, and SLURM_JOB_NODELIST names 4",)

    def test_as_an_inventory(self) -> None:
        fleet = inventory(found(ASCEND, {"/job/rank.json": TABLE}))
        assert fleet and (fleet.hosts, fleet.slots) == (HOSTS, dict.fromkeys(HOSTS, 8))
        assert fleet.source == "2 hosts from rank table /job/rank.json, named by RANK_TABLE_FILE"
        assert inventory(found({})) is None

    @pytest.mark.parametrize(
        ("environ", "part"),
        [
            ({**BATCH, "SLURM_JOB_NODELIST": "n[0-"}, "SLURM_JOB_NODELIST: "),
            ({**MODELARTS, "VC_WORKER_HOSTS": "a,a"}, "VC_WORKER_HOSTS: names 2 hosts, of which 1 differ"),
            ({**MODELARTS, "VC_WORKER_HOSTS": "a;reboot,b"}, "is no host name"),
            ({"DOCTOR_HOSTFILE": "/none"}, "/none: No such file or directory"),
            ({"RANK_TABLE_FILE": "/none.json"}, "rank table /none.json: No such file or directory; expected one"),
        ],
    )
    def test_a_list_that_cannot_be_used_is_refused_not_passed_over(self, environ: Environ, part: str) -> None:
        place = found(environ)
        assert place.hosts is None
        with pytest.raises(InventoryError) as caught:
            inventory(place)
        assert part in str(caught.value) and "\n" not in str(caught.value)

    def test_a_job_of_several_hosts_that_nobody_names(self) -> None:
        (note,) = found(TORCHRUN).notes
        assert note.startswith("nothing tells the names of the job's hosts: each looks at itself")
        assert found({**TORCHRUN, "DOCTOR_HOSTS": "n[1-2]"}).notes == ()
        assert found({**TORCHRUN, "RANK": "1", "WORLD_SIZE": "4", "GROUP_RANK": "0"}).notes == ()


class TestContradictions:
    @pytest.mark.parametrize(
        ("environ", "texts", "said"),
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
                {**ASCEND, "RANK_SIZE": "32"},
                {"/job/rank.json": TABLE},
                "the job has 32 ranks, and the rank table /job/rank.json lists 16",
            ),
            (
                {**ALLOCATED, "DOCTOR_HOSTS": "n[1-4]"},
                {},
                "DOCTOR_HOSTS names n4, which SLURM_JOB_NODELIST does not",
            ),
        ],
    )
    def test_each_is_said(self, environ: Environ, texts: dict[str, str | None], said: str) -> None:
        (conflict,) = found(environ, texts).conflicts
        assert conflict.startswith(said)

    def test_a_rank_that_is_no_number_does_not_look_at_the_fleet_and_does_not_follow(self) -> None:
        place = found({**LOOP, "RANK": "one", "LOCAL_RANK": "x"})
        assert (place.rank, place.local_rank, place.shared) == (None, None, True)

    def test_names_and_addresses_are_not_compared(self) -> None:
        environ = {**MODELARTS, "RANK_TABLE_FILE": "/t.json"}
        assert found(environ, {"/t.json": TABLE}).conflicts == ()


class TestWaiting:
    def waits(self, texts: list[str | None], until: float = 10.0) -> tuple[str, float]:
        """What is said in the end, and when."""
        now, left = [0.0], list(texts)

        def read(path: str) -> str:
            text = left.pop(0) if len(left) > 1 else left[0]
            if text is None:
                raise FileNotFoundError(2, "No such file or directory")
            return text

        def sleep(seconds: float) -> None:
            now[0] += seconds

        return wait_for_table(MINDCLUSTER, until, read_file=read, clock=lambda: now[0], sleep=sleep), now[0]

    def test_a_complete_table_is_not_waited_for(self) -> None:
        assert self.waits([TABLE]) == ("", 0.0)

    def test_until_the_operator_is_done(self) -> None:
        """Missing, half written, and begun are all on the way."""
        assert self.waits([None, "", '{"status": "compl', INITIALIZING, TABLE]) == ("", 4.0)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (INITIALIZING, 'its status is "initializing"'),
            (None, "No such file or directory"),
            ("{", "it is no JSON"),
            ("", "it is empty"),
            ("[]", "it has no status"),
            ('{"status": "\x1b[31m\\u001b[2J"}', "it is no JSON"),
            ('{"status": "\\u001b[2J"}', 'its status is "\\x1b[2J"'),
        ],
    )
    def test_one_that_never_is(self, text: str | None, says: str) -> None:
        note, now = self.waits([text], until=2.5)
        assert note.startswith(f'rank table {MINDCLUSTER}: {says} after 2 s, expected "completed": ')
        assert now == 2.5


NAMES = sorted(
    {*TASK, *MPIRUN, *TORCHRUN, *HYDRA, *MSRUN, *ASCEND, *POD, *MINDSPORE_POD, *MODELARTS, *VOLCANO, *KUBEFLOW}
)


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=12), max_size=14), st.text(max_size=60))
def test_no_environment_is_too_strange(environ: Environ, text: str) -> None:
    place = find(environ, lambda path: text)
    assert scope(place) in ("local", "cluster", "follower")
    assert place.words.isprintable() and place.tag.isascii() and " " not in place.tag and len(place.tag) <= 80
    assert all(one.isprintable() for one in (*place.conflicts, *place.notes, place.error))
    if scope(place) == "follower":
        assert place.shared
