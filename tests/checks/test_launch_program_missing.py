"""What launch-program-missing finds, and of which launch lines the program is looked for."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from doctor.engine.fact import Absent, Unreadable
from doctor.engine.record import LaunchOptions, ProbeInputs
from doctor.engine.result import Status
from doctor.environment.job_environment import launches_of_job_script, of_launch_line
from doctor.facts.job_paths import JobProgram, find_program
from doctor.facts.memory import has_loader_workers
from doctor.job import LaunchConfig
from doctor.session.examine import _arguments
from doctor.session.examine_options import ExamineOptions
from doctor.session.training_files import followed, program_path, with_launch_line
from tests.checks.run_check import advice, fleet, messages, run_check
from tests.facts.answers import answered


def program(state: str) -> JobProgram:
    return JobProgram(path="/work/train.py", state=state)


def test_a_program_that_one_host_lacks() -> None:
    hosts = {**fleet(3, program("there")), "w4": [program("missing")]}
    outcome = run_check("launch-program-missing", hosts)
    assert messages(outcome) == [("w4", "/work/train.py is not there")]
    todo = advice("launch-program-missing", outcome)
    assert "rsync -a --mkpath w1:/work/train.py /work/train.py" in todo
    assert "correct the path" not in todo.casefold()


@pytest.mark.parametrize(
    ("text", "state"), [("", "without code"), ("\n# later\n", "without code"), ("import os\n", "there")]
)
def test_a_program_without_code_ends_at_once_where_the_others_have_one(tmp_path: Path, text: str, state: str) -> None:
    (tmp_path / "t.py").write_text(text)
    assert answered(JobProgram, find_program({"program": f"{tmp_path}/t.py"})).state == state
    outcome = run_check("launch-program-missing", {**fleet(1, program("there")), "w4": [program("without code")]})
    assert messages(outcome) == [("w4", "/work/train.py is a file without code")]
    assert outcome.status is Status.FAILED and "rsync" in advice("launch-program-missing", outcome)
    alike = run_check("launch-program-missing", fleet(2, program("without code")))
    assert [finding.is_warning for finding in alike.findings] == [True]  # every rank ends well


@pytest.mark.parametrize(("there", "status"), [(1, Status.UNKNOWN), (2, Status.FAILED), (0, Status.PASSED)])
def test_a_program_of_one_folder_of_two_is_not_decided(there: int, status: Status) -> None:
    """The shell of the other host may start the line in another folder."""
    hosts = {**fleet(there, program("there")), "w8": [program("elsewhere")]}
    outcome = run_check("launch-program-missing", hosts)
    assert outcome.status is status


def test_a_program_that_may_not_be_executed(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    for words, state in (("srun {}", "not executable"), ("srun bash {}", "there"), ("torchrun {}", "there")):
        options = with_launch_line(ExamineOptions(), of_launch_line(words.format(script).split(), {}))
        asked = find_program({"program": options.program, "is_started": options.is_started})
        assert answered(JobProgram, asked).state == state
    outcome = run_check("launch-program-missing", fleet(1, program("not executable")))
    assert messages(outcome) == [("w1", "/work/train.py is not executable")]
    assert "`chmod +x /work/train.py`" in advice("launch-program-missing", outcome)


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("srun /opt/venv/bin/python t.py", "/opt/venv/bin/python"),
        ("srun /opt/venv/bin/python3.11 -m torch.distributed.run t.py", "/opt/venv/bin/python3.11"),
        ("/opt/venv/bin/python t.py", "/opt/venv/bin/python"),
        ("srun python t.py", ""),
        ("srun /bin/bash t.sh", ""),
        ("docker run image /opt/venv/bin/python t.py", ""),
        ("srun --container-image=x /opt/venv/bin/python t.py", ""),
    ],
)
def test_the_interpreter_of_the_line_is_that_of_the_job(words: str, path: str) -> None:
    source = of_launch_line(words.split(), {})
    assert with_launch_line(ExamineOptions(), source).launch.python == path
    given = ExamineOptions(launch=LaunchOptions(python="/other/python"))
    assert with_launch_line(given, source).launch.python == "/other/python"


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ("#!/opt/venv/bin/python3.11\nimport sys\n", "/opt/venv/bin/python3.11"),
        ('#!/bin/sh\n\'\'\'exec\' "/opt/a long/bin/python3" "$0" "$@"\n', ""),
        ("#!/bin/sh\n'''exec' /opt/long/bin/python3 \"$0\" \"$@\"\n", "/opt/long/bin/python3"),
        ("#!/usr/bin/env python3\n", ""),
        ("\x7fELF", ""),
    ],
)
def test_a_launcher_named_by_its_path_has_the_interpreter_that_it_was_installed_for(
    script: str, path: str, tmp_path: Path
) -> None:
    (tmp_path / "torchrun").write_text(script)
    launchers = {f"{tmp_path}/torchrun": path, f"{tmp_path}/gone/torchrun": "", "torchrun": ""}
    elsewhere = {
        f"/absent/{folder}/bin": folder not in ("local", "environment")
        for folder in (".venv", "envs/a", "miniconda3", "local", "environment")
    }
    launchers |= {
        f"{folder}/torchrun": f"{folder}/python3" * is_environment for folder, is_environment in elsewhere.items()
    }
    for launcher, python in launchers.items():
        source = of_launch_line([launcher, "--nnodes", "2", "t.py"], {"PATH": str(tmp_path)})
        assert with_launch_line(ExamineOptions(), source).launch.python == python


def test_a_module_in_the_folder_of_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "run.py").touch()
    for folder, state in ((tmp_path, "there"), (tmp_path / "pkg", "missing")):
        answer = find_program({"module": ("python3", "pkg.run", str(folder))})
        assert answered(JobProgram, answer).states == {"-m pkg.run": state}
        given = find_program({"module": ("python3", "pkg.run", "/"), "environ": {"PYTHONPATH": str(folder)}})
        assert answered(JobProgram, given).states == {"-m pkg.run": state}


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("import absent\n", {"absent": "missing"}),
        ("'A text.'\nfrom __future__ import annotations\nimport absent.inner as x\n", {"absent": "missing"}),
        ("import sys\nsys.path.append('/elsewhere')\nimport absent\n", {"absent": "elsewhere"}),
        ("import beside\nimport absent\n", {"beside": "there", "absent": "elsewhere", "deeper": "elsewhere"}),
        ("from .absent import x\ntry:\n    import absent\nexcept ImportError:\n    pass\n", {}),
        ("def f():\n    import absent\n", {}),
        ("import json.tool, zipfile\n", {"json": "there", "zipfile": "there"}),
    ],
)
def test_what_the_program_imports(text: str, states: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "beside.py").write_text("import deeper\n")
    path = str(tmp_path / "train.py")
    answer = answered(JobProgram, find_program({"program": path, "module": ("python3", "", "/")}))
    seen = {name[7:]: state for name, state in answer.states.items() if name.startswith("import ")}
    assert {name: state for name, state in seen.items() if name not in ("sys", "__future__")} == states
    outcome = run_check("launch-program-missing", fleet(1, answer))
    assert bool(messages(outcome)) == ("missing" in states.values())


@pytest.mark.parametrize(("safe", "state"), [("1", "missing"), ("", "there")])
@pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH is of Python 3.11")
def test_without_its_folder_python_finds_nothing_there(safe: str, state: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").touch()
    (tmp_path / "train.py").write_text("import beside\n")
    environ = {"PYTHONSAFEPATH": safe}
    of_module = find_program({"module": (sys.executable, "train", str(tmp_path)), "environ": environ})
    assert answered(JobProgram, of_module).states["-m train"] == state
    program = str(tmp_path / "train.py")
    of_file = find_program({"module": (sys.executable, "", "/"), "program": program, "environ": environ})
    assert answered(JobProgram, of_file).states["import beside"] == state


SHADOWS = [
    ({"random.py": "x = 1\n"}, "random.py"),
    ({"types.py": "x = 1\n"}, "types.py"),
    ({"queue/__init__.py": ""}, "queue/__init__.py"),
    ({"torch.py": "x = 1\n"}, "torch.py"),
    ({"torch/__init__.py": ""}, "torch/__init__.py"),
    ({"queue/readme.txt": "", "torch/readme.txt": ""}, ""),  # Python takes the regular package behind it
    ({"random.py": "from random_of_python import *\n"}, ""),
    (
        {"heapq.py": "def heappush(): ...\ndef heappop(): ...\nheapify = heapreplace = merge = nlargest = 1\n"},
        "",
    ),
    ({"uuid.py": "x = 1\n", "model.py": "", "utils/random.py": ""}, ""),  # torch lives without these
]


@pytest.mark.parametrize(("files", "shadowed"), SHADOWS)
@pytest.mark.parametrize("module", ["", "train"])
def test_a_file_that_python_takes_for_a_module_of_its_own(
    files: dict[str, str], shadowed: str, module: str, tmp_path: Path
) -> None:
    for name, text in {**files, "train.py": "import torch\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    program = "" if module else str(tmp_path / "train.py")
    answer = answered(JobProgram, find_program({"program": program, "module": (sys.executable, module, str(tmp_path))}))
    assert [path for path, state in answer.states.items() if state == "shadowed"] == [
        str(tmp_path / name) for name in [shadowed] if name
    ]
    outcome = run_check("launch-program-missing", fleet(1, answer))
    told = [text for _, text in messages(outcome) if "assumed to be" in text]
    assert len(told) == bool(shadowed)
    assert not told or f"Rename {tmp_path / shadowed}" in advice("launch-program-missing", outcome)


@pytest.mark.parametrize("needed", ["etcd_of_nobody", "json.tool", "torch_of_nobody.run"])
def test_a_module_that_the_launcher_imports(needed: str) -> None:
    answer = answered(JobProgram, find_program({"module": (sys.executable, "json.tool", "/", needed)}))
    assert answer.states[f"import {needed}"] == ("there" if needed == "json.tool" else "missing")


def test_a_module_that_one_host_lacks() -> None:
    has = JobProgram(path="/work/t.py", state="there", files={"import data": "there", "import gone": "elsewhere"})
    lacks = JobProgram(path="/work/t.py", state="there", files={"import data": "elsewhere", "import gone": "elsewhere"})
    outcome = run_check("launch-program-missing", {**fleet(2, has), "w3": [lacks]})
    assert messages(outcome) == [("w3", "import data: Python does not find it")]
    assert "find_spec('data').origin" in advice("launch-program-missing", outcome)
    alone = run_check("launch-program-missing", {**fleet(2, lacks), "w3": [has]})  # no host is accused by a single one
    assert messages(alone) == []


def test_whose_python_and_folder_are_sure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("python3", "torchrun"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    for words, module in (
        ("srun python3 t.py", (str(tmp_path / "python3"), "", str(tmp_path))),
        ("torchrun t.py", ("torchrun", "", ".", "torch.distributed.run")),
        ("torchrun --rdzv-backend etcd t.py", ("torchrun", "", ".", "torch.distributed.run", "etcd")),
        ("python3.99 t.py", ()),
        ("srun --task-prolog=/p python3 t.py", ()),
        ("srun --container-image=x python3 t.py", ()),
        ("python3 run", ()),
    ):
        source = of_launch_line(words.split(), {"PATH": str(tmp_path)})
        assert with_launch_line(ExamineOptions(), source).module == module


@pytest.mark.parametrize(
    ("words", "is_asked"),
    [
        ("srun python3 t.py", True),
        ("srun torchrun t.py", True),
        ("mpirun -np 4 python3 t.py", False),  # each host has the Python of its login
        ("mpirun -np 4 {}/python3 t.py", True),
        ("deepspeed t.py", False),
        ("torchrun {}/t.py", True),  # what a shell on each host starts, as far as most hosts have it
        ("torchrun t.py", True),
        ("python3 t.py", False),
        ("srun --chdir /x python3 {}/t.py", True),
        ("srun python3 {}/t.py --workdir /x", False),
    ],
)
def test_what_other_hosts_find_is_asked_where_they_surely_start_this_python(
    words: str, is_asked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("python3", "torchrun", "deepspeed"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    source = of_launch_line(words.format(tmp_path).split(), {"PATH": str(tmp_path)})
    options = with_launch_line(ExamineOptions(launch=source.complete(LaunchOptions())), source)
    inputs = ProbeInputs()
    assert bool(_arguments(inputs, options.launch, options, {}, is_local=False)["module"]) is is_asked
    own = msgspec.structs.replace(options, job_environ={"PYTHONPATH": "/opt/lib"})  # srun alone passes it on
    passed_on = _arguments(inputs, own.launch, own, {}, is_local=False)
    assert bool(passed_on["module"]) is (is_asked and words.startswith(("srun", "torchrun")))
    assert passed_on["environ"] == {"PYTHONPATH": "/opt/lib"}


@pytest.mark.parametrize(
    ("text", "state", "remedy"),
    [
        ("#!/bin/sh\n", "there", ""),
        ("#! /usr/bin/env python3\n", "there", ""),
        ("echo without a first line\n", "text", ""),  # the shell that starts it reads it
        ("\x7fELF\x02\x01\x01\x00", "there", ""),
        ("#!/bin/sh\r\n", "without interpreter", "`dos2unix {}`"),
        ("#!/opt/none/bash -e\n", "without interpreter", '`head -n 1 "$(command -v {})" | cat -A`'),
    ],
)
def test_the_interpreter_of_a_script(text: str, state: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(text.encode())
    path.chmod(0o755)
    answer = answered(JobProgram, find_program({"program": str(path), "is_started": True}))
    assert answer.state == state
    outcome = run_check("launch-program-missing", fleet(1, answer))
    assert [finding.is_warning for finding in outcome.findings] == [False] * bool(remedy)
    assert not remedy or remedy.format(path) in advice("launch-program-missing", outcome)


@pytest.mark.parametrize(("launchers", "is_refused"), [(("torchrun",), True), (("srun",), True), ((), False)])
def test_a_text_without_a_first_line_is_refused_by_launchers_alone(
    launchers: tuple[str, ...], is_refused: bool, tmp_path: Path
) -> None:
    """torchrun --no-python ./t.py, executable, "import torch" first: OSError: [Errno 8] Exec format error."""
    (tmp_path / "t.py").write_text("import torch\n")
    (tmp_path / "t.py").chmod(0o755)
    answer = answered(JobProgram, find_program({"program": str(tmp_path / "t.py"), "is_started": True}))
    launch = msgspec.structs.replace(LaunchConfig.from_environment({}), launchers=launchers)
    outcome = run_check("launch-program-missing", fleet(1, answer), launch)
    text = f"{tmp_path}/t.py is text whose first line names no interpreter"
    assert messages(outcome) == [("w1", text)] * is_refused
    assert not is_refused or "#!/usr/bin/env python3" in advice("launch-program-missing", outcome)


@pytest.mark.parametrize(
    ("text", "is_python"),
    [
        (b"def f(:\n    pass\n", False),
        (b"# coding: none-such\n", False),
        (b"x = 1  # caf\xe9\n", False),
        (b"# coding: latin-1\nx = 1  # caf\xe9\n", True),
        (b"\xef\xbb\xbfx = 1  # caf\xc3\xa9\n", True),
    ],
)
def test_a_program_that_is_no_python(tmp_path: Path, text: bytes, is_python: bool) -> None:
    """As the interpreter itself has it, and the command of the page."""
    path = tmp_path / "t.py"
    path.write_bytes(text)
    assert (subprocess.run([sys.executable, path], capture_output=True).returncode == 0) == is_python
    answer = find_program({"program": str(path), "module": (sys.executable, "", "/")})
    outcome = run_check("launch-program-missing", fleet(1, answered(JobProgram, answer)))
    assert messages(outcome) == ([] if is_python else [("w1", f"{path} is no valid Python")])
    if not is_python:
        command = re.search(r"`(python3 -c .*?)` shows", advice("launch-program-missing", outcome).replace("\n", " "))
        assert command and subprocess.run(["sh", "-c", command[1]], capture_output=True).returncode == 1


def test_a_folder_is_no_program() -> None:
    outcome = run_check("launch-program-missing", fleet(1, program("folder")))
    assert messages(outcome) == [("w1", "/work/train.py is a folder without __main__.py")]


@pytest.mark.parametrize(
    ("words", "path", "state"),
    [
        ("torchrun -m pkg.run", "-m pkg.run", "there"),
        ("torchrun -m pkg", "-m pkg", "missing"),  # a package without __main__
        ("torchrun -m pkg.absent", "-m pkg.absent", "missing"),
        ("torchrun -m pkg.run.deeper", "-m pkg.run.deeper", "missing"),
        ("python3 -m json.tool", "-m json.tool", "there"),
        ("python3 -m absent.at.all", "-m absent.at.all", "missing"),
        ("torchrun --log-dir file/logs pkg/run.py", "{}/file/logs", "blocked"),
        ("torchrun --log-dir file pkg/run.py", "{}/file", "blocked"),
        ("torchrun --log-dir new/logs pkg/run.py", "{}/new/logs", "there"),
    ],
)
def test_modules_and_folders_for_logs(
    words: str, path: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "run.py").touch()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "file").touch()
    options = with_launch_line(ExamineOptions(), of_launch_line(shlex.split(words), {}))
    asked = _arguments(ProbeInputs(), options.launch, options, {}, is_local=True)
    monkeypatch.chdir("/")  # as the program on a host does
    answer = answered(JobProgram, find_program({**asked, "program": ""}))
    rest = {name: found for name, found in answer.states.items() if not name.startswith("import ")}
    assert rest == {path.format(tmp_path): state}
    outcome = run_check("launch-program-missing", fleet(1, answer))
    assert bool(messages(outcome)) == (state != "there")


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        ("llamafactory-cli train x.yaml", {"NPROC_PER_NODE": "2"}),  # its interpreter is its own
        ("docker run image torchrun -m pkg.run", {}),
        ("bash -c 'cd /elsewhere && torchrun -m pkg.run --log-dir x'", {}),
        ("torchrun -m $MODULE", {}),
    ],
)
def test_a_module_that_may_be_elsewhere_is_not_looked_for(words: str, environ: dict[str, str]) -> None:
    options = with_launch_line(ExamineOptions(), of_launch_line(shlex.split(words), environ))
    assert (options.module, options.output) == ((), "") or "$" in words


@pytest.mark.parametrize(("name", "count"), [("graphs.xml", 0), ("absent.xml", 1), ("", 0)])
def test_the_file_of_nccl_graphs(name: str, count: int, tmp_path: Path) -> None:
    """On an H200, NCCL ended two ranks: "Could not open XML graph file /nonexist : No such file or directory"."""
    (tmp_path / "graphs.xml").touch()
    environ = {"NCCL_GRAPH_FILE": str(tmp_path / name)} if name else {}
    options = with_launch_line(ExamineOptions(), of_launch_line(["torchrun", "t.py"], environ))
    assert options.files == tuple(environ.values())
    if options.files:
        answer = answered(JobProgram, find_program({"files": list(options.files)}))
        assert len(run_check("launch-program-missing", fleet(1, answer)).findings) == count
    else:
        assert not count


@pytest.mark.parametrize(("has_gpus", "count"), [(False, 1), (True, 0), (None, 0)])
def test_a_rank_for_each_gpu_needs_one(has_gpus: bool | None, count: int) -> None:
    answer = JobProgram(path="", state="", has_gpus=has_gpus)
    launch = LaunchConfig(launch_line="torchrun --nproc-per-node gpu t.py", launchers=("torchrun",))
    outcome = run_check("launch-program-missing", fleet(1, answer), launch)
    assert len(outcome.findings) == count


def test_which_lines_count_gpus() -> None:
    for words, counts in (("gpu", True), ("auto", False), ("8", False)):
        line = of_launch_line(["torchrun", "--nproc-per-node", words, "t.py"], {})
        assert with_launch_line(ExamineOptions(), line).counts_gpus is counts
    inside = of_launch_line(shlex.split("docker run image torchrun --nproc-per-node gpu t.py"), {})
    assert not with_launch_line(ExamineOptions(), inside).counts_gpus


def test_a_program_that_no_host_has_is_a_wrong_path() -> None:
    outcome = run_check("launch-program-missing", fleet(2, program("missing")))
    assert "Correct the path in the launch line" in advice("launch-program-missing", outcome)
    assert "rsync" not in advice("launch-program-missing", outcome)
    assert messages(run_check("launch-program-missing", fleet(2, program("there")))) == []


def test_the_host_tells_whether_the_program_is_there(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    assert answered(JobProgram, find_program({"program": str(script)})).state == "missing"
    assert answered(JobProgram, find_program({"program": str(script / "inner.py")})).state == "missing"
    script.write_text("pass\n")
    assert answered(JobProgram, find_program({"program": str(script)})).state == "there"
    assert answered(JobProgram, find_program({"program": str(tmp_path)})).state == "folder"
    (tmp_path / "__main__.py").write_text("")
    assert answered(JobProgram, find_program({"program": str(tmp_path)})).state == "there"
    assert isinstance(answered(JobProgram, find_program({})), Absent)


def test_what_could_not_be_looked_at_is_unknown_and_not_missing(tmp_path: Path) -> None:
    loop = tmp_path / "train.py"
    loop.symlink_to(loop)
    unknown = answered(JobProgram, find_program({"program": str(loop)}))
    assert isinstance(unknown, Unreadable)
    assert "Too many levels of symbolic links" in str(unknown)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("torchrun --nnodes 2 /work/train.py --lr 1", "/work/train.py"),
        ("torchrun train.py", "train.py"),
        ("python3 sub/train.py", "sub/train.py"),
        ("mpirun -np 4 python sub/train.py", "{here}/sub/train.py"),
        ("mpirun -np 4 ./a.out", "{here}/a.out"),
        ("srun -n 4 bash run.sh", "{here}/run.sh"),
        ("deepspeed train.py", "{here}/train.py"),
        ("mpirun -np 4 hostname", ""),
        ("mpirun --wdir /x -np 4 python train.py", "/x/train.py"),
        ("mpirun --wdir /x -np 4 python train.py --project /y", ""),
        ("mpirun --wdir /x -np 1 python a.py : --wdir /y -np 1 python b.py", ""),
        ("mpirun --wdir /x -np 4 python /work/train.py", "/work/train.py"),
        ("srun --chdir=/x -n 4 python train.py", "/x/train.py"),
        ("srun -D x -n 4 python train.py", "{here}/x/train.py"),
        ("srun -D /x -n 4 sh -c 'cd y && exec python train.py'", ""),
        ("srun --container-image=torch -n 4 python /work/train.py", ""),
        ("srun --bcast=/tmp/a.out -n 4 ./a.out", ""),
        ("uv run --directory /x torchrun train.py", ""),
        ("env -C /x torchrun train.py", ""),
        ("sh -c 'cd /x && exec torchrun train.py'", ""),
        ("sh -c 'exec torchrun train.py'", "train.py"),
        ("docker run image torchrun /work/train.py", ""),
        ("apptainer exec image.sif torchrun /work/train.py", ""),
        ("ssh n1 torchrun /work/train.py", ""),
        ("torchrun -m package.train", ""),
        ("python3 -c 1", ""),
        ("python3 -", ""),
    ],
)
def test_the_program_is_looked_for_where_its_place_is_known(line: str, path: str) -> None:
    assert program_path(of_launch_line(shlex.split(line), {})) == path.format(here=os.getcwd())


def test_a_container_that_the_environment_names_holds_the_program() -> None:
    environ = {"SLURM_CONTAINER_IMAGE": "torch"}
    assert program_path(of_launch_line(["srun", "python", "/work/train.py"], environ)) == ""


def test_configurations_of_the_launch_line(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("a: 1\n")
    (tmp_path / "train.py").write_text("pass\n")
    names = [str(tmp_path / name) for name in ("conf.yaml", "ds.json", "sub/conf.yaml")]
    fact = answered(JobProgram, find_program({"program": str(tmp_path / "train.py"), "files": names}))
    assert list(fact.files.values()) == ["there", "missing", "there"]  # the last one beside the program
    assert answered(JobProgram, find_program({"files": names})).states[names[1]] == "missing"
    line = f"torchrun train.py --deepspeed {names[1]}"
    for launch_line, is_warning in ((line, False), ("torchrun train.py --deepspeed ds.json", True)):
        outcome = run_check("launch-program-missing", fleet(1, fact), LaunchConfig(launch_line=launch_line))
        assert [(finding.values["path"], finding.is_warning) for finding in outcome.findings] == [
            (names[1], is_warning)
        ]
    others = {**fleet(1, fact), "w2": [answered(JobProgram, find_program({"files": names[:1]}))]}
    assert len(run_check("launch-program-missing", others, LaunchConfig()).findings) == 1


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("torchrun t.py --deepspeed ds.json --output_dir o.json", ["ds.json"]),
        ("llamafactory-cli train conf.yaml", ["conf.yaml"]),
        ("accelerate launch --config_file a.yaml t.py --config_name gpt2", ["a.yaml"]),
        ("deepspeed t.py --deepspeed_config /work/ds.json", ["/work/ds.json"]),
        ("srun --chdir=/work -n 4 python t.py --config c.yaml", ["/work/c.yaml"]),
        ("srun --bcast=/work/at/x -n 4 ./a.out", ["/work/at"]),
        ("docker run image torchrun t.py --config /c.yaml", []),
        ("torchrun t.py --config https://host/c.yaml", []),
    ],
)
def test_which_configurations_are_looked_for(line: str, files: list[str]) -> None:
    options = with_launch_line(ExamineOptions(), of_launch_line(shlex.split(line), {}))
    assert [os.path.relpath(path) if "/work" not in path else path for path in options.files] == files


def test_of_a_job_script_paths_are_looked_for_whose_folder_is_sure(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    for text, program, files in (
        ("torchrun /work/t.py --config /work/c.yaml --deepspeed ds.json", "/work/t.py", ("/work/c.yaml",)),
        ("torchrun t.py", "", ()),
        ("srun --chdir=/x torchrun t.py", "/x/t.py", ()),
        ("srun --chdir=x torchrun t.py", "", ()),
        ("srun --chdir=$WHERE torchrun t.py", "", ()),
        ("torchrun /work/$USER/t.py", "", ()),
        ("#SBATCH --container-image=x\nsrun torchrun /work/t.py", "", ()),
        ("if [ $A ]; then torchrun /work/t.py; fi", "", ()),
        ("cd /work\nsrun python t.py", "/work/t.py", ("/work",)),
        ("cd /work && torchrun t.py --deepspeed ds.json", "/work/t.py", ("/work/ds.json", "/work")),
        ("A=/work\nmodule load x\ncd $A\ncd b\ntorchrun c/t.py", "/work/b/c/t.py", ("/work/b",)),
        ("cd /work\ngit pull\ntorchrun t.py", "", ("/work", "/work/t.py")),
        ("cd /work\nsource e.sh\ntorchrun t.py", "", ("/work", "/work/t.py")),
        ("cd /work\ncat > t.py <<EOF\nEOF\ntorchrun t.py", "", ("/work", "/work/t.py")),
        ("cd /work\ncd -\ntorchrun t.py", "", ()),
        ("cd /work\ncd ~/b\ntorchrun t.py", "", ()),
        ("cd $WHERE\ntorchrun t.py", "", ()),
        ("[ -d /work ] && cd /work\ntorchrun t.py", "", ()),
        ("(cd /work; torchrun t.py)", "", ()),
        ("cd /work\nsrun --chdir=/x torchrun t.py", "/x/t.py", ()),
        ("cd /work\nssh n1 torchrun t.py", "", ()),
        ("cd /work\npdsh -w n[1-2] torchrun t.py", "", ()),
        ("cd /work\nsudo -u a torchrun t.py", "", ()),
        ("cd /work\ndocker run image torchrun t.py", "", ()),
        ("cd /work\nbash -c 'cd /x; torchrun t.py'", "", ()),
    ):
        script.write_text(text + "\n")
        options = with_launch_line(ExamineOptions(), launches_of_job_script(str(script), {})[0], str(script))
        assert (options.program, options.files) == (program, files), text


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("{python} /work/t.py", "/work"),
        ("export A=1\n{python} -m torch.distributed.run --standalone /work/t.py", "/work"),
        ("{python} t.py", ""),
        ("python3 /work/t.py", ""),
        ("module load x\n{python} /work/t.py", ""),  # which may set PYTHONPATH
        ("if [ $A ]; then {python} /work/t.py; fi", ""),
        ("#SBATCH --container-image=x\nsrun {python} /work/t.py", ""),
    ],
)
def test_the_python_that_a_job_script_names_by_its_path_is_asked_for_what_it_imports(
    text: str, folder: str, tmp_path: Path
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(text.format(python=sys.executable) + "\n")
    options = with_launch_line(ExamineOptions(), launches_of_job_script(str(script), {})[0], str(script))
    assert options.module[:3] == ((sys.executable, "", folder) if folder else ())


@pytest.mark.parametrize("words", ['"torchrun", "/work/t.py"', '"bash", "-c", "cd /work && torchrun t.py"'])
def test_a_program_of_a_container_is_not_looked_for_on_the_host(words: str, tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(
        "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n"
        f"      - {{name: a, image: registry/a, command: [{words}]}}\n"
    )
    options = with_launch_line(ExamineOptions(), launches_of_job_script(str(manifest), {})[0], str(manifest))
    assert (options.program, options.files) == ("", ())


def test_a_program_of_a_folder_that_the_shell_cannot_enter_may_be_in_its_own(tmp_path: Path) -> None:
    for folder, state in ((tmp_path, "missing"), (tmp_path / "absent", "elsewhere")):
        asked = find_program({"program": f"{folder}/t.py", "files": [str(folder)]})
        assert answered(JobProgram, asked).state == state


def hosts_that_start(folder: Path, monkeypatch: pytest.MonkeyPatch, *lacking: str) -> dict[str, list[JobProgram]]:
    """Three hosts with torchrun, a program and its module, and one that lacks some of them; each asked as over SSH."""
    facts = {}
    for number in range(1, 5):
        own = folder / f"w{number}"
        (own / "bin").mkdir(parents=True)
        files = {"train.py": "from model import build\n", "model.py": "", "bin/torchrun": f"#!{sys.executable}\n"}
        for name, text in files.items():
            (own / name).write_text(text)
            (own / name).chmod(0o755)
        for name in lacking if number == 4 else ():
            (own / name).unlink()
        monkeypatch.chdir(own)
        monkeypatch.setenv("PATH", f"{own}/bin:/bin")
        line = ["torchrun", "--nnodes", "4", "train.py"]
        options = with_launch_line(ExamineOptions(launch=LaunchOptions()), of_launch_line(line, {}))
        asked = find_program(_arguments(ProbeInputs(), options.launch, options, {}, is_local=False))
        text = msgspec.json.encode(asked).decode().replace(str(own), "/w")
        facts[f"w{number}"] = [answered(JobProgram, msgspec.json.decode(text))]
    return facts


@pytest.mark.parametrize(
    ("lacking", "message", "remedy"),
    [
        ("train.py", "/w/train.py is not there", "rsync -a --mkpath w1:/w/train.py /w/train.py"),
        ("model.py", "import model: Python does not find it", "find_spec('model')"),
        ("bin/torchrun", "torchrun is not there", "`command -v torchrun` on w1"),
    ],
)
def test_a_relative_line_that_a_shell_on_each_host_starts(
    lacking: str, message: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is that of this command, where most hosts have the program there; else nothing is said of it."""
    outcome = run_check("launch-program-missing", hosts_that_start(tmp_path, monkeypatch, lacking))
    assert messages(outcome) == [("w4", message)]
    assert remedy in advice("launch-program-missing", outcome)


