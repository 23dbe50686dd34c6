"""A rehearsal runs the user's own line with a stub: the program never starts, nothing stays, misfits are named."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

from doctor.watch.rehearsal import conduct
from doctor.watch.rehearsal.conduct import runs_of
from doctor.watch.rehearsal.judge import judge
from doctor.watch.rehearsal.rank_view import HostPlace, RankView, StubAnswer, view_of
from doctor.watch.rehearsal.substitute import CannotRehearse, rehearsed_line
from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_mpirun
from tests.schemas import schema_file

ROOT = Path(__file__).resolve().parents[2]
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("DOCTOR_", "SLURM_", "OMPI_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_"))
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A training program that leaves a trace if it ever starts."""
    path = tmp_path / "train.py"
    path.write_text("open('STARTED', 'w').close()\n")
    return path


def rehearse(folder: Path, *line: str, options: Sequence[str] = (), **environ: str) -> tuple[int, dict[str, Any]]:
    argv = [sys.executable, "-m", "doctor", "rehearse", "--json", *options, "--", *line]
    env = {**CLEAN, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off", **environ}
    done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=110)
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json.loads(schema_file("rehearsal").read_text("utf-8"))).validate(document)
    return done.returncode, document


def left_behind(folder: Path, *known: str) -> list[str]:
    return sorted({str(path.relative_to(folder)) for path in folder.rglob("*")} - {"train.py", *known})


def ranks(document: Mapping[str, Any]) -> list[tuple[int | None, int | None]]:
    return [(row["rank"], row["local_rank"]) for row in document["ranks"]]


