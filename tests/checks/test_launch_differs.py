"""launch-differs: what each host's own environment says of the job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from doctor.engine.errors import InputError
from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Fact, ProbeArguments
from doctor.engine.record import LaunchOptions
from doctor.engine.result import Outcome, Status
from doctor.environment.job_environment import launches_of_job_script
from doctor.facts.job_paths import JobProgram, find_program
from doctor.job import LaunchConfig
from doctor.session.training_files import followed
from tests.checks.run_check import run_check as check_hosts
from tests.checks.tables import check, list_messages


def run_check(**by_host: dict[str, str]) -> Outcome:
    launch = LaunchConfig.from_environment({}, by_host=by_host)
    return evaluate_check(check("launch-differs"), (), FactCache({}), {LaunchConfig: launch})


JOB = {"MASTER_ADDR": "w1", "MASTER_PORT": "29500", "WORLD_SIZE": "24"}


def test_hosts_that_are_told_the_same_are_well() -> None:
    assert run_check(w1=JOB, w2=JOB, w3=JOB).status is Status.PASSED


def test_without_each_hosts_own_word_nothing_is_said() -> None:
    assert run_check().status is Status.SKIPPED


@pytest.mark.parametrize(("variable", "value"), [("MASTER_ADDR", "w9"), ("MASTER_PORT", "29501"), ("WORLD_SIZE", "16")])
def test_the_host_that_is_told_something_else_is_named(variable: str, value: str) -> None:
    outcome = run_check(w1=JOB, w2={**JOB, variable: value}, w3=JOB)
    assert [finding.hosts for finding in outcome.findings] == [("w2",)]
    (message,) = list_messages(outcome)
    assert message == f"{variable} is {value}; expected {JOB[variable]} | observed {value} | expected {JOB[variable]}"


def test_one_that_is_told_nothing_is_named() -> None:
    outcome = run_check(w1=JOB, w2=JOB, w3={})
    assert {finding.values["observed"] for finding in outcome.findings} == {"not set"}
    assert {finding.hosts for finding in outcome.findings} == {("w3",)}


def test_of_two_that_differ_both_are_named() -> None:
    outcome = run_check(w1=JOB, w2={**JOB, "MASTER_ADDR": "w2"})
    assert [finding.hosts for finding in outcome.findings] == [("w1",), ("w2",)]
    assert "no majority" in outcome.findings[0].values["expected"]


def test_a_name_with_and_without_its_domain_is_one_name() -> None:
    assert run_check(w1=JOB, w2={**JOB, "MASTER_ADDR": "W1.cluster.example"}).findings == ()


def test_the_master_alone_may_look_for_itself() -> None:
    here = {**JOB, "MASTER_ADDR": "localhost"}
    for address in ("localhost", "ip6-localhost", "::1", "127.0.0.1", "0.0.0.0"):
        assert run_check(w1={**JOB, "MASTER_ADDR": address}, w2=JOB, w3=JOB).findings == ()
    assert [finding.hosts for finding in run_check(w1=here, w2=here, w3=JOB).findings] == [("w3",)]


def test_settings_that_ranks_must_share() -> None:
    outcome = run_check(w1={"NCCL_ALGO": "Ring"}, w2={"NCCL_ALGO": "Ring"}, w3={"NCCL_ALGO": "Tree"})
    assert [finding.hosts for finding in outcome.findings] == [("w3",)]


def test_detailed_debugging_that_one_host_alone_has() -> None:
    """torch's second group, which compares the collectives, waits for ranks that do not make it."""
    outcome = run_check(w1={}, w2={"TORCH_DISTRIBUTED_DEBUG": "detail"}, w3={"TORCH_DISTRIBUTED_DEBUG": "INFO"})
    assert [finding.hosts for finding in outcome.findings] == [("w2",)]
    assert (
        run_check(w1={}, w2={"TORCH_DISTRIBUTED_DEBUG": "INFO"}, w3={"TORCH_DISTRIBUTED_DEBUG": "OFF"}).findings == ()
    )