@pytest.mark.parametrize(
    ("text", "is_next", "program", "files"),
    [
        ("torchrun t.py --deepspeed_config ds.json", True, "t.py", ["ds.json"]),
        ("torchrun t.py", False, "", []),
        ("cd sub\ntorchrun t.py", True, "sub/t.py", ["sub"]),
        ("cd $FOLDER\ntorchrun t.py", True, "", []),
        ("cat > ds.json <<E\n{}\nE\ntorchrun t.py --deepspeed_config ds.json", True, "", ["t.py"]),
        ("cp $CODE/t.py .\ntorchrun t.py --deepspeed_config ds.json", True, "", ["t.py"]),
        ("torchrun beside.py", True, "", []),  # the script may be meant to start in its own folder
        ("#SBATCH --nodes=1\ntorchrun t.py", True, "", []),
        ("bash inner.sh", True, "inner.py", []),
    ],
)
def test_a_script_that_runs_next_starts_in_this_folder(
    text: str, is_next: bool, program: str, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "beside.py").touch()
    (tmp_path / "inner.sh").write_text("#!/bin/bash\ntorchrun inner.py\n")
    (tmp_path / "scripts" / "job.sh").write_text(f"#!/bin/bash\n{text}\n")
    path, environ = "scripts/job.sh", {"PATH": os.environ["PATH"]}
    launch = launches_of_job_script(path, environ, *followed(path, environ), is_next=is_next)[0]
    options = with_launch_line(ExamineOptions(), launch, path)
    in_folder = [os.path.relpath(name, tmp_path) for name in options.files if name != str(tmp_path)]
    assert (os.path.relpath(options.program, tmp_path) if options.program else "", in_folder) == (program, files)