@pytest.fixture
def msrun(tmp_path: Path) -> str:
    """PATH with MindSpore's msrun, emulated: `tests.watch.programs.msrun`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("programs") / "msrun.py", folder / "msrun")
    (folder / "msrun").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("more", [(), ("--join=True",)])
def test_msrun(program: Path, msrun: str, more: tuple[str, ...]) -> None:
    line = ("msrun", "--worker_num=4", "--local_worker_num=4", *more, program.name)
    code, document = rehearse(program.parent, *line, options=("--for", "60"), PATH=msrun)
    assert (code, [rank for rank, _ in ranks(document)]) == (0, [0, 1, 2, 3]), document
    assert not document["misfits"] and left_behind(program.parent, "bin", "bin/msrun") == []


def test_msrun_on_one_of_two_hosts(program: Path, msrun: str) -> None:
    sizes = ("--worker_num=4", "--local_worker_num=2", "--master_addr=192.0.2.1", "--join=True")
    code, document = rehearse(program.parent, "msrun", *sizes, "--node_rank=1", program.name, PATH=msrun)
    assert (code, [rank for rank, _ in ranks(document)], document["missing"]) == (12, [2, 3], [0, 1]), document
    code, document = rehearse(program.parent, "msrun", *sizes, program.name, PATH=msrun)
    assert (code, ranks(document), document["missing"]) == (12, 2 * [(None, None)], []), document
    assert not [misfit for misfit in document["misfits"] if misfit["severity"] == "error"]


def test_a_worker_without_a_number_elsewhere_is_a_misfit() -> None:
    views = [
        RankView(host="n1", pid=pid, rank=rank, local_rank=None, size=2, variables={})
        for pid, rank in ((1, 0), (2, None))
    ]
    assert [misfit.subject for misfit in judge(views)] == ["RANK"]
    later = [
        replace(rank_seen, rank=None, variables={**rank_seen.variables, "MS_ROLE": "MS_WORKER"}) for rank_seen in views
    ]
    assert not [misfit for misfit in judge(later) if misfit.subject == "RANK"]


def test_modules_beside_the_program_that_hide_others_are_named_and_not_run(program: Path) -> None:
    for name in ("queue", "json", "socket", "os", "helper"):
        program.with_name(f"{name}.py").write_text("open('STARTED', 'w').close()\n")
    for name in ("jax", "test", "torch"):
        program.with_name(name).mkdir()
    for name in ("jax", "test"):
        program.with_name(name).joinpath("__init__.py").write_text("")
    installed = program.with_name("lib") / "jax"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    line, elsewhere = (sys.executable, str(program)), program.parent / "lib"
    code, document = rehearse(elsewhere, *line, PYTHONPATH=f"{ROOT}:{elsewhere}")
    assert code == 0 and not list(program.parent.rglob("STARTED"))
    (misfit,) = [misfit for misfit in document["misfits"] if misfit["subject"] == "modules"]
    assert misfit["severity"] == "warning" and misfit["text"].endswith(": rename jax, json, queue, socket")
    document = rehearse(elsewhere, *line, PYTHONPATH=f"{ROOT}:{elsewhere}", PYTHONSAFEPATH="1")[1]
    assert sys.version_info < (3, 11) or not [
        misfit for misfit in document["misfits"] if misfit["subject"] == "modules"
    ]


def test_the_verdict_has_the_right_number_of_ranks(program: Path) -> None:
    argv = [sys.executable, "-m", "doctor", "rehearse", "--", "python3", program.name]
    done = subprocess.run(
        argv, env={**CLEAN, "PYTHONPATH": str(ROOT)}, cwd=program.parent, capture_output=True, text=True
    )
    assert "1 of 1 rank, on 1 host, in" in done.stdout


@pytest.mark.torch
def test_torchrun(program: Path) -> None:
    line = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--standalone",
        "train.py",
        "--lr",
        "1",
    )
    temporary = program.parent / "temporary"
    temporary.mkdir()
    user_variables = {"NCCL_DEBUG": "WARN", "HF_TOKEN": "hush-hush-1", "TMPDIR": str(temporary)}
    code, document = rehearse(program.parent, *line, **user_variables)
    assert not list(temporary.glob("torchelastic_*"))
    temporary.rmdir()
    assert (code, ranks(document)) == (0, [(0, 0), (1, 1)])
    assert document["ranks"][0]["variables"]["NCCL_DEBUG"] == "WARN"
    assert "hush" not in json.dumps(document)
    assert left_behind(program.parent) == []


@needs_mpirun
def test_mpirun(program: Path) -> None:
    run = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "3")
    code, document = rehearse(program.parent, *run, sys.executable, "train.py", options=("--for", "60"))
    assert (code, ranks(document)) == (0, [(0, 0), (1, 1), (2, 2)])
    assert left_behind(program.parent) == []


def test_a_plain_program_and_the_script_that_starts_it(program: Path) -> None:
    code, document = rehearse(program.parent, sys.executable, "train.py", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    assert (code, ranks(document)) == (0, [(0, 0)])
    code, document = rehearse(program.parent, sys.executable, "train.py")
    assert (code, ranks(document), document["missing"]) == (0, [(None, None)], [])
    code, document = rehearse(program.parent, sys.executable, "train.py", RANK="x", WORLD_SIZE="", LOCAL_RANK="0")
    (misfit,) = document["misfits"]
    assert (code, misfit["text"].partition(",")[0]) == (10, "RANK is 'x': expected a number")
    script = program.parent / "run.sh"
    script.write_text(
        f"touch RAN\nexport RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 NCCL_DEBUG=INFO\n{sys.executable} train.py\n"
    )
    code, document = rehearse(program.parent, "bash", "run.sh")
    assert (code, document["missing"]) == (12, [1])
    assert document["ranks"][0]["variables"]["NCCL_DEBUG"] == "INFO"
    assert left_behind(program.parent, "run.sh") == []


@pytest.mark.parametrize("line", [(sys.executable, "trian.py"), ("no-such-trian.py",), ("./trian.py",)])
def test_a_program_that_is_not_there_is_never_healthy(program: Path, line: tuple[str, ...]) -> None:
    argv = [sys.executable, "-m", "doctor", "rehearse", "--", *line]
    env = {**CLEAN, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off"}
    done = subprocess.run(argv, env=env, cwd=program.parent, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout) == (78, "") and "trian.py: there is no such file" in done.stderr


def test_a_launcher_that_is_not_there_is_named(program: Path) -> None:
    argv = [sys.executable, "-m", "doctor", "rehearse", "--", "srun", "-n2", "python3", "train.py"]
    env = {**CLEAN, "PYTHONPATH": str(ROOT), "PATH": "/nonexistent"}
    done = subprocess.run(argv, env=env, cwd=program.parent, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (78, "doctor: srun: there is no such program on this host\n")
    assert left_behind(program.parent) == []


def test_a_warning_is_in_the_verdict(program: Path) -> None:
    argv = [sys.executable, "-m", "doctor", "rehearse", "--", sys.executable, program.name]
    env = {**CLEAN, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off", "NCCL_ALGO": "Foo"}
    done = subprocess.run(argv, env=env, cwd=program.parent, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout.splitlines()[-1].split(":")[0]) == (0, "WARNINGS"), done.stdout + done.stderr


def test_a_launcher_that_hangs_is_ended(program: Path) -> None:
    launcher = program.parent / "env"
    launcher.write_text("#!/bin/sh\nsleep 1000 &\nsleep 1000\n")
    launcher.chmod(0o755)
    code, document = rehearse(program.parent, "./env", sys.executable, "train.py", options=("--for", "1"))
    assert (code, document["ranks"], document["launcher_exit"]) == (12, [], None)
    assert left_behind(program.parent, "env") == []


LINES = {
    "torchrun --nnodes 2 --node-rank 0 src/train.py --lr 1": "torchrun --log_dir=LOGS/log --nnodes 2 --node-rank 0 src/STUB --lr 1",
    "python -m torch.distributed.run --nproc-per-node=2 train.py": "python -m torch.distributed.run --log_dir=LOGS/log --nproc-per-node=2 STUB",
    "torchrun --log-dir=l train.py": "torchrun --log-dir=LOGS/log STUB",
    "torchrun -m pkg.train a b": "torchrun --log_dir=LOGS/log CWD/STUB a b",
    "python3 -m pkg.train a": "python3 CWD/STUB a",
    "srun -N2 --output=out.txt numactl --cpunodebind=0 python train.py": "srun -N2 --output=LOGS/log numactl --cpunodebind=0 python STUB",
    "srun -N2 ./train 4": "srun -N2 python3 ./STUB 4",
    "mpirun -np 2 -x A=1 python train.py train.py": "mpirun -np 2 -x A=1 python STUB train.py",
    "msrun --worker_num 8 --local_worker_num 8 train.py": "msrun --log_dir=LOGS/log --worker_num 8 --local_worker_num 8 STUB",
    "msrun --worker_num=2 --log_dir=l train.py": "msrun --worker_num=2 --log_dir=LOGS/log STUB",
    "deepspeed --num_gpus 2 train.py --deepspeed ds.json": "deepspeed --num_gpus 2 STUB --deepspeed ds.json",
    "accelerate launch --num_processes 2 train.py": "accelerate launch --num_processes 2 STUB",
    "accelerate launch --num_processes 2 -m pkg.train": "accelerate launch --num_processes 2 CWD/STUB",
    "env A=1 python train.py": "env A=1 python STUB",
    "bash -c torchrun%train.py%--lr%$1 me 3": 'bash -c exec "$@" bash env torchrun --log_dir=LOGS/log STUB --lr 3',
    "srun -N2 -e err bash -lc cd%sub;A=1%python%train.py": 'srun -N2 -e LOGS/log bash -lc exec "$@" bash env A=1 python STUB',
}


@pytest.mark.parametrize("line", LINES)
def test_the_program_alone_is_replaced(line: str) -> None:
    words = [word.replace("%", " ") for word in line.split()]
    rewritten = rehearsed_line(words, {}, "STUB", "LOGS")
    assert rewritten.folder == ("sub" if "cd%sub" in line else "")
    assert " ".join(rewritten.argv).replace(os.getcwd(), "CWD") == LINES[line]


@pytest.mark.parametrize(
    "line",
    [
        ["bash", "-c", "torchrun train.py; torchrun other.py"],
        ["bash", "-c", "cd $(mktemp -d); torchrun train.py"],
        ["bash", "-c", "if test -d a; then cd a; fi; torchrun train.py"],
        ["bash", "-c", "(cd a && make); torchrun train.py"],
        ["ssh", "n1", "bash -c 'torchrun train.py'"],
        ["sbatch", "--wrap", "srun python train.py"],
        ["srun", "bash", "train.sh"],
        ["python", "-c", "import train"],
        ["mpirun", "-np", "1", "a", ":", "-np", "1", "b"],
        ["ssh", "n1", "python train.py"],
        ["python"],
        ["torchrun", "$PROGRAM"],
        ["bash", "/nowhere/run.sh"],
        ["make", "train"],
    ],
    ids=" ".join,
)
def test_a_line_in_which_the_program_might_stay_is_refused(line: list[str]) -> None:
    if line[:2] == ["torchrun", "$PROGRAM"]:
        assert rehearsed_line(line, {}, "STUB", "LOGS").argv == ("torchrun", "--log_dir=LOGS/log", "STUB")
        return
    with pytest.raises(CannotRehearse):
        rehearsed_line(line, {}, "STUB", "LOGS")


def test_a_script_with_words_that_only_a_shell_knows_goes_on_as_it_stands(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("torchrun --node-rank $(hostname | tr -d a-z) train.py >out.log 2>&1 | tee -a all.log\n")
    line = rehearsed_line(["bash", str(script), "1"], {}, "STUB", "LOGS")
    text = "torchrun --log_dir=LOGS/log --node-rank $(hostname | tr -d a-z) STUB  >/dev/null 2>&1 | cat\n"
    assert line.argv == ("bash", "-c", text, str(script), "1")


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("export RANK=$PMI_RANK\npython -u train.py", [], ["export RANK=$PMI_RANK\npython -u STUB"]),
        ("if [[ $PMI_RANK > 3 ]]; then export A=$((PMI_RANK>1)); fi; python train.py >/dev/shm/$A.log 2>/dev/null", [],
         ["if [[ $PMI_RANK > 3 ]]; then export A=$((PMI_RANK>1)); fi; python STUB  >/dev/null 2>/dev/null"]),
        ("RANK=$PMI_RANK exec python -m pkg.train", [], [f"RANK=$PMI_RANK exec python {os.getcwd()}/STUB"]),
        ("source env.sh; P=run/train.py; A=$PMI_RANK python $P", [], ["source env.sh; P=run/STUB; A=$PMI_RANK python $P"]),
        ('A=$PMI_RANK exec "$@"', ["-", "python", "train.py", "-v"], ['A=$PMI_RANK exec "$@"', "-", "python", "STUB", "-v"]),
        ("A=$PMI_RANK; ./ring $A", [], ["A=$PMI_RANK; python3 ./STUB $A"]),
        ("if [ $PMI_RANK = 0 ]; then python train.py; else python train.py -q; fi", [],
         ["if [ $PMI_RANK = 0 ]; then python STUB; else python STUB -q; fi"]),
    ],
)  # fmt: skip
def test_text_that_each_rank_runs_goes_on_with_the_stub(text: str, arguments: list[str], words: list[str]) -> None:
    line = rehearsed_line(["mpirun", "-np", "2", "bash", "-c", text, *arguments], {}, "STUB", "LOGS")
    assert line.argv == ("mpirun", "-np", "2", "bash", "-c", *words)


@pytest.mark.parametrize(
    "text",
    [
        "python prepare.py; R=$PMI_RANK python train.py",
        "R=$(python prepare.py) python train.py",
        "R=`python prepare.py` python train.py",
        "R=$PMI_RANK python $PROGRAM",
        "R=$PMI_RANK bash inner.sh",
        "rm -rf out; R=$PMI_RANK python train.py",
        "sed -i s/a/b/ conf; R=$PMI_RANK python train.py",
        "R=$PMI_RANK python train.py > >(tee all.log)",
        "conda install x; R=$PMI_RANK python train.py",
        "cd $PMI_RANK; python train.py",
        "R=$PMI_RANK python -c 'print(1)'",
        "trap 'python train.py' EXIT; R=$PMI_RANK python other.py",
    ],
)
def test_text_that_starts_more_than_the_program_is_refused(text: str) -> None:
    with pytest.raises(CannotRehearse):
        rehearsed_line(["mpirun", "-np", "2", "bash", "-c", text], {}, "STUB", "LOGS")


def test_text_of_each_rank_is_followed_into_the_folder_of_its_program(program: Path) -> None:
    folder = program.parent / "code"
    folder.mkdir()
    program.rename(folder / "train.py")
    script = program.parent / "run.sh"
    script.write_text(
        "echo begin | tee all.log\ncd code\nfor i in 0 1; do\n"
        f"RANK=$i WORLD_SIZE=2 LOCAL_RANK=$i {sys.executable} train.py >$i.log &\ndone\nwait\n"
    )
    code, document = rehearse(program.parent, "bash", "run.sh", options=("--for", "60"))
    assert (code, ranks(document)) == (0, [(0, 0), (1, 1)]), document
    assert left_behind(program.parent) == ["code", "code/train.py", "run.sh"]


@needs_mpirun
def test_wrapper_scripts_of_each_rank(program: Path) -> None:
    wrapper = program.with_name("wrap")
    wrapper.write_text(
        '#!/bin/sh\nexport NCCL_DEBUG=of-$OMPI_COMM_WORLD_RANK CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_RANK\nexec "$@"\n'
    )
    wrapper.chmod(0o755)
    run = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2", "./wrap")
    code, document = rehearse(program.parent, *run, sys.executable, "train.py", options=("--for", "60"))
    assert (code, ranks(document)) == (0, [(0, 0), (1, 1)]), document
    assert [row["variables"]["NCCL_DEBUG"] for row in document["ranks"]] == ["of-0", "of-1"]
    assert left_behind(program.parent, "wrap") == []


@needs_mpirun
def test_a_program_in_another_folder_and_several_programs_of_one_line(program: Path) -> None:
    folder = program.parent / "code"
    folder.mkdir()
    (folder / "other.py").write_text(program.read_text())
    program.rename(folder / "train.py")
    run = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-wdir", str(folder), "-np", "1")
    more = (":", "-np", "1", "-wdir", str(folder), "-x", "ROLE=second", sys.executable, "other.py")
    code, document = rehearse(program.parent, *run, sys.executable, "train.py", *more, options=("--for", "60"))
    assert (code, ranks(document)) == (0, [(0, 0), (1, 1)]), document
    assert left_behind(program.parent) == ["code", "code/other.py", "code/train.py"]


def test_scripts_that_start_themselves_or_another(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``$0`` starts the text with the stub, never the file."""
    python = sys.executable
    texts = {
        "again.sh": f'[ -n "$AGAIN" ] || AGAIN=1 exec $0 "$@"\nexport RANK=$1 WORLD_SIZE=1\n{python} train.py\n',
        "child.sh": f'if [ "$1" != child ]; then bash "$0" child "$@"; exit $?; fi\nRANK=$2 WORLD_SIZE=1 {python} train.py\n',
        "outer.sh": "exec bash inner.sh 0\n",
        "inner.sh": f"export RANK=$1 WORLD_SIZE=1\n{python} train.py\n",
        "each.sh": "exec bash rank.sh 0\n",
        "rank.sh": f"export RANK=$OF_LAUNCHER WORLD_SIZE=1\n{python} train.py\n",
    }
    for name, text in texts.items():
        program.with_name(name).write_text(text)
        program.with_name(name).chmod(0o755)
    lines = ["bash again.sh 0", "bash child.sh 0", "./outer.sh", "bash -c %bash inner.sh 0"]
    for line in lines:
        head, _, rest = line.partition("%")
        words = [*head.split(), rest] if rest else head.split()
        code, document = rehearse(program.parent, *words, options=("--for", "60"), OF_LAUNCHER="0")
        assert (code, ranks(document)) == (0, [(0, 0)]) or ranks(document) == [(0, None)], (line, document)
        assert left_behind(program.parent, *texts) == []
    monkeypatch.chdir(program.parent)
    argv = rehearsed_line(["mpirun", "-np", "2", "bash", "each.sh"], {}, "STUB", "LOGS").argv
    inner = f"export RANK=$OF_LAUNCHER WORLD_SIZE=1\n{python} STUB\n"
    assert argv == ("mpirun", "-np", "2", "bash", "-c", f"exec bash -c {shlex.quote(inner)} rank.sh 0\n", "each.sh")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("set -e\nset_up_all\nLAUNCH", "line 2: set_up_all: command not found"),
        ("[ -f absent.yaml ] || exit 1\nLAUNCH", "line 1: the script ends behind `exit 1`, with exit code 1"),
        ("exit 0\nLAUNCH", "exit in line 1; expected it behind line 2"),
        ("go() {\nLAUNCH\n}\necho go", "line 4: the script ends behind `echo go`"),
        ("MODE=test\ncase $MODE in\ntrain) LAUNCH ;;\nesac", "behind `case $MODE in `"),
        ("MODE=train\ncase $MODE in\ntrain) LAUNCH ;;\nesac", ""),
        ("go() {\nLAUNCH\n}\ngo() {\n:\n}\ngo", "line 7: the script ends behind `:`"),
        ("shopt -s nullglob\nfor c in *.none; do\nLAUNCH\ndone", "behind `shopt -s nullglob`"),
        ("for c in *.sh; do\nLAUNCH\nbreak\ndone", ""),
        ("go() {\nif [ -f run.sh ]; then return; fi\nLAUNCH\n}\ngo", "behind `return`"),
        ("go() {\nif [ ! -f run.sh ]; then return; fi\nLAUNCH\n}\ngo", ""),
        (". $PWD/ends.sh\nLAUNCH", "line 1: the script ends behind `exit 3`, with exit code 3"),
        ("PATH=$PWD:$PATH\nsource ends.sh\nLAUNCH", "exit in line 2; expected it behind line 3"),
        ("( . ./ends.sh )\nLAUNCH", ""),
        ("set -eo pipefail\nfalse | cat\nLAUNCH", "line 2: the script ends behind `cat`, with exit code 1"),
        ("set -e\nfalse | cat\nLAUNCH", ""),
        ("set -e\nX=$(false)\nLAUNCH", "line 2: the script ends behind `false`, with exit code 1"),
        ("set -e\nexport X=$(false)\nLAUNCH", ""),
        ("kill $$\nLAUNCH", "line 1: the script ends behind `kill $$`, with exit code -15"),
        ("if [ -f run.sh ]; then\nLAUNCH\nelse\npython3 other.py\nfi", ""),
        ("source ./functions.sh\nset_up\nstart train.py", ""),
        ("set -e\n[ -f train.py ] || exit 1\nset_up() { export A=1; }\nset_up\nLAUNCH", ""),
    ],
)
def test_what_ends_a_script_before_its_launch_line_is_an_error(text: str, message: str, program: Path) -> None:
    start = f'{sys.executable} "$@"'
    program.with_name("functions.sh").write_text(f"set_up() {{ export RANK=0 A=1; }}\nstart() {{ {start}; }}\n")
    program.with_name("ends.sh").write_text("exit 3\n")
    line = text.replace("LAUNCH", f"RANK=0 WORLD_SIZE=1 {sys.executable} train.py")
    program.with_name("run.sh").write_text(line + "\n")
    code, document = rehearse(program.parent, "bash", "run.sh", options=("--for", "60"))
    assert left_behind(program.parent, "ends.sh", "functions.sh", "run.sh") == []
    errors = [row["message"] for row in document["checks"] if row["severity"] == "error"]
    assert (code, len(errors)) == ((10, 1) if message else (0, 0)), document
    assert message in "".join(errors)
    subprocess.run(["bash", "run.sh"], cwd=program.parent, env=CLEAN, capture_output=True, check=False, timeout=60)
    assert (program.parent / "STARTED").exists() is not bool(message)


