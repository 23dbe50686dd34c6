"""Each planted mistake is found on its line, and the same script without it has no error."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.engine.result import Finding, Outcome, Severity
from doctor.session.corrected_lines import Corrections, corrected
from tests import preloaded
from tests.checks import tables
from tests.lint.launch_report import lint_report, naming, write_files
from tests.lint.line_mistakes import MISTAKES, NOT_FOUND, SOUND, wrong_line


@pytest.mark.parametrize("name", [name for name in MISTAKES if name not in NOT_FOUND])
def test_a_mistake_is_found_on_its_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = MISTAKES[name]
    write_files(tmp_path, mistake)
    monkeypatch.chdir(tmp_path)
    report = lint_report(["run.sh"])
    checks = mistake.checks.split()
    assert any(naming(one, wrong_line(mistake)) for one in report.outcomes if one.check in checks), report.outcomes


def test_most_mistakes_are_found() -> None:
    assert len(MISTAKES) - len(NOT_FOUND) >= 45
    assert MISTAKES.keys() >= NOT_FOUND


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_script_has_no_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, SOUND[name])
    monkeypatch.chdir(tmp_path)
    errors = [
        str(finding)
        for outcome in lint_report(["run.sh"]).outcomes
        for finding in outcome.findings
        if outcome.severity_of(finding) is Severity.ERROR or outcome.check == "launch-option-refused"
    ]
    assert errors == []


WITHOUT_A_CORRECTED_LINE = {
    "one task for a launcher of two hosts",
    "memory in MiB",
    "FSDP beside DeepSpeed in Transformers' Trainer",
    "one number for two ranks",
    "logs below /proc",
    "a session that the batch script leaves behind",
    "hosts of Lightning's Trainer",
    "devices of Lightning's Trainer",
    "more devices than Ray's hosts have",
    "more devices than the hosts of the job have",
    "an option of Open MPI for Hydra",
    "the names of all hosts for an address",
    "two addresses of a server's hosts",
    "two ports in the ranks' variables",
    "a host in the foreground of a loop",
    "a host in the foreground before another",
    "a batch script that ends before its steps",
    "a batch in a configuration that is written",
    "the first host's number in a script that is written",
    "srun in each process of mpirun",
    "another port than that of Ray's head",
    "a container of torch without devices",
    "a container of torch with little memory",
    "an image of torch without devices",
    "more ranks than places by ppr",
    "more ranks than places of Hydra",
    "braces with a variable",
    "numbers of a loop that begin at 1",
    "numbers of a loop to a variable, from 1",
    "local ranks of tasks that are dealt out",
    "local ranks of tasks that are dealt out by two",
    "a container with fewer devices than ranks",
    "a container with two NPUs",
    "hosts of NeMo's overrides",
    "a counted loop to a variable with one host too few",
    "a task of Flux for each of other hosts",
    "one node rank for all tasks of Flux",
    "a program without numbers under Flux",
    "a server's host that there is not",
    "a server's hosts that meet at their own",
    "ranks of SGLang that do not fit its hosts",
    "hosts of xtuner that meet at their own",
    "a step for each host, numbered from 1",
    "a loop that leaves out the last host",
    "a loop over computed hosts without the last",
    "more rounds of ssh than hosts",
    "a loop that counts more hosts than the job has",
    "tasks of an array as the hosts of one job",
    "a step in one part of a job",
    "a step of one host that meets others",
    "localhost in the input of a shell",
    "two hosts with one number",
    "two hosts with two addresses of the job",
    "two hosts with two ports of the job",
    "no number under mpirun",
    "no number under srun, and a look for it",
    "an array under sh",
    "a word of bash under sh",
    "local ranks of tasks that the job deals out",
    "local ranks by the number of the host",
    "a quotient of tasks for the number of the host",
    "the number on the host for that of the host",
    "a container in its machine's own network",
    "a loop over numbers in braces under sh",
    "two signs of equality under sh",
    "no blank in a test",
    "a value behind the variable of mpirun",
    "a blank in a list of hosts",
    "a misspelt variable of Slurm",
    "a directive in small letters",
    "a wrong backend on hosts of a loop",
    "an exit before the launch",
    "an option without its value, before python",
    "false under set -e",
    "a scheme before the endpoint",
    "a path without its dollar",
    "a value that a later one replaces",
    "a handler of events that torchrun lacks",
    "a directive with a blank in its mark",
    "directives behind a command",
    "a step on more hosts than the job",
    "ranks beyond the GPUs of a task",
    "an interpreter before torchrun",
    "a blank in a list of devices",
    "the job script's own rank for all tasks",
    "Accelerate: machine of the file",
    "GPUs with a unit",
    "a key of LSF's GPUs misspelt",
    "an option that Python has not",
    "all devices of deepspeed",
    "a launcher's module as a path",
    "a launcher's module misspelt",
    "a number with a comma behind it",
    "a resource of PBS misspelt",
    "a time of LSF with a unit",
    "a time of PBS with a unit",
    "a worker of Ray at its own host",
    "a worker of Ray under srun",
    "accelerate without an address",
    "an address beyond 255",
    "machine_rank of accelerate",
    "more tasks on named hosts than the launch has",
    "node_rank beyond",
    "node_rank from 1",
    "one node rank in a script of pdsh",
    "a container without the GPUs of its job",
    "one rank for all tasks of mpirun",
    "an argument of a function",
    "one letter more",
    "processes that no division gives",
    "standalone for two hosts",
    "workers not divisible",
    "no host of verl",
    "fewer restarts than none",
    "no time between looks",
}
"""What belongs there is the user's to know, or is in another file."""
WRITTEN = re.compile(
    r"Line (\d+) of \w+\.sh must read: `(.*)`|Before line (\d+) of run\.sh add: `(.*)`|takes line (\d+) away"
)
SUBSTITUTION = re.compile(r"(?:^|`)(sed -i\.bak [^`]+)")