def test_a_folder_that_the_other_hosts_do_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = hosts_that_start(tmp_path, monkeypatch, "train.py", "model.py")
    there, elsewhere = facts["w1"], facts["w4"]
    hosts = {"w1": there, "w2": elsewhere, "w3": elsewhere}
    assert messages(run_check("launch-program-missing", hosts)) == []
    assert messages(run_check("launch-program-missing", {"w1": there, "w2": there, "w3": there})) == []


DATA = "torchrun --nnodes 3 t.py --data-path={0}/x.bin --save-dir {0}/out --lr 0.1 --cache {0}/c --data hub/name {0}/y"


def test_paths_that_options_name(tmp_path: Path) -> None:
    options = with_launch_line(ExamineOptions(), of_launch_line(DATA.format(tmp_path).split(), {}))
    assert options.inputs == (f"{tmp_path}/x.bin", f"{tmp_path}/y")
    assert options.results == (f"{tmp_path}/out",)
    inside = with_launch_line(ExamineOptions(), of_launch_line(f"docker run i {DATA.format('/d')}".split(), {}))
    assert not (inside.inputs or inside.results)


def test_states_of_what_the_program_reads(tmp_path: Path) -> None:
    for name, text in (("full", "x"), ("empty", ""), ("a_text_document.idx", "x")):
        (tmp_path / name).write_text(text)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("gone")
    names = {"full": "there", "empty": "empty", "fifo": "special", "link": "absent", "a_text_document": "there"}
    answer = find_program({"inputs": [f"{tmp_path}/{name}" for name in names]})
    assert answer["files"] == {f"{tmp_path}/{name}": state for name, state in names.items()}
    results = {"new/out": "there", "full": "closed", "link": "closed", "a_text_document.idx": "there"}
    answer = find_program({"results": [f"{tmp_path}/{name}" for name in results]})
    assert answer["files"] == {f"{tmp_path}/{name}": state for name, state in results.items()}