@pytest.mark.parametrize(
    ("text", "new_text"),
    [
        ("torchrun --nnodes=$1 $(cd $(dirname $0); pwd)/train.py", "torchrun --log_dir=LOGS/log --nnodes=$1 $(cd $(dirname $0); pwd)/STUB.py"),
        ('D=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\npython $D/train.py', 'D=$(cd "$(dirname "$0")" && pwd)\npython $D/STUB.py'),
        ("N=$(python -c 'import torch; print(torch.cuda.device_count())')\nG=$(nvidia-smi -L | wc -l)\nX=$N$G$PPID python train.py",
         "N=$(python -c 'import torch; print(torch.cuda.device_count())')\nG=$(nvidia-smi -L | wc -l)\nX=$N$G$PPID python STUB.py"),
        ("torchrun train.py 2>&1 | grep -v warning", ""),
        ("torchrun $(cd $(dirname $0)/..; pwd)/train.py", None),
        ("N=$(nvidia-smi -r | wc -l) python train.py", None),
        ("N=$(python -c 'import torch; torch.save(1, \"a\"); print(torch.cuda.device_count())') python train.py", None),
    ],
)  # fmt: skip
def test_a_script_that_computes_its_folder_and_counts_devices(text: str, new_text: str | None, tmp_path: Path) -> None:
    """``new_text``: empty: the launch line alone is run; None: it is refused."""
    (tmp_path / "run.sh").write_text(text)
    with contextlib.nullcontext() if new_text is not None else pytest.raises(CannotRehearse):
        line = rehearsed_line(["bash", str(tmp_path / "run.sh")], {}, "STUB.py", "LOGS")
        if new_text:
            assert line.argv[:3] == ("bash", "-c", new_text)
            in_folder = "/train.py" in text
            assert line.program == (f"{tmp_path}/./STUB.py" if in_folder else "STUB.py")
        else:
            assert line.argv == ("torchrun", "--log_dir=LOGS/log", "STUB.py")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "for s in train.py eval.py; do torchrun $s; done",
            r"launch line, with values: doctor rehearse -- torchrun \$s$",
        ),
        ("RDZV_ID=7 lmf train a.yaml", "llamafactory.launcher is not among the words"),
        ('[ "$A" ] || exec ssh n2 bash $0\npython train.py $A', "2 programs"),
        ('[ "$A" ] || exec mpirun -np 1 bash $0 : python other.py\npython train.py $A', "2 programs"),
        ('[ "$A" ] || python other.py "bash $0"\npython train.py $A', "2 programs; expected one: other.py, train.py"),
    ],
)
def test_a_refused_script_says_what_to_type(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(text)
    with pytest.raises(CannotRehearse, match=reason):
        rehearsed_line(["bash", str(tmp_path / "run.sh")], {}, "STUB", "LOGS")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NPROC_PER_NODE=2 /v/swift sft -x 1", "/v/torchrun --log_dir=LOGS/log --nproc_per_node 2 STUB -x 1"),
        ("swift sft --model x", "python3 STUB --model x"),
        ("NNODES=2 lmf train a", "torchrun --log_dir=LOGS/log --nproc-per-node auto --nnodes 2 STUB a"),
        ("srun llamafactory-cli train a", "srun torchrun --log_dir=LOGS/log --nproc-per-node auto --standalone STUB a"),
        ("tune run --nproc_per_node 2 full -c x", "torchrun --log_dir=LOGS/log --nproc_per_node 2 STUB -c x"),
        ("axolotl train c.yml --num-processes 2", "accelerate launch --num_processes 2 STUB c.yml"),
    ],
)
def test_a_framework_s_command_is_rehearsed_by_what_it_starts(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(text)
    argv = rehearsed_line(["bash", str(tmp_path / "run.sh")], {}, "STUB", "LOGS").argv
    assert " ".join(argv).replace(f"{os.getcwd()}/", "") == words


def test_a_wrapper_gets_the_words_behind_it(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text('set -e\nexec torchrun --nproc-per-node "${2:-1}" train.py --lr "$1" "$@"\n')
    argv = rehearsed_line(["bash", str(script), "3e-4", "4"], {}, "STUB", "LOGS").argv
    assert argv == ("torchrun", "--log_dir=LOGS/log", "--nproc-per-node", "4", "STUB", "--lr", "3e-4", "3e-4", "4")
    script.write_text('shift $1\nexec "$@"\n')
    with pytest.raises(CannotRehearse):
        rehearsed_line(["bash", str(script), "torchrun", "train.py"], {}, "STUB", "LOGS")


@pytest.mark.parametrize(
    ("moves", "folder"),
    [
        ('cd "$(dirname "$0")"', "jobs/."),
        ('cd "${0%/*}"/../code', "jobs/./../code/."),
        ('cd "$(dirname "${BASH_SOURCE[0]}")/src" && cd deep', "jobs/./src/./deep"),
        ("cd /srv/code || exit 1", "/srv/code"),
    ],
)
def test_a_script_is_followed_into_its_folder(
    moves: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "run.sh").write_text(f"{moves}\ntorchrun -m pkg.train\n")
    rehearsed = rehearsed_line(["bash", "jobs/run.sh"], {}, "STUB", "LOGS")
    assert os.path.normpath(rehearsed.folder) == os.path.normpath(folder)
    assert os.path.normpath(rehearsed.argv[-1]) == os.path.normpath(tmp_path / folder / "STUB")


@pytest.mark.parametrize("line", [["bash", "job.sh"], ["sbatch", "-N3", "job.sh"]], ids=" ".join)
def test_a_job_script_of_slurm_is_rehearsed_in_its_allocation(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, srun starts one rank, and nothing of the job was seen."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH -N 2\n#SBATCH -n 4 -o out\nsrun python train.py\n")
    with pytest.raises(CannotRehearse, match=r"salloc --nodes=\d --ntasks=4 doctor rehearse -- bash job.sh"):
        rehearsed_line(line, {}, "STUB", "LOGS")
    if line[0] == "bash":
        inside = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}
        assert rehearsed_line(line, inside, "STUB", "LOGS").argv == ("srun", "python", "STUB")


ANSWER = StubAnswer(
    host="n1",
    pid=1,
    uid=0,
    folder="/job",
    python="/usr/bin/python3",
    version="3.11.2",
    variables={},
    cpus=list(range(8)),
    permitted=list(range(16)),
    memory_nodes="0-1",
    place=HostPlace(
        cpus_of_nodes={"0": "0-7", "1": "8-15"},
        nodes_with_memory="0-1",
        accelerators=[("0000:17:00.0", 0), ("0000:65:00.0", 0), ("0000:b1:00.0", 1), ("0000:e2:00.0", 1)],
        interfaces={"eth0": 0, "eth1": 1, "bond0": -1},
        adapters={"mlx5_0": 0, "mlx5_1": 1},
    ),
    limits={"Max open files": "1024"},
    shm=64 << 20,
    master=["10.0.0.1"],
    store="",
)
"""A made-up answer: two sockets with two GPUs and an adapter each."""


def test_a_run_that_follows_another_one_is_no_second_process_of_its_rank() -> None:
    def rank_0(began: int, ended: int, host: str = "n1") -> RankView:
        return msgspec.structs.replace(job(1, 1)[0], host=host, pid=began, began=began, ended=ended)

    first, later, beside = rank_0(100, 110), rank_0(112, 120), rank_0(109, 119)
    assert runs_of([later, first]) == [(first,), (later,)]
    for together in (
        [first, beside],
        [first, rank_0(112, 120, "n2")],  # the clock of another host
        [rank_0(0, 0), later],  # not known
        [first, msgspec.structs.replace(later, rank=None)],
    ):
        assert [len(run) for run in runs_of(together)] == [2]


def job(hosts: int = 2, per_host: int = 4) -> list[RankView]:
    """Ranks that fit."""
    views = []
    for rank in range(hosts * per_host):
        local = rank % per_host
        cpus = list(range(local * 4, local * 4 + 4))
        variables = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(hosts * per_host),
            "NCCL_ALGO": "Ring",
        }
        host = f"n{1 + rank // per_host}"
        changed = {"host": host, "pid": 100 + rank, "cpus": cpus, "variables": {**variables, "HOSTNAME": host}}
        views.append(view_of(replace(ANSWER, **changed)))
    return views


