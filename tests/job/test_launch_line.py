"""Launch lines of every launcher, as words and as typed values."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from doctor.job.job_script import read_job_script
from doctor.job.launch_line import LaunchLine, NotALaunchLine, read_launch_line
from doctor.job.launch_line.logins import launcher_login
from doctor.job.shell import Word


def line(text: str, environ: dict[str, str] | None = None) -> LaunchLine:
    return read_launch_line(shlex.split(text), environ)


ROWS: list[tuple[str, list[str], int | None, int | None, int | None, str, tuple[str, ...]]] = [
    # text, launchers, nodes, ranks per node, world size, program, arguments
    ("torchrun train.py", ["torchrun"], 1, 1, 1, "train.py", ()),
    ("torchrun --nnodes 4 --nproc_per_node=8 train.py --lr 1", ["torchrun"], 4, 8, 32, "train.py", ("--lr", "1")),
    ("torchrun --nnodes=2:4 --rdzv_backend c10d --nproc-per-node 8 t.py", ["torchrun"], 2, 8, None, "t.py", ()),
    ("torchrun --nnodes=2:4 --nproc-per-node 8 t.py", ["torchrun"], 4, 8, 32, "t.py", ()),  # static: it waits for all
    ("torchrun --standalone --nproc-per-node 2 -m pkg.train", ["torchrun"], 1, 2, 2, "pkg.train", ()),
    ("torchrun --nproc-per-node gpu train.py", ["torchrun"], 1, None, None, "train.py", ()),
    ("torchrun --nproc 4 train.py", ["torchrun"], 1, 4, 4, "train.py", ()),
    ("python3.11 -m torch.distributed.run --nnodes 2 t.py -m x", ["torchrun"], 2, 1, 2, "t.py", ("-m", "x")),
    ("python -u -m torch.distributed.launch --use_env --nproc_per_node 2 t.py", ["torchrun"], 1, 2, 2, "t.py", ()),
    ("srun -N4 --ntasks-per-node=2 python3 -u train.py", ["srun"], 4, 2, 8, "train.py", ()),
    ("srun -N 4 train", ["srun"], 4, 1, 4, "train", ()),
    ("srun -n8 -u ./a.out -N 3", ["srun"], None, None, 8, "./a.out", ("-N", "3")),
    ("srun -N2-4 a", ["srun"], 2, None, None, "a", ()),
    ("srun -N 2 torchrun --nnodes 2 --nproc-per-node 8 t.py", ["srun", "torchrun"], 2, 8, 16, "t.py", ()),
    ("mpirun -np 16 -H a:8,b:8 --mca btl tcp,self python3 t.py", ["openmpi"], 2, 8, 16, "t.py", ()),
    ("mpirun --map-by ppr:4:node -np 8 --hostfile h t", ["openmpi"], None, 4, 8, "t", ()),
    ("/usr/bin/mpiexec -n 8 -ppn 4 -hosts a,b -genv X 5 ./a.out", ["hydra"], 2, 4, 8, "./a.out", ()),
    ("mpirun -np 2 a : -np 4 b", ["openmpi"], None, None, 6, "a", ()),
    ("mpirun -np 2 a : b", ["openmpi"], None, None, None, "a", ()),
    ("msrun --worker_num=16 --local_worker_num=8 --join=True t.py --c y", ["msrun"], 2, 8, 16, "t.py", ("--c", "y")),
    ("msrun t.py", ["msrun"], 1, 8, 8, "t.py", ()),
    (
        "accelerate launch --num_processes 16 --num_machines 2 --main_process_ip a t.py",
        ["accelerate"],
        2,
        8,
        16,
        "t.py",
        (),
    ),
    ("accelerate launch --config_file c.yaml t.py", ["accelerate"], None, None, None, "t.py", ()),
    ("deepspeed --include a:0,1@b:0,1 t.py --deepspeed x", ["deepspeed"], 2, 2, 4, "t.py", ("--deepspeed", "x")),
    ("deepspeed --num_gpus 8 t.py", ["deepspeed"], None, 8, None, "t.py", ()),
    ("python train.py --nnodes 3", [], 1, 1, 1, "train.py", ("--nnodes", "3")),
    ("./train.py", [], 1, 1, 1, "./train.py", ()),
    ("./train", [], None, None, None, "./train", ()),
    ("make train", [], None, None, None, "make", ("train",)),
    ("bash -c 'cd x && torchrun --nnodes 2 t.py'", ["torchrun"], 2, 1, 2, "t.py", ()),
    ("bash run.sh 1", [], None, None, None, "run.sh", ("1",)),
    ("nohup timeout -k 5 30m numactl -N 0 torchrun t.py", ["torchrun"], 1, 1, 1, "t.py", ()),
    ("docker run --rm -it -v a:b img:1 torchrun --nproc-per-node 8 t.py", ["torchrun"], 1, 8, 8, "t.py", ()),
    ("apptainer exec --nv -B /d i.sif bash -c 'torchrun t.py'", ["torchrun"], 1, 1, 1, "t.py", ()),
    ("kubectl exec -it pod -c main -- torchrun t.py", ["torchrun"], 1, 1, 1, "t.py", ()),
    ("ssh -p 22 root@n2 'cd /w; torchrun --nnodes 2 t.py'", ["ssh", "torchrun"], 2, 1, 2, "t.py", ()),
    ("conda run -n e torchrun t.py", ["torchrun"], 1, 1, 1, "t.py", ()),
    ("nice -5 sudo -E torchrun t.py", ["torchrun"], 1, 1, 1, "t.py", ()),
    ("torchrun --no-python ./run.sh a", ["torchrun"], 1, 1, 1, "./run.sh", ("a",)),
]


@pytest.mark.parametrize(("text", "launchers", "nodes", "per_node", "world", "program", "arguments"), ROWS)
def test_launch_lines(
    text: str,
    launchers: list[str],
    nodes: int | None,
    per_node: int | None,
    world: int | None,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    result = line(text)
    assert [call.launcher for call in result.launchers] == launchers
    assert (result.nodes, result.ranks_per_node, result.world_size) == (nodes, per_node, world)
    assert (result.program, result.arguments) == (program, arguments)
    assert not result.problems


VARIABLES: list[tuple[str, dict[str, str], tuple[str, ...], bool]] = [
    ("A=1 B='x y' torchrun t.py", {"A": "1", "B": "x y"}, (), True),
    ("env -u C A=1 torchrun t.py", {"A": "1"}, (), True),
    ("A=1 env -i B=2 torchrun t.py", {"B": "2"}, (), False),
    ("srun --export=ALL,A=1 torchrun t.py", {"A": "1"}, (), True),
    ("srun --export=NONE torchrun t.py", {}, (), False),
    ("B=1 srun --export=B,C torchrun t.py", {"B": "1"}, ("C",), False),
    ("mpirun -x A=1 -x B --mca btl tcp t", {"A": "1", "OMPI_MCA_btl": "tcp"}, (), True),
    ("mpiexec.hydra -genv A 1 t", {"A": "1"}, (), True),
    ("docker run -e A=1 --env B img torchrun t.py", {"A": "1"}, ("B",), False),
    ("A=0 docker run -e B img env C=2 torchrun t.py", {"C": "2"}, ("B",), False),
    ("bash -c 'export A=1; B=2; C=3 torchrun t.py'", {"A": "1", "C": "3"}, (), True),
]


@pytest.mark.parametrize(("text", "environ", "passed", "inherits"), VARIABLES)
def test_variables_of_the_program(text: str, environ: dict[str, str], passed: tuple[str, ...], inherits: bool) -> None:
    result = line(text)
    assert (result.environ, result.passed, result.inherits_environment) == (environ, passed, inherits)


def test_removed_variables() -> None:
    assert line("env -u C -u D D=1 torchrun t.py").removed == {"C"}


def test_rendezvous() -> None:
    call = line("torchrun --node_rank 1 --master_addr n1 --master-port=29501 t.py").launchers[0]
    assert (call.node_rank, call.master_addr, call.master_port) == (1, "n1", 29501)
    call = line("torchrun --rdzv-backend=c10d --rdzv_endpoint n1:29400 --rdzv-id 7 t.py").launchers[0]
    assert (call.rdzv_backend, call.rdzv_endpoint, call.option("rdzv-id")) == ("c10d", "n1:29400", "7")


@pytest.mark.parametrize(
    ("variables", "refused", "is_single"),
    [
        ({"PET_STANDALONE": "1"}, ["--nnodes"], True),
        ({"PET_STANDALONE": "0"}, [], False),
        ({"PET_STANDALONE": "yes"}, ["--standalone"], False),
        ({"PET_MODULE": "1"}, ["--module"], False),
        ({"PET_HELP": "1"}, [], False),
    ],
)
def test_flags_of_torchrun_in_variables(variables: dict[str, str], refused: list[str], is_single: bool) -> None:
    """As ``int`` reads them: torch/distributed/argparse_util.py, `check_env`."""
    (call,) = line("torchrun --nnodes 2 t.py", variables).launchers
    assert [problem.option for problem in call.problems] == refused
    assert call.standalone == is_single


def test_torchrun_takes_its_defaults_from_variables() -> None:
    result = line("torchrun --nproc-per-node 2 t.py", {"PET_NNODES": "3", "PET_NPROC_PER_NODE": "8"})
    assert (result.nodes, result.ranks_per_node) == (3, 2)


def test_intel_mpi_is_found_by_its_environment() -> None:
    assert line("mpirun -np 2 a", {"I_MPI_ROOT": "/opt/intel"}).launchers[0].launcher == "hydra"
    assert line("mpirun -np 2 a").launchers[0].launcher == "openmpi"


def test_hosts_of_the_line() -> None:
    assert line("mpirun -H a:8,b:8,a t").launchers[0].hosts == ("a", "b")
    assert line("srun -w n[1-2],m3 t").launchers[0].hosts == ("n[1-2]", "m3")
    assert line("ssh me@h torchrun t.py").launchers[0].hosts == ("h",)


UNRESOLVED: list[tuple[list[str | Word], dict[str, Any]]] = [
    (["torchrun", "--nnodes", Word("$N", "$N"), "t.py"], {"nodes": None, "ranks_per_node": 1, "program": "t.py"}),
    (["torchrun", Word("$ARGS", "$ARGS", True), "t.py"], {"nodes": None, "ranks_per_node": None, "world_size": None}),
    (["torchrun", "--bogus", "4", "t.py"], {"nodes": None, "world_size": None, "program": ""}),
    (["torchrun", "--bogus=4", "--nnodes", "2", "t.py"], {"nodes": 2, "world_size": None, "program": "t.py"}),
    ([Word("$LAUNCHER", "$LAUNCHER", True), "t.py"], {"program": ""}),
    (["srun", "-N", "2", "--multi-prog", "conf"], {"nodes": 2, "program": ""}),
    (["python", "-c", "import x"], {"program": "-c"}),
    (["bash", "-c", Word("$X", "$X")], {"program": ""}),
    (["torchrun"], {"program": ""}),
]


@pytest.mark.parametrize(("parts", "values"), UNRESOLVED)
def test_what_is_not_certain_is_not_guessed(parts: list[str | Word], values: dict[str, Any]) -> None:
    result = read_launch_line(parts)
    assert {name: getattr(result, name) for name in values} == values
    assert result.unresolved


def test_what_an_outer_shell_leaves_open_is_open_in_the_inner_one() -> None:
    def inner(text: str) -> LaunchLine:
        [line] = read_job_script(f'srun bash -c "{text}"').launch_lines
        return line

    result = inner("cd /w; torchrun --nnodes $N --nproc-per-node 4 t.py --a 1")
    assert (result.nodes, result.ranks_per_node, result.program, result.arguments) == (None, 4, "t.py", ("--a", "1"))
    assert result.unresolved == {"torchrun nnodes": "$N"}
    for text in ("torchrun --nnodes '$N' t.py", "torchrun --nnodes \\$N t.py", "N=3; torchrun --nnodes $N t.py"):
        assert (inner(text).launchers[-1].launcher, inner(text).nodes, inner(text).program) == (
            "torchrun",
            None,
            "t.py",
        )
        assert inner(text).unresolved == {"torchrun nnodes": "$N"}, text


REFUSED = ["--nnodes x", "--nnodes 4:2", "--nnodes 0", "--nproc-per-node many", "--node-rank -1", "--master-port 70000"]


@pytest.mark.parametrize("option", REFUSED)
def test_values_that_the_launcher_refuses(option: str) -> None:
    [problem] = line(f"torchrun {option} t.py").problems
    assert problem.launcher == "torchrun"
    assert problem.option == option.split(maxsplit=1)[0]
    assert problem.expected


@pytest.mark.parametrize("argv", [[], ["x"] * 10_000, ["x" * 2_000_000]])
def test_what_is_no_launch_line(argv: list[str]) -> None:
    with pytest.raises(NotALaunchLine):
        read_launch_line(argv)


def test_commands_in_one_another_are_bounded() -> None:
    assert "program" in read_launch_line(["env"] * 5000).unresolved


@pytest.mark.parametrize(
    ("text", "what"), [("make train", "make"), ("./start --fast", "./start"), ("numactl -N 0 run", "run")]
)
def test_a_program_that_may_be_a_launcher_is_no_single_rank(text: str, what: str) -> None:
    launch = line(text)
    assert launch.unresolved["program"] == f"{what} is no launcher that doctor knows"
    assert (launch.nodes, launch.world_size) == (None, None)
    of_a_rank = line(text, {"OMPI_COMM_WORLD_RANK": "3"})
    assert (of_a_rank.unresolved, of_a_rank.world_size) == ({}, 1)


def test_a_shell_script_says_how_it_is_read() -> None:
    for text in ("bash run.sh", "./run.sh"):
        assert "a shell script, which --job-script reads" in line(text).unresolved["program"]


def test_unresolved_words_behind_a_wrapper_may_be_the_launcher() -> None:
    """What is not known is not taken for a program without launcher."""
    words = [Word("exec"), Word("$LAUNCHER", "$LAUNCHER", may_be_several=True), Word("train.py")]
    assert read_launch_line(words).unresolved["program"] == "$LAUNCHER"
    assert "program" not in read_launch_line([*words[:2], Word("torchrun"), Word("train.py")]).unresolved


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("pdsh -w n[1-2] torchrun t.py", []),
        ("pdsh -l job -w n[1-2] torchrun t.py", ["-l", "job"]),
        ("clush -w n1,n2 torchrun t.py", []),
        ("clush -g gpu -o '-p 2222' torchrun t.py", ["-p", "2222"]),
        ("for h in n1 n2; do ssh $h torchrun t.py & done", []),
        ("while read -r h; do ssh -n -p 2222 job@$h torchrun t.py & done < hosts", ["-l", "job", "-p", "2222"]),
        ("for h in n1 n2; do ssh $LOGIN@$h torchrun t.py & done", None),
        ("pdsh -R exec -w n1 torchrun t.py", None),
        ("clush -R rsh -w n1 torchrun t.py", None),
        ("ssh n1 torchrun t.py", None),
        ("for h in n1 n2; do ssh -i $KEY $h torchrun t.py & done", None),
    ],
)
def test_lines_that_log_in_over_ssh_to_each_host(script: str, arguments: list[str] | None) -> None:
    """None: the line does not, or how it does so is not known."""
    line = read_job_script(script).job_line
    assert line is not None
    login = launcher_login(line, {})
    assert (login and [*login.arguments]) == arguments
