"""Launches that another file carries: none has an error as it is, and a planted mistake is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doctor.engine.errors import InputError
from doctor.engine.result import Severity
from doctor.job.job_script import scripts_of
from doctor.job.training.tree import UnreadableFile
from doctor.session.script_launches import launches_of_script
from tests.lint.carried_launches import CARRIED, COMPOSE, FSDP, JOBSET, MANIFESTS, MASTER_WORKER, MPI
from tests.lint.launch_report import lint_report

LAUNCHES = {**MANIFESTS, **CARRIED}
ENV = 'env:\n              - {name: NODES, value: "4"}\n'
NOT_TOLD = {("llama factory", "NNODE=2")}
"""What is known not to be told: a variable of the user's own may have this name."""
RAY = """apiVersion: ray.io/v1
kind: RayJob
spec:
  entrypoint: python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.n=1 trainer.nnodes=2 trainer.n_gpus_per_node=8
  rayClusterSpec:
    rayVersion: '2'
    headGroupSpec: {template: {spec: {containers: [{name: h, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
"""
PLANTED = [(name, *mistake) for name, (_, _, mistakes) in LAUNCHES.items() for mistake in mistakes]
FILES = {
    "factory.yaml": "model_name_or_path: m\nstage: sft\nper_device_train_batch_size: 1\n",
    "axolotl.yaml": "base_model: m\nmicro_batch_size: 1\nsequence_len: 2048\n",
}


def findings(name: str, text: str, folder: Path) -> dict[str, list[tuple[str, bool]]]:
    """The findings of each check, and which of them is an error."""
    for file, content in {**FILES, name: text}.items():
        (folder / file).write_text(content)
    outcomes = [outcome for outcome in lint_report([name]).outcomes if outcome.findings]
    return {one.check: [(str(f), one.severity_of(f) is Severity.ERROR) for f in one.findings] for one in outcomes}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_carried_launch_has_no_error(name: str, tmp_path: Path) -> None:
    file, text, _ = LAUNCHES[name]
    assert not [text for told in findings(file, text, tmp_path).values() for text, is_error in told if is_error]


@pytest.mark.parametrize(("name", "old", "new"), PLANTED)
def test_a_mistake_in_a_carried_launch_is_told(name: str, old: str, new: str, tmp_path: Path) -> None:
    file, text, _ = LAUNCHES[name]
    assert old in text
    before = findings(file, text, tmp_path)
    assert (findings(file, text.replace(old, new), tmp_path) != before) == ((name, new) not in NOT_TOLD)


def test_a_finding_names_the_line_of_the_manifest(tmp_path: Path) -> None:
    text = FSDP.replace('"INFO"', '"INF0"').replace("- --nnodes=4", "- --nnodess=4")
    (tmp_path / "job.yaml").write_text(text)
    by_check = {outcome.check: repr(outcome.findings) for outcome in lint_report(["job.yaml"]).outcomes}
    marks = ("--nnodess=4", "name: NCCL_DEBUG")
    at = [number for number, line in enumerate(text.splitlines(), 1) if any(mark in line for mark in marks)]
    assert f"job.yaml:{at[0]}" in by_check["launch-settings-invalid"]
    assert f"job.yaml:{at[1]}" in by_check["launch-option-refused"]


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (FSDP, "replicas: 4", "replicas: $NUM_NODES"),  # a template says it later
        (FSDP, "--nnodes=4", "--nnodes=$NUM_NODES"),
        (FSDP, "nvidia.com/gpu: 8", "nvidia.com/gpu: ${GPUS}"),
        (FSDP, "value: \"20000\"", "value: $SIZE"),
        (FSDP, "--nnodes=4", "--nnodes=$(NODES)"),  # an operator may declare it
        (MASTER_WORKER, '["torchrun", "pret', '["torchrun", "--nnodes", "$(PET_NNODES)", "pret'),
        (JOBSET, "--nnodes=4", "--nnodes=${NODES:-4}"),
        (JOBSET, "replicas: 1", "replicas: 2"),  # two jobs of four hosts
    ],
)  # fmt: skip
def test_what_only_the_cluster_knows_is_no_mistake(text: str, old: str, new: str, tmp_path: Path) -> None:
    assert old in text
    assert findings("job.yaml", text.replace(old, new), tmp_path) == {}