SBATCH = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=1\n"
TORCHRUN = "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"srun bash -c '{TORCHRUN} $(hostname):29500 t.py'", "--rdzv-endpoint"),
        (f"srun bash -c '{TORCHRUN} $HOSTNAME t.py'", "--rdzv-endpoint"),
        (f"srun bash -c '{TORCHRUN} w1 --rdzv_id $RANDOM t.py'", "--rdzv-id"),
        ("srun bash -c 'export MASTER_ADDR=$(hostname -i); python t.py'", "MASTER_ADDR"),
        ("pdsh -w w[1-2] 'torchrun --nnodes 2 --node_rank %n --master_addr $(hostname) t.py'", "--master-addr"),
        (f"M=$(hostname)\nsrun bash -c '{TORCHRUN} $(hostname):29500 t.py'", "--rdzv-endpoint"),
        (f"export M=$(hostname)\nsrun bash -c 'M=$(hostname); {TORCHRUN} $M t.py'", "--rdzv-endpoint"),
        (f"export M=$(hostname)\nsrun bash -c '{TORCHRUN} $M t.py'", ""),
        (f"srun {TORCHRUN} $(hostname):29500 --rdzv_id $RANDOM t.py", ""),
        (f'srun bash -c "{TORCHRUN} $(hostname) t.py"', ""),
        (f"M=$(hostname)\nsrun bash -c '{TORCHRUN} '$M' t.py'", ""),
        (f"srun bash -c '{TORCHRUN} w1 --local_addr $(hostname) t.py'", ""),
        (f"srun bash -c 'export MASTER_ADDR=$(hostname); {TORCHRUN} w1 --master_port $RANDOM t.py'", ""),
        (f"srun bash -c '{TORCHRUN} $HEAD t.py'", ""),
        (f"srun bash -c '{TORCHRUN.replace('2', '1')} $(hostname) t.py'", ""),
        (f"bash -c '{TORCHRUN} $(hostname) t.py'", ""),
    ],
)
def test_what_each_host_computes_for_itself(text: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"{SBATCH}{text}\n")
    launch = LaunchConfig.from_options(
        launches_of_job_script(str(path), {"HOSTNAME": "w1"})[0].complete(LaunchOptions())
    )
    outcome = evaluate_check(check("launch-differs"), (), FactCache({}), {LaunchConfig: launch})
    assert [finding.values["variable"] for finding in outcome.findings] == [found] * bool(found)


@pytest.mark.parametrize(
    ("outer", "inner", "found"),
    [
        ("srun bash run.sh", f"{TORCHRUN} $(hostname) t.py", "--rdzv-endpoint"),
        ("srun bash run.sh $(hostname)", f"{TORCHRUN} $1 t.py", ""),
        ("export HEAD=$(hostname)\nsrun bash run.sh", f"{TORCHRUN} $HEAD t.py", ""),
        ("bash run.sh", f"{TORCHRUN} $(hostname) t.py", ""),
        ("srun bash absent.sh", f"{TORCHRUN} $(hostname) t.py", ""),
    ],
)
def test_what_each_host_computes_in_a_script(outer: str, inner: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"{SBATCH}{outer}\n")
    (tmp_path / "run.sh").write_text(f"{inner}\n")
    follow, read_file = followed(str(path), {})
    try:
        source = launches_of_job_script(str(path), {}, follow, read_file)[0]
    except InputError:
        assert not found
        return
    launch = LaunchConfig.from_options(source.complete(LaunchOptions()))
    outcome = evaluate_check(check("launch-differs"), (), FactCache({}), {LaunchConfig: launch})
    assert [finding.values["variable"] for finding in outcome.findings] == [found] * bool(found)


def test_what_a_file_of_nccl_sets_is_corrected_there() -> None:
    files = {"w1": {}, "w2": {"NCCL_ALGO": "Tree"}, "w3": {}}
    launch = LaunchConfig(files=files)
    outcome = evaluate_check(check("launch-differs"), (), FactCache({}), {LaunchConfig: launch})
    (finding,) = outcome.findings
    assert (finding.hosts, finding.values["observed"]) == (("w2",), "tree")
    assert "On w2: `grep -n '^NCCL_ALGO=' ~/.nccl.conf /etc/nccl.conf" in finding.values["remedy"]
    assert "~/.bashrc" not in finding.values["remedy"]


def test_a_host_without_the_line_that_the_files_of_others_have() -> None:
    launch = LaunchConfig(files={"w1": {"NCCL_ALGO": "Tree"}, "w2": {"NCCL_ALGO": "Tree"}, "w3": {}})
    outcome = evaluate_check(check("launch-differs"), (), FactCache({}), {LaunchConfig: launch})
    assert [(finding.hosts, "grep -n" in finding.values["remedy"]) for finding in outcome.findings] == [(("w3",), True)]


def test_what_the_environment_sets_beside_a_file_is_looked_for_in_the_environment() -> None:
    launch = LaunchConfig.from_environment({}, by_host={"w1": {"NCCL_ALGO": "Ring"}, "w2": {}, "w3": {}})
    launch = msgspec.structs.replace(launch, files={"w1": {"NCCL_ALGO": "Tree"}})
    outcome = evaluate_check(check("launch-differs"), (), FactCache({}), {LaunchConfig: launch})
    (finding,) = outcome.findings
    assert (finding.hosts, finding.values["observed"]) == (("w1",), "ring")
    assert "`grep -n NCCL_ALGO ~/.bashrc" in finding.values["remedy"]