def test_a_folder_for_results_that_is_there_and_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's answer for a read-only file system, also to root."""
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK | os.X_OK)
    assert find_program({"results": [str(tmp_path)]})["files"] == {str(tmp_path): "closed"}


@pytest.mark.parametrize(
    ("state", "lacking", "message", "is_warning"),
    [
        ("absent", 1, "/d/x is not there", False),
        ("empty", 1, "/d/x is an empty file", False),
        ("closed", 1, "/out is no place that can be made or written to", False),
        ("absent", 2, "/d/x is not there", True),
        ("absent", 3, "", None),  # the first rank reads it for all
        ("absent", 4, "/d/x is not there", True),
        ("closed", 3, "", None),  # the first rank writes for all
        ("closed", 4, "/out is no place that can be made or written to", False),
    ],
)
def test_what_the_program_reads_and_where_it_writes(
    state: str, lacking: int, message: str, is_warning: bool | None
) -> None:
    path = "/out" if state == "closed" else "/d/x"
    states = [state] * lacking + ["there"] * (4 - lacking)
    hosts = {f"w{n}": [JobProgram("/t.py", "there", {path: found})] for n, found in enumerate(states)}
    outcome = run_check("launch-program-missing", hosts)
    assert {text for _, text in messages(outcome)} == {message} - {""}
    assert {finding.is_warning for finding in outcome.findings} == {is_warning} - {None}
    if state == "closed" and message:
        assert "`mv /out /out.old`" in advice("launch-program-missing", outcome)