def apply_edits(text: str, edits: list[str]) -> str:
    lines: list[str | None] = list(text.splitlines())
    for match in map(WRITTEN.match, edits):
        assert match, edits
        if match[1]:
            is_continued = (lines[int(match[1]) - 1] or "").endswith("\\")
            lines[int(match[1]) - 1] = match[2]
            assert not is_continued or match[2].endswith("\\")
        elif match[3]:
            lines[int(match[3]) - 1] = f"{match[4]}\n{lines[int(match[3]) - 1]}"
        else:
            lines[int(match[5]) - 1] = ""
    return "\n".join(line or "" for line in lines) + "\n"


@pytest.mark.parametrize("name", [name for name in MISTAKES if name not in NOT_FOUND])
def test_a_corrected_line_ends_its_finding_and_makes_no_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, MISTAKES[name])
    monkeypatch.chdir(tmp_path)
    before = {one.check: one.findings for one in lint_report(["run.sh"]).outcomes if one.findings}
    edited = {
        check: edits
        for check, all_ in before.items()
        for finding in all_
        if (edits := finding.values.get("corrected") or SUBSTITUTION.findall(finding.values.get("edit", "")))
    }
    if not edited:
        assert name in WITHOUT_A_CORRECTED_LINE
        return
    assert name not in WITHOUT_A_CORRECTED_LINE
    script = tmp_path / "run.sh"
    for edits in edited.values():
        commands = [command for edit in edits for command in SUBSTITUTION.findall(edit)]
        for command in commands:
            subprocess.run(["bash", "-c", command], check=True)
        if commands:
            continue
        [named] = {path.name for path in tmp_path.iterdir() if any(path.name in edit for edit in edits)} or {"run.sh"}
        file = tmp_path / named
        file.write_text(apply_edits(file.read_text(), edits))
    after = {one.check: one.findings for one in lint_report(["run.sh"]).outcomes if one.findings}
    assert not edited.keys() & after.keys(), (script.read_text(), after)
    assert after.keys() <= before.keys(), script.read_text()