def test_a_variable_that_no_shell_expands_is_a_word(tmp_path: Path) -> None:
    text = FSDP.replace("--nnodes=4", "--nnodes=$NODES").replace(
        "env:\n", 'env:\n              - {name: NODES, value: "4"}\n'
    )
    assert "launch-option-refused" in findings("job.yaml", text, tmp_path)
    assert findings("job.yaml", text.replace("=$NODES", "=$(NODES)"), tmp_path) == {}


def test_other_files_are_configurations_as_before() -> None:
    for text in (
        "services: [a]\n",
        "run: x\n",
        "- hosts\n",
        "kind: PyTorchJob\n",
        "apiVersion: v1\nkind: Pod\n",
        "a: 1\n",
        "",
    ):
        assert scripts_of(text, "a.yaml", {}) == []
    with pytest.raises(UnreadableFile):
        scripts_of("a: [", "a.yaml", {})


def test_aliases_end_at_the_limit() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    with pytest.raises(UnreadableFile, match="aliases"):
        scripts_of(bomb, "a.yaml", {})


def test_each_word_keeps_its_line() -> None:
    [script] = scripts_of(FSDP, "job.yaml", {})
    [line] = script.launch_lines
    assert FSDP.splitlines()[line.line - 1].strip() == "- /usr/local/bin/torchrun"
    assert (line.nodes, line.ranks_per_node, line.program) == (4, 8, "/fsdp/train.py")
    assert re.search(r"--num_layers=32", " ".join(line.arguments))


def test_what_is_not_understood_beside_a_launch_stays_unknown(tmp_path: Path) -> None:
    second = MPI.replace("/opt/amazon/openmpi/bin/mpirun", "jsrun").replace("- -np\n", "- -n\n")
    (tmp_path / "job.yaml").write_text(f"{FSDP}---\n{second}")
    assert any(outcome.unknown for outcome in lint_report(["job.yaml"]).outcomes)


def test_a_manifest_without_a_command_is_judged_by_the_image_alone() -> None:
    container = "{name: a, image: x}"
    group = f"{{template: {{spec: {{containers: [{container}]}}}}}}"
    alone = f"apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec:\n  tasks: [{group}]\n"
    [[line]] = [script.launch_lines for script in scripts_of(alone, "a.yaml", {})]
    assert line.unresolved["program"] == "no container names a command: that of its image"
    assert scripts_of(alone.replace("x}", "x, command: [sleep, infinity]}"), "a.yaml", {}) == []
    beside = scripts_of(f"{FSDP}---\n{alone}", "a.yaml", {})
    assert beside == scripts_of(FSDP, "a.yaml", {})


def test_a_text_that_no_shell_accepts_is_named() -> None:
    broken = COMPOSE.replace("torchrun --nnodes=2", 'torchrun "--nnodes=2', 1)
    [first, *_] = scripts_of(broken, "compose.yaml", {})
    assert first.refused
    with pytest.raises(InputError, match="no shell reads this"):
        launches_of_script(broken, "compose.yaml", {}, lambda _: None)


def test_services_with_one_number_in_one_file(tmp_path: Path) -> None:
    """The address is that of a service, so that both are meant to be there at once; of another host they may not be."""
    text = re.sub("network_mode: host\n    |--node_rank=1", lambda found: "--node_rank=0" * ("=1" in found[0]), COMPOSE)
    told = "lines 9 and 21 start torchrun on a host each, and all of these hosts get node rank 0"
    for address, is_told in (("node0", True), ("10.0.0.1", False)):
        by_check = findings("compose.yaml", text.replace("10.0.0.1", address), tmp_path)
        assert (told in str(by_check.get("rank-numbers-wrong"))) == is_told, by_check


@pytest.mark.parametrize(
    "more",
    [
        "enableInTreeAutoscaling: true",
        "workerGroupSpecs: [{numOfHosts: 2}]",
        "workerGroupSpecs: [{replicas: '{{ n }}'}]",
    ],
)
def test_a_cluster_of_ray_whose_size_is_not_known_is_not_judged(more: str, tmp_path: Path) -> None:
    assert "launch-ranks-contradict" in findings("job.yaml", RAY, tmp_path)
    assert "launch-ranks-contradict" not in findings("job.yaml", RAY.replace("rayVersion: '2'", more), tmp_path)