def subjects(views: Sequence[RankView]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(misfit.severity, misfit.subject, misfit.ranks) for misfit in judge(views)]


def changed(number: int, views: list[RankView], **fields: Any) -> list[RankView]:
    return [replace(view, **fields) if view.rank == number else view for view in views]


def with_variable(rank: int, name: str, value: str) -> list[RankView]:
    views = job()
    return changed(rank, views, variables={**views[rank].variables, name: value})


@pytest.mark.parametrize("fault", ["none", "cut", "altered", "too large"])
def test_only_a_whole_printed_answer_counts(program: Path, fault: str) -> None:
    """A launcher cuts and mixes lines; some gigabytes of zeros pack into a short answer."""
    text = msgspec.json.encode(ANSWER)
    data = zlib.compress(text + b" " * (conduct.MAX_ANSWER if fault == "too large" else 0))
    data = {"cut": data[:-1], "altered": data[:-1] + bytes([data[-1] ^ 1])}.get(fault, data)
    launcher = program.parent / "env"
    launcher.write_text(f"#!/bin/sh\necho '{conduct.MARK}n1 0 1 {base64.b64encode(data).decode()}'\n")
    launcher.chmod(0o755)
    result = conduct.rehearse([str(launcher), sys.executable, str(program)], {}, 20)
    assert [view.host for view in result.views] == (["n1"] if fault == "none" else [])