def test_a_corrected_line_holds_no_secret_and_no_command_of_its_own() -> None:
    values = {"variable": "HCCL_CONECT_TIMEOUT", "expected": "HCCL_CONNECT_TIMEOUT"}
    secret = "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123 HCCL_CONECT_TIMEOUT=9 torchrun t.py"
    corrections, finding = Corrections(), Finding("{variable}", **values)
    edited = corrections.of("launch-variable-misspelt", finding, {"run.sh:2": secret}, iter(["run.sh:2"]))
    [finding] = corrections.written(Outcome("", "", "", Severity.ERROR, findings=(edited,))).findings
    [edit] = finding.values["corrected"]
    assert "hf_abc" not in edit and "HCCL_CONNECT_TIMEOUT=9" in edit
    with_backquote = "HCCL_CONECT_TIMEOUT=`date` torchrun t.py"
    assert corrected("launch-variable-misspelt", values, {"run.sh:2": with_backquote}, iter(["run.sh:2"])) == []
    assert corrected("launch-variable-misspelt", values, {}, iter(["run.sh:2"])) == []


def test_the_corrected_lines_of_all_findings_of_a_check_are_printed(tmp_path: Path) -> None:
    """Two lines that are wrong have two corrected lines."""
    script = tmp_path / "run.sh"
    two = "export HCCL_CONECT_TIMEOUT=1200\nexport HCCL_EXEC_TIMEOT=900\ntorchrun --nproc-per-node 2 t.py\n"
    script.write_text(f"#!/bin/bash\n{two}")
    text = lint_text(script)
    assert "export HCCL_CONNECT_TIMEOUT=1200" in text and "export HCCL_EXEC_TIMEOUT=900" in text
    for line in ("ray start --head --num-gpus eight", "torchrun --nproc-per-node eight t.py"):
        script.write_text(f"{line}\n{line.replace('--head', '--address n1:6379')}\npython3 t.py\n")
        text = lint_text(script)
        assert all(text.count(f"Line {number} of run.sh must read:") == 1 for number in (1, 2)), text
        script.write_text(script.read_text().replace("eight", "8"))
        assert "must read" not in lint_text(script)


WRONG_THRICE = {
    "refused twice": (
        "torchrun --nnodes 2 --nproc_per_node eight --rdzv_backend c10 t.py",
        "srun --nodes=2 --ntasks-per-node=1 torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d t.py",
    ),
    "several checks": (
        "HCCL_CONECT_TIMEOUT=200 HCCL_EXEC_TIMEOT=300 torchrun --nproc-per-node eight t.py",
        "HCCL_CONNECT_TIMEOUT=200 HCCL_EXEC_TIMEOUT=300 torchrun --nproc-per-node 8 t.py",
    ),
    "launched where the scheduler has more hosts": (
        "HCCL_CONECT_TIMEOUT=200 torchrun --nnodes 2 --nproc_per_node eight t.py",
        "HCCL_CONNECT_TIMEOUT=200 srun --nodes=2 --ntasks-per-node=1 torchrun --nnodes 2 --nproc_per_node 8 t.py",
    ),
    "exports": (
        "export HCCL_CONECT_TIMEOUT=1200 HCCL_EXEC_TIMEOT=1900 NCCL_SOCKET_IFNAM=eth0",
        "export HCCL_CONNECT_TIMEOUT=1200 HCCL_EXEC_TIMEOUT=1900 NCCL_SOCKET_IFNAME=eth0",
    ),
}


