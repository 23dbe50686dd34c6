"""launch-option-refused."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import pytest

from doctor import Skip
from doctor.engine.record import LaunchOptions
from doctor.engine.result import Status
from doctor.environment.commands import openmpi_slots
from doctor.environment.job_environment import of_launch_line
from doctor.job import LaunchConfig
from doctor.session.lint_files import launches_of
from doctor.session.training_files import training_of_line
from tests.checks.launch_lines import config, run_check
from tests.checks.run_check import advice
from tests.checks.tables import check


def test_an_option_that_the_launcher_refuses() -> None:
    outcome = run_check("launch-option-refused", config("torchrun --nnodes four --master-port 0x t.py"))
    assert {finding.values["option"] for finding in outcome.findings} == {"--nnodes", "--master-port"}
    assert run_check("launch-option-refused", config("torchrun t.py")).status is Status.PASSED


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("torchrun --nnodes 2 --node_rank 2 t.py", "--node-rank"),
        ("torchrun --nnodes 1:3 --node_rank 2 t.py", ""),
        ("torchrun --nnodes 2 --node_rank 1 t.py", ""),
        ("torchrun --node_rank 1 t.py", ""),  # of one host, torchrun does not read it
        ("accelerate launch --num_machines 2 --machine_rank 2 --main_process_ip a t.py", "--machine-rank"),
    ],
)
def test_the_number_of_a_host_that_the_line_does_not_start(line: str, option: str) -> None:
    outcome = run_check("launch-option-refused", config(line))
    assert [finding.values["option"] for finding in outcome.findings] == ([option] if option else [])


def test_without_a_launch_line_there_is_nothing_to_judge() -> None:
    assert run_check("launch-option-refused", LaunchConfig()).status is Status.SKIPPED


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--node_rank=$UNSET", Status.UNKNOWN),
        ("--node_rank $UNSET", Status.UNKNOWN),
        ('--node_rank "$UNSET"', Status.UNKNOWN),
        ("--node_rank=${UNSET:?give the number}", Status.UNKNOWN),
        ("--node_rank $NODE_RANK", Status.PASSED),  # each host has its own
        ("--node_rank $MLP_ROLE_INDEX", Status.PASSED),
        ("--node_rank $machine_rank", Status.PASSED),
        ("--nproc_per_node $MLP_WORKER_GPU --master_port $MLP_WORKER_0_PORT", Status.PASSED),  # not in its sample
        ("--nproc_per_node $SLURM_GPUS_ON_NODE", Status.PASSED),
        ("--nproc_per_node $UNSET", Status.UNKNOWN),
        ("--nproc_per_node $((UNSET * 2))", Status.UNKNOWN),
        ("--node_rank=${UNSET:-1}", Status.PASSED),
        ("--node_rank=${UNSET:-7}", Status.FAILED),
        ("--node_rank=$SLURM_NODEID", Status.PASSED),  # of srun, for each host
        ("--rdzv_id=$(uuidgen)", Status.PASSED),
        ("$UNSET", Status.UNKNOWN),
        ("--node_rank=$EMPTY", Status.FAILED),
        ('--node_rank "$EMPTY"', Status.FAILED),
        ("--node_rank $EMPTY", Status.FAILED),  # the word vanishes, and the next is the value
        ('--nnodes "$EMPTY"', Status.FAILED),
    ],
)
def test_a_variable_in_the_line_of_a_job_script(tmp_path: Path, words: str, status: Status) -> None:
    """As bash and torchrun do it: an empty word is ``invalid int value: ''`` (torchrun of PyTorch 2.13)."""
    script = tmp_path / "run.sh"
    script.write_text(f"EMPTY=\ntorchrun --nnodes 2 {words} --master_addr n1 train.py\n")
    (launch,) = launches_of([str(script)], [], LaunchOptions(), {})
    assert run_check("launch-option-refused", LaunchConfig.from_options(launch)).status is status


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("srun -N 2 torchrun --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint n1:1 t.py", "add `--nnodes 2`"),
        ("torchrun --nproc-per-node 8 python t.py", "as in `torchrun train.py`"),
        ("accelerate launch --num_machines 2 --num_processes 4 t.py", "add `--main_process_ip <address>`"),
    ],
)
def test_the_remedy_says_what_to_write(line: str, remedy: str) -> None:
    todo = advice("launch-option-refused", run_check("launch-option-refused", config(line)))
    assert remedy in todo
    assert todo.count("add `") <= 1


@pytest.fixture
def openmpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Open MPI's mpirun on the PATH, for root, with files of two cores."""
    (tmp_path / "orterun").write_text("#!/bin/sh\n")
    (tmp_path / "orterun").chmod(0o755)
    (tmp_path / "mpirun").symlink_to("orterun")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for cpu in range(4):
        (tmp_path / f"cpu{cpu}").write_text(f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "environ", "is_refused"),
    [
        ("mpirun -np 2 python t.py", {}, True),
        ("timeout 9 mpirun -np 2 python t.py", {}, True),
        ("env OMPI_ALLOW_RUN_AS_ROOT=1 mpirun -np 2 python t.py", {}, True),
        ("mpirun --allow-run-as-root -np 2 python t.py", {}, False),
        ("mpirun -np 2 python t.py", {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}, False),
        ("sudo -u job mpirun -np 2 python t.py", {}, False),
        ("docker run image mpirun -np 2 python t.py", {}, False),
        ("mpirun $OPTIONS -np 2 python t.py", {}, True),
    ],
)
def test_open_mpi_as_root(openmpi: Path, line: str, environ: dict[str, str], is_refused: bool) -> None:
    launch = of_launch_line(shlex.split(line), environ).complete(LaunchOptions())
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch))
    options = [(finding.values["option"], finding.is_warning) for finding in outcome.findings]
    assert options == ([("--allow-run-as-root", False)] if is_refused else [])