def test_ranks_that_fit() -> None:
    assert subjects(job()) == []
    assert subjects(job(hosts=1, per_host=1)) == []


def test_a_variable_that_one_rank_has_otherwise() -> None:
    assert subjects(with_variable(5, "NCCL_ALGO", "Tree")) == [("error", "NCCL_ALGO", (5,))]
    assert subjects(with_variable(5, "OMP_NUM_THREADS", "1")) == [("warning", "OMP_NUM_THREADS", (5,))]
    assert subjects(with_variable(5, "LD_LIBRARY_PATH", "/old")) == [("warning", "LD_LIBRARY_PATH", (5,))]
    (misfit,) = judge(with_variable(5, "NCCL_ALGO", "Tree"))
    assert misfit.text == "rank 5 on n2: NCCL_ALGO is Tree; 7 of 8 ranks have Ring"


def test_a_limit_that_one_rank_has_otherwise() -> None:
    limits = (
        {"Max address space": "unlimited"},
        {"Max address space": "614400000"},
        {"Max address space": "unlimited"},
    )
    variables = ({"RANK": str(number)} for number in range(3))
    views = [view_of(replace(ANSWER, limits=user_variables, variables=next(variables))) for user_variables in limits]
    (misfit,) = [misfit for misfit in judge(views) if "address space" in misfit.text]
    assert (misfit.severity, misfit.ranks) == ("warning", (1,))