@pytest.mark.parametrize(
    ("before", "is_broken"), [("import model\n", True), ("import sys; sys.path[:0] = ['/x']\nimport model\n", False)]
)
def test_a_module_beside_the_program_that_is_no_python(before: str, is_broken: bool, tmp_path: Path) -> None:
    """It ends the program, unless that may have changed where Python looks."""
    (tmp_path / "t.py").write_text(before)
    (tmp_path / "model.py").write_text("def (\n")
    answer = find_program({"program": f"{tmp_path}/t.py", "module": ("python3", "", str(tmp_path))})
    hosts = {**fleet(2, JobProgram(f"{tmp_path}/t.py", "there")), "w3": [answered(JobProgram, answer)]}
    expected = [("w3", f"{tmp_path}/model.py is no valid Python")] if is_broken else []
    assert messages(run_check("launch-program-missing", hosts)) == expected


@pytest.mark.parametrize(
    ("before", "module", "state"),
    [
        ("from model import Net\n", "class Net: pass\n", "there"),
        ("from model import Net\n", "class Other: pass\n", "missing"),
        ("from model import Net\n", "def __getattr__(name): return 1\n", ""),
        ("from model import Net\n", "from layers import *\n", ""),
        ("from model import _net\n", "class Other: pass\n", ""),
        ("import sys; sys.path[:0] = ['/x']\nfrom model import Net\n", "class Other: pass\n", ""),
        ("try:\n    from model import Net\nexcept ImportError:\n    pass\n", "class Other: pass\n", ""),
    ],
)
def test_a_name_that_the_module_beside_the_program_lacks(before: str, module: str, state: str, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(before)
    (tmp_path / "model.py").write_text(module)
    answer = find_program({"program": f"{tmp_path}/t.py", "module": ("python3", "", str(tmp_path))})
    assert answer["files"].get("import model.Net", "") == state
    expected = [("w3", "the module model has no Net, which the program imports")] if state == "missing" else []
    hosts = {**fleet(2, JobProgram(f"{tmp_path}/t.py", "there")), "w3": [answered(JobProgram, answer)]}
    assert messages(run_check("launch-program-missing", hosts)) == expected


LOADED = "import torch\ndef restore(args):\n    {0}torch.load({1})\n{2}restore(args)\n"


@pytest.mark.parametrize(
    ("text", "is_loaded"),
    [
        (LOADED.format("", "args.resume", ""), True),
        (LOADED.format("if args.resume: ", "args.resume", ""), True),
        (LOADED.format("if args.resume is not None: ", "args.resume", "if __name__ == '__main__': "), True),
        (LOADED.format("if args.rank == 0: ", "args.resume", ""), False),
        (LOADED.format("if args.resume is None: ", "args.resume", ""), False),
        (LOADED.format("if not args.fresh: ", "args.resume", ""), False),
        (LOADED.format("", "args.resume", "if dist.get_rank() == 0: "), False),
        (LOADED.format("", "args.resume", "for restore in hooks: ").replace("restore(args)\n", "pass\n", 1), False),
        (LOADED.format("", "args.teacher", ""), False),
        ("try:\n    torch.load(args.resume)\nexcept OSError:\n    pass\n", False),
        ("def f(args):\n    if args.rank:\n        return\n    torch.load(args.resume)\nf(args)\n", False),
    ],
)
@pytest.mark.parametrize("line", ["torchrun t.py --resume ck.pt", "torchrun t.py --lr 1 --resume=./ck.pt"])
def test_a_checkpoint_that_each_rank_loads(line: str, text: str, is_loaded: bool, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(text)
    answer = find_program({"program": f"{tmp_path}/t.py", "module": ("python3", "", str(tmp_path))})
    program = answered(JobProgram, answer)
    assert isinstance(program, JobProgram)
    assert program.each_rank_loads("/job/ck.pt", line) == is_loaded
    assert not program.each_rank_loads("/job/other.pt", line)


@pytest.mark.parametrize(
    ("text", "line", "has_workers"),
    [
        ("DataLoader(rows, 32)", "", False),
        ("DataLoader(rows, num_workers=4)", "", True),
        ("data.DataLoader(rows, 32, True, None, None, 2)", "", True),
        ("DataLoader(rows, num_workers=0)", "", False),
        ("DataLoader(rows, num_workers=args.loader_workers)", "", True),
        ("DataLoader(rows, num_workers=args.loader_workers)", "--loader-workers 0", False),
        ("DataLoader(rows, num_workers=args.many)", "", False),
        ("DataLoader(rows, num_workers=args.many)", "--many=8", True),
        ("DataLoader(rows, num_workers=len(x))", "--many=8", False),
    ],
)
def test_the_workers_of_data_loaders(text: str, line: str, has_workers: bool, tmp_path: Path) -> None:
    option = "p.add_argument('-w', '--loader-workers', type=int, default=3)\n"
    (tmp_path / "t.py").write_text(f"import sys\n{option}{text}\n")
    program = answered(
        JobProgram, find_program({"program": f"{tmp_path}/t.py", "module": ("python3", "", str(tmp_path))})
    )
    assert isinstance(program, JobProgram)
    assert has_loader_workers(program, f"torchrun t.py {line}") == has_workers


@pytest.mark.parametrize(("loads", "is_warning"), [(["resume"], False), ([], True)])
@pytest.mark.parametrize("state", ["damaged", "absent"])
def test_a_checkpoint_that_one_of_two_hosts_cannot_load(state: str, loads: list[str], is_warning: bool) -> None:
    states = {"w1": "there", "w2": state}
    hosts = {host: [JobProgram("/t.py", "there", {"/j/a.pt": found}, {}, loads)] for host, found in states.items()}
    launch = LaunchConfig(launch_line="torchrun t.py --resume /j/a.pt")
    outcome = run_check("launch-program-missing", hosts, launch)
    assert [(finding.hosts, finding.is_warning) for finding in outcome.findings] == [(("w2",), is_warning)]


@pytest.mark.torch
def test_the_tensors_of_checkpoints(tmp_path: Path) -> None:
    """Written by torch and by hand: equal ones, others, and one without its end."""
    import torch

    def described(name: str) -> tuple[str, str]:
        answer = find_program({"inputs": [f"{tmp_path}/{name}"]})
        return answer["files"][f"{tmp_path}/{name}"], answer["texts"][f"{tmp_path}/{name}"].partition(", ")[2]

    for name, shape in (("a.pt", 12), ("b.pt", 12), ("c.pt", 120)):
        torch.save({"w": torch.randn(shape)}, tmp_path / name)
    (tmp_path / "cut.pt").write_bytes((tmp_path / "c.pt").read_bytes()[:-200])
    head = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    for name, body in (("x.safetensors", bytes(8)), ("cut.safetensors", bytes(4))):
        (tmp_path / name).write_bytes(len(head).to_bytes(8, "little") + head + body)
    (tmp_path / "odd.safetensors").write_bytes(b"\xff" * 40)
    (tmp_path / "text.bin").write_text("no checkpoint")
    assert described("a.pt") == described("b.pt") != described("c.pt")
    assert described("x.safetensors")[1].startswith("tensors ")
    assert described("cut.pt") == described("cut.safetensors") == ("damaged", "")
    assert described("odd.safetensors") == described("text.bin") == ("there", "")