REFUSED = [
    ("--rankfile absent", {}, ["--rankfile"]),
    ("-rf {}/absent", {}, ["--rankfile"]),
    ("--rankfile {}/file", {}, []),
    ("--app {}/absent", {}, ["--app"]),
    ("", {"OPAL_PREFIX": "{}/absent"}, ["OPAL_PREFIX"]),
    ("", {"OPAL_PREFIX": "{}/file"}, ["OPAL_PREFIX"]),
    ("", {"OPAL_PREFIX": "{}"}, []),
    ("", {"OPAL_PREFIX": ""}, []),
    ("-x OPAL_PREFIX={}/file", {}, []),
    ("", {"TMPDIR": "{}/file"}, ["TMPDIR"]),
    ("", {"TMPDIR": "{}/file/new"}, ["TMPDIR"]),
    ("", {"TMPDIR": "{}/new/new"}, []),  # mpirun makes it
    ("", {"TMPDIR": "{}"}, []),
    ("-x TMPDIR={}/file", {}, []),  # for the ranks
    ("-x TMPDIR={}/new", {"TMPDIR": "{}/file"}, []),
    ("--mca orte_tmpdir_base /tmp", {"TMPDIR": "{}/file"}, []),
    ("", {"TMPDIR": "{}/file", "OMPI_MCA_orte_tmpdir_base": "/tmp"}, []),
]