def test_variables_of_each_rank_and_host_are_no_difference() -> None:
    views = [replace(view, variables={**view.variables, "MY_TMP": f"/tmp/{view.rank}"}) for view in job()]
    assert subjects(views) == []
    operator = [
        replace(view, variables={**view.variables, "MASTER_ADDR": "localhost" if view.host == "n1" else "n1.cluster"})
        for view in job(hosts=3)
    ]
    assert subjects(operator) == []
    by_host = [replace(view, variables={**view.variables, "MASTER_ADDR": view.host}) for view in job()]
    assert [row[:2] for row in subjects(by_host)] == [("error", "MASTER_ADDR")]


def test_numbers_of_ranks() -> None:
    views = job()
    assert subjects(changed(3, views, rank=2))[0] == ("error", "RANK", (2,))
    assert ("error", "RANK", (9,)) in subjects(changed(7, views, rank=9))
    assert subjects(changed(3, views, rank=None))[0][:2] == ("error", "RANK")


@pytest.mark.parametrize(
    ("variable", "setting", "absent"),
    [
        ("GLOO_SOCKET_IFNAME", "eth9", "eth9"),
        ("GLOO_SOCKET_IFNAME", "eth0,eth9", "eth9"),
        ("GLOO_SOCKET_IFNAME", "eth", "eth"),
        ("GLOO_SOCKET_IFNAME", "eth0,bond0", ""),
        ("NCCL_SOCKET_IFNAME", "eth", ""),
        ("GLOO_SOCKET_IFNAME", "=eth0", "=eth0"),
        ("GLOO_SOCKET_IFNAME", "^docker", "^docker"),
        ("GLOO_SOCKET_IFNAME", "eth0:1", ""),
        ("GLOO_SOCKET_IFNAME", "eth0,", ""),
        ("GLOO_SOCKET_IFNAME", ",eth0", "''"),
        ("NCCL_SOCKET_IFNAME", "=eth", "eth"),
        ("NCCL_SOCKET_IFNAME", "=eth0,eth9", ""),
        ("NCCL_SOCKET_IFNAME", "ib,eth", ""),
        ("NCCL_SOCKET_IFNAME", "ib", "ib"),
        ("HCCL_SOCKET_IFNAME", "^docker,lo", ""),
        ("HCCL_SOCKET_IFNAME", "enp", "enp"),
    ],
)
def test_an_interface_that_the_host_of_a_rank_lacks(variable: str, setting: str, absent: str) -> None:
    views = [
        replace(view, links=frozenset({"lo", "eth0", "bond0"}), variables={**view.variables, variable: setting})
        for view in job(1, 2)
    ]
    misfits = [misfit for misfit in judge(views) if misfit.subject == variable]
    expected = f"{variable} is {setting}: there is no interface {absent}"
    assert [misfit.text.partition(": ")[2] for misfit in misfits] == [expected] * (2 if absent else 0)
    assert not [misfit for misfit in judge([replace(view, links=frozenset()) for view in views]) if "no" in misfit.text]