@pytest.mark.parametrize(("line", "right"), WRONG_THRICE.values(), ids=WRONG_THRICE)
@pytest.mark.parametrize("options", [[], ["-v"]])
def test_a_line_with_several_findings_is_corrected_once_for_all(
    line: str, right: str, options: list[str], tmp_path: Path
) -> None:
    """A launch that is right stays as it is."""
    script, sound = tmp_path / "run.sh", "" if "--nnodes" in line else "torchrun --nproc-per-node 8 sound.py\n"
    script.write_text(f"#!/bin/bash\n#SBATCH --nodes=2\n{line}\n{sound or 'echo'}\n")
    text = lint_text(script, *options)
    assert text.count("must read") == 1 and f"Line 3 of run.sh must read: `{right}`" in text, text
    assert "likewise" not in text
    checks = set(re.findall(r"^(?:FAIL|warn) +([\w-]+):", text, re.MULTILINE))
    assert len(checks) == 1 or "mends this, too" in text, text
    script.write_text(script.read_text().replace(line, right))
    assert "must read" not in lint_text(script) and "launch-sizes" not in lint_text(script), lint_text(script)


def lint_text(script: Path, *options: str) -> str:
    command = [sys.executable, "-m", "doctor", "lint", script.name, *options]
    return preloaded.run(command, cwd=script.parent, capture_output=True, text=True, timeout=60).stdout


def test_a_mistake_in_a_sourced_file_is_told_and_corrected_there(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("N=8\nexport HCCL_CONECT_TIMEOUT=1800\n")
    script = tmp_path / "run.sh"
    script.write_text('source "$(dirname "$0")/env.sh"\ntorchrun --nproc-per-node $N t.py\n')
    text = lint_text(script)
    assert "evidence: env.sh:2" in text
    assert "Line 2 of env.sh must read: `export HCCL_CONNECT_TIMEOUT=1800`" in text


BY_TABLE = "#!/bin/bash\nexport RANK_TABLE_FILE={}/table.json RANK_SIZE={}\nmpirun -np {} python3 t.py\n"


@pytest.mark.parametrize(
    ("address", "size", "expected"),
    [
        ("", 16, "HEALTHY"),
        ("192.168.100.101", 16, "FAIL    rank-table-address-repeated"),
        ("", 8, "FAIL    rank-table-world-size-differs"),
    ],
)
def test_a_rank_table_that_is_here_is_judged(tmp_path: Path, address: str, size: int, expected: str) -> None:
    table = tables.a2(2, 8)
    table["server_list"][1]["device"][0]["device_ip"] = address or table["server_list"][1]["device"][0]["device_ip"]
    table["server_list"][0]["device"][0]["device_ip"] = address or table["server_list"][0]["device"][0]["device_ip"]
    (tmp_path / "table.json").write_text(json.dumps(table))
    script = tmp_path / "run.sh"
    script.write_text(BY_TABLE.format(tmp_path, size, size))
    assert expected in lint_text(script)
    (tmp_path / "table.json").unlink()
    assert "rank-table-" not in lint_text(script)


def test_a_rank_table_is_not_that_of_another_script(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(json.dumps(tables.a2(2, 8)))
    (tmp_path / "run.sh").write_text(BY_TABLE.format(tmp_path, 16, 16))
    (tmp_path / "other.sh").write_text("#!/bin/bash\nexport NNODES=4\nmpirun -np 32 python3 t.py\n")
    text = lint_text(tmp_path / "run.sh", "other.sh")
    assert "the rank table" not in text, text


def test_a_task_prolog_may_number_the_tasks_of_srun(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nTaskProlog=/etc/slurm/numbers\n")
    (tmp_path / "t.py").write_text('import torch.distributed as dist\ndist.init_process_group("gloo")\n')
    script = tmp_path / "run.sh"
    script.write_text(f"export MASTER_ADDR=n1 SLURM_CONF={tmp_path}/slurm.conf\nsrun -n 4 python t.py\n")
    assert "TaskProlog=/etc/slurm/numbers may set variables of the tasks" in lint_text(script)
    (tmp_path / "slurm.conf").write_text("ClusterName=c\n# TaskProlog=/x\n")
    assert "FAIL    launch-rank-is-local" in lint_text(script)