@pytest.mark.parametrize(("options", "environ", "refused"), REFUSED)
def test_what_open_mpi_needs_on_this_host(
    openmpi: Path, options: str, environ: dict[str, str], refused: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mpirun of Open MPI 4.1.4 ends, or does not."""
    monkeypatch.chdir(openmpi)
    (openmpi / "file").touch()
    variables = {name: value.format(openmpi) for name, value in environ.items()}
    words = ["mpirun", "--allow-run-as-root", "-np", "2", *shlex.split(options.format(openmpi)), "python", "t.py"]
    launch = of_launch_line(words, variables).complete(LaunchOptions())
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch))
    assert [finding.values["option"] for finding in outcome.findings] == refused
    inside = of_launch_line(["docker", "run", "image", *words], variables).complete(LaunchOptions())
    assert not run_check("launch-option-refused", LaunchConfig.from_options(inside)).findings
    for name in {"OPAL_PREFIX", "TMPDIR"}.intersection(refused):
        assert f"`unset {name}`" in advice("launch-option-refused", outcome)


def test_another_mpi_takes_root(openmpi: Path) -> None:
    """MPICH and Intel MPI do, and have no slots."""
    (openmpi / "orterun").rename(openmpi / "hydra")
    (openmpi / "mpirun").unlink()
    (openmpi / "mpirun").symlink_to("hydra")
    launch = of_launch_line(["mpirun", "-np", "9", "python", "t.py"], {}).complete(LaunchOptions())
    assert not run_check("launch-option-refused", LaunchConfig.from_options(launch)).findings
    assert openmpi_slots("mpirun", str(openmpi / "cpu*")) == 0


def test_slots_are_cores_unless_its_parameters_lift_the_limit(openmpi: Path) -> None:
    assert openmpi_slots("mpirun", str(openmpi / "cpu*")) == 2
    parameters = openmpi.parent / "etc" / "openmpi-mca-params.conf"
    parameters.parent.mkdir(exist_ok=True)
    for text, slots in (("# rmaps_base_oversubscribe = 1\n", 2), ("rmaps_base_oversubscribe = 1\n", 0)):
        parameters.write_text(text)
        assert openmpi_slots("mpirun", str(openmpi / "cpu*")) == slots


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [("-np 3", True), ("-np 2", False), ("-np 3 --oversubscribe", False), ("-np 3 --map-by :OVERSUBSCRIBE", False)],
)
def test_more_ranks_than_cores(options: str, is_refused: bool) -> None:
    source = of_launch_line(["mpirun", *options.split(), "python", "t.py"], {})
    training = training_of_line(source.line, own_slots=2)
    assert training is not None
    messages: list[str] = []
    with contextlib.suppress(Skip):
        messages += map(str, check("launch-ranks-contradict").function(training))
    assert messages == (["mpirun starts 3 ranks, and this host has 2 slots"] if is_refused else [])


BEHIND = [
    ("msrun --worker_num=8 t.py --join=True --log_dir=x", {"--join": "True"}),
    ("torchrun t.py --nproc-per-node 8 --lr 3", {"--nproc-per-node": "8"}),
    ("torchrun t.py --standalone", {"--standalone": "before t.py"}),
    ("accelerate launch t.py --num_processes 8 --mixed_precision bf16", {"--num_processes": "8"}),
    ("mpirun --allow-run-as-root python3 t.py -np 8", {"-np": "8"}),
    ("srun python3 -m torch.distributed.run t.py --nnodes=2", {"--nnodes": "2"}),
    ("torchrun --nproc-per-node 8 t.py --nproc-per-node 8", {}),  # the program has it, too
    ("torchrun --nproc-per-node 8 t.py --num-nodes 2", {}),  # not torchrun's
    ("python3 -m sglang.launch_server --nnodes 2 --node-rank 0", {}),  # no launcher
    ("torchrun $MORE t.py --nnodes 2", {}),  # the launcher may have it
]


@pytest.mark.parametrize(("line", "options"), BEHIND)
def test_an_option_of_the_launcher_behind_the_program_is_given_to_the_program(
    line: str, options: dict[str, str]
) -> None:
    outcome = run_check("launch-option-refused", config(line))
    findings = {finding.values["option"]: finding.values["expected"] for finding in outcome.findings}
    assert findings.keys() == options.keys() and all(findings[name].startswith(text) for name, text in options.items())
    assert all(finding.is_warning for finding in outcome.findings)