def test_two_ranks_with_one_device_and_a_store_that_does_not_answer() -> None:
    views = job()
    assert subjects(changed(1, views, device=views[0].device)) == [("error", "device", (0, 1))]
    assert subjects(changed(6, views, store="timed out")) == [("error", "MASTER_ADDR", (6,))]


@pytest.mark.parametrize(("rank", "name", "is_wrong"), [(6, "head", True), (2, "head", False), (6, "localhost", False)])
def test_a_name_of_the_master_that_means_the_own_host_of_a_rank(rank: int, name: str, is_wrong: bool) -> None:
    """Rank 2 is on the host of rank 0; that MASTER_ADDR itself is localhost, a check says."""
    views = [replace(view, variables={**view.variables, "MASTER_ADDR": name}) for view in job()]
    rewritten = [
        misfit for misfit in judge(changed(rank, views, master=frozenset({"127.0.1.1"}))) if "own host" in misfit.text
    ]
    assert [(misfit.severity, misfit.ranks) for misfit in rewritten] == [("error", (rank,))] * is_wrong


def test_cpus_that_do_not_fit_the_device_or_the_other_ranks() -> None:
    views = job()
    far = changed(3, views, cpus=views[0].cpus, cpu_nodes=views[0].cpu_nodes)
    assert subjects(far) == [("warning", "NUMA node", (3,))]
    core = [replace(view, cpus=frozenset({0}), cpu_nodes=frozenset({0})) for view in job(hosts=1)]
    assert ("warning", "CPU set", (0, 1, 2, 3)) in subjects(core)