def program(text: str) -> list[Fact]:
    return [JobProgram(path="/w/train.py", state="there", texts={"/w/train.py": text})]


@pytest.mark.parametrize(
    ("texts", "blamed"),
    [(("a", "a", "b"), ["w3"]), (("a", "b"), ["w1", "w2"]), (("a", "a"), []), (("a", ""), [])],
)
def test_the_host_whose_program_is_another_one(texts: Sequence[str], blamed: list[str]) -> None:
    """As a warning; a host where it could not be read is compared with none."""
    hosts = {f"w{number}": program(text) for number, text in enumerate(texts, 1)}
    outcome = check_hosts("launch-differs", hosts)
    assert [host for finding in outcome.findings for host in finding.hosts] == blamed
    assert all(finding.is_warning and "/w/train.py differs" in str(finding) for finding in outcome.findings)


@pytest.mark.parametrize(
    ("path", "texts", "blamed"),
    [
        ("/w/model.py", ["a", "a", "b"], ["w3"]),
        ("/w/model.py", ["a", "b"], ["w1", "w2"]),
        ("/d/x.bin", ["file of 9 bytes", "file of 9 bytes", "file of 8 bytes"], ["w3"]),
        ("/d/x.bin", ["file of 9 bytes", "file of 9 bytes", "folder"], ["w3"]),
        ("/d/x.bin", ["file of 9 bytes", "file of 8 bytes"], []),  # data that is divided among the hosts
        ("/d/x.bin", ["file of 9 bytes", "file of 8 bytes", "file of 7 bytes"], []),
    ],
)
def test_modules_beside_the_program_and_sizes_of_data_are_compared(
    path: str, texts: Sequence[str], blamed: list[str]
) -> None:
    hosts = {f"w{n}": [JobProgram("/w/train.py", "there", texts={path: text})] for n, text in enumerate(texts, 1)}
    outcome = check_hosts("launch-differs", hosts)
    assert [host for finding in outcome.findings for host in finding.hosts] == blamed
    assert all(finding.is_warning and f"{path} differs" in str(finding) for finding in outcome.findings)


@pytest.mark.parametrize("others", [0, 1])
def test_a_package_of_one_host_hides_the_module_of_the_same_name(others: int) -> None:
    """Python takes model/__init__.py, and not model.py beside it: an old folder of one host is another program."""
    texts = [{"/w/model.py": "a"}, *[{"/w/model.py": "a"}] * others, {"/w/model/__init__.py": "b"}]
    hosts = {f"w{n}": [JobProgram("/w/train.py", "there", texts=own)] for n, own in enumerate(texts, 1)}
    (finding,) = check_hosts("launch-differs", hosts).findings
    if others:
        assert finding.is_warning and finding.hosts == ("w3",)
        assert str(finding).startswith("/w/model/ hides /w/model.py, which 2 of 3 hosts import")
        assert "`mv /w/model /w/model.unused`" in finding.values["remedy"]
    same = {host: [JobProgram("/w/train.py", "there", texts=texts[-1])] for host in hosts}
    assert not check_hosts("launch-differs", same).findings


def test_modules_that_a_program_imports_from_its_folder(tmp_path: Path) -> None:
    for name, text in (("train", "import os, model\n"), ("model", "import layers\n# so\n"), ("layers", "x = 1\n")):
        (tmp_path / f"{name}.py").write_text(text)
    asked: ProbeArguments = {"program": f"{tmp_path}/train.py", "module": ("python3", "", str(tmp_path))}
    before = find_program(asked)["texts"]
    assert sorted(before) == [f"{tmp_path}/{name}.py" for name in ("layers", "model", "train")]
    (tmp_path / "model.py").write_text("import layers\n")
    assert find_program(asked)["texts"] == before
    (tmp_path / "layers.py").write_text("x = 2\n")
    assert find_program(asked)["texts"] != before


@pytest.mark.parametrize(
    ("loads", "texts", "found"),
    [
        (["resume"], ("file of 9 bytes, tensors 1", "file of 8 bytes, tensors 2"), [False]),
        (["resume"], ("file of 9 bytes, tensors 1", "file of 8 bytes, tensors 1"), []),
        ([], ("file of 9 bytes, tensors 1", "file of 8 bytes, tensors 2"), []),
    ],
)
def test_a_checkpoint_with_other_tensors_that_each_rank_loads(
    loads: list[str], texts: tuple[str, str], found: list[bool]
) -> None:
    hosts = {
        f"w{n}": [JobProgram("/t.py", "there", {"/j/a.pt": "there"}, {"/j/a.pt": text}, loads)]
        for n, text in enumerate(texts)
    }
    launch = LaunchConfig(launch_line="torchrun t.py --resume /j/a.pt")
    outcome = check_hosts("launch-differs", hosts, launch)
    assert [finding.is_warning for finding in outcome.findings] == found