def test_an_adapter_at_the_other_node() -> None:
    near, far = with_variable(3, "NCCL_IB_HCA", "=mlx5_1"), with_variable(3, "NCCL_IB_HCA", "mlx5_0")
    assert ("warning", "NCCL_IB_HCA", (3,)) in subjects(far)
    texts = [misfit.text for misfit in judge(near)]
    assert not any("names" in text for text in texts)
    assert subjects(with_variable(3, "NCCL_IB_HCA", "mlx5_0:1")) == subjects(far)
    assert subjects(with_variable(3, "NCCL_IB_HCA", "^mlx5_1")) != subjects(far)


def test_visible_devices_choose_the_device() -> None:
    views = [
        view_of(replace(ANSWER, variables={"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": text}))
        for text in ("3,2", "2", "9", "GPU-x")
    ]
    assert [view.device and view.device[0] for view in views] == [2, 2, None, None]
    amd = {"LOCAL_RANK": "1", "ROCR_VISIBLE_DEVICES": "3,2", "HIP_VISIBLE_DEVICES": "1,0"}
    device = view_of(replace(ANSWER, variables=amd)).device
    assert device and device[0] == 3  # HIP counts what ROCR leaves


def test_a_folder_that_differs() -> None:
    views = job()
    odd = changed(2, views, properties={**views[2].properties, "the working folder": "/home/x"})
    assert subjects(odd) == [("warning", "the working folder", (2,))]


@needs_mpirun
def test_a_login_file_of_one_host_changes_what_its_ranks_get(fleet_cpu: Fleet) -> None:
    """Ranks that mpirun starts over SSH on three real hosts, whose folders are one."""
    hosts = fleet_cpu.hosts[:3]
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-", dir="/var/tmp"))
    try:
        (folder / "train.py").write_text("open('STARTED', 'w').close()\n")
        names = "".join(f"Host {name}\n HostName {place}\n" for name, place in fleet_cpu.addresses.items())
        (folder / "ssh_config").write_text(names + fleet_cpu.ssh_config.read_text())
        argv = [sys.executable, "-m", "doctor", "rehearse", "--json", "--", "mpirun", "--allow-run-as-root"]
        argv += ["--host", ",".join(hosts), "-np", "3", "--mca", "plm_rsh_agent", f"ssh -F {folder}/ssh_config"]
        argv += ["--wdir", str(folder), "-x", "MASTER_ADDR=" + fleet_cpu.addresses[hosts[0]], "python3", "train.py"]
        with fleet_cpu.broken(hosts[1], "echo export NCCL_ALGO=Tree >>/root/.bashrc"):
            done = fleet_cpu.run(argv, env={**CLEAN, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off"}, cwd=folder)
            document = json.loads(done.stdout)
        assert [(row["rank"], row["host"]) for row in document["ranks"]] == list(enumerate(hosts)), document["output"]
        (misfit,) = (misfit for misfit in document["misfits"] if misfit["severity"] == "error")
        assert (done.returncode, misfit["subject"], misfit["ranks"]) == (10, "NCCL_ALGO", [1])
        assert sorted(path.name for path in folder.iterdir()) == ["ssh_config", "train.py"]
    finally:
        shutil.rmtree(folder)
