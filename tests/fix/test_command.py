"""`doctor fix` as it is typed: one line and an exit code for what cannot be followed, and nothing lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.cli.app import application
from doctor.cli.fix import _plan_context
from doctor.cli.host_options import ConnectionOptions, HostOptions, JobOptions
from doctor.engine.errors import CommandError
from doctor.fix import store
from doctor.fix.journal import Journal, UndoStep
from doctor.fix.plan import SCHEMA, FixPlan, HostPlan, StepPreview

ID = "20261120-101502-beef"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where plans are kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("DOCTOR_HOSTS", "DOCTOR_HOSTFILE", "SLURM_JOB_NODELIST", "RANK_TABLE_FILE", "DOCTOR_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "doctor" / "fix"


def fix(*arguments: str) -> int:
    """The exit code. Raises: CommandError."""
    argv = ["fix", *arguments]
    with pytest.raises(SystemExit) as ended:
        application(argv)(argv)
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (["--apply", "--undo", ID], 2, "exclude each other"),
        (["--list", "--apply"], 2, "exclude each other"),
        (["--undo", ID, "x"], 2, "take no NAME"),
        ([ID, "listen-queue-short"], 2, "a saved plan takes no further NAME"),
        (["listen-queue-short", "--apply"], 2, "no terminal for the confirmation; expected --yes"),
        (["--apply", "listen-queue-shrot"], 2, "did you mean listen-queue-short?"),
        (["--apply", ID], 78, "plans stay with the machine and user that made them"),
        (["--undo", ID], 78, "no plan is named"),
        (
            [ID, "--apply", "-w", "a1"],
            2,
            f"the plan {ID} has its hosts and takes no --hosts; --exclude leaves hosts out",
        ),
        ([ID, "--from", "run.json"], 2, "takes no --from"),
        (["--undo", ID, "--exclude", "a1"], 2, "--undo takes no --exclude"),
        (["--list", "-w", "a1"], 2, "--list takes no --hosts"),
        (["--transport", "slurm"], 2, "cannot change hosts"),
        (["--color", "red"], 2, "--color 'red'"),
        (["--undo", ID, "--changed", "perhaps"], 2, "--changed 'perhaps'"),
        (["--changed", "merge"], 2, "--changed is for --undo alone"),
        (["listen-queue-shrot"], 2, "did you mean listen-queue-short?"),
        (["sb[0001-0003]"], 2, "pass hosts with -w"),
        (["smoke"], 2, "use doctor smoke"),
        (["--from", "/nowhere"], 78, "--from /nowhere: No such file"),
        (["--playbooks", "/nowhere", "listen-queue-short"], 78, "--playbooks /nowhere: not a folder"),
        ([ID], 78, "no plan is named"),
        (["--undo", "../../etc", "--yes"], 78, "no plan is named"),
    ],
)
def test_what_cannot_be_followed_is_one_line(arguments: list[str], code: int, output: str) -> None:
    argv = ["fix", *arguments]
    with pytest.raises(CommandError) as refused:
        application(argv)(argv)
    assert refused.value.exit_code == code
    assert output in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", '{"schema": 3}', "[" * 100000, '{"schema": "doctor.plan/9"}', "\x00"])
def test_a_plan_that_cannot_be_read_is_one_line(text: str, state: Path) -> None:
    (state / ID).mkdir(parents=True)
    (state / ID / "plan.json").write_text(text)
    with pytest.raises(CommandError, match=r"plan\.json"):
        application(["fix"])(["fix", ID])
    assert fix("--list") == 0


def test_no_plan_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert fix("--list") == 0
    assert capfd.readouterr().out == "No plan is saved.\n"


def test_plans_are_listed_with_what_became_of_them(state: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = store.save(
        FixPlan(SCHEMA, ID, "", "1", "a test", ("a1",), (), (), ()), {"XDG_STATE_HOME": str(state.parents[1])}
    )

    def listed() -> str:
        assert fix("--list", "--json") == 0
        return str(json.loads(capfd.readouterr().out)["plans"][0]["state"])

    assert listed() == "planned"
    journal = Journal(place)
    journal.record_start("apply")
    number = journal.record_step("a1", "mend", "Set it", "set", UndoStep(0, "a1", False, "Set it", run="unset"))
    assert listed() == "interrupted, 1 step in effect or started"
    journal.record_end(number, "a1", 0, "")
    journal.record_finish(0)
    assert listed() == "applied, 1 step in effect"
    journal.record_undo_end(journal.undo_steps()[0], 0, "")
    assert listed() == "undone"


def test_a_saved_plan_is_shown_and_one_without_anything_is_not_applied(state: Path) -> None:
    store.save(FixPlan(SCHEMA, ID, "", "1", "a test", ("a1",), (), (), ()), {"XDG_STATE_HOME": str(state.parents[1])})
    assert fix(ID) == 0
    with pytest.raises(CommandError, match="no step to apply"):
        application(["fix"])(["fix", ID, "--apply", "--yes"])


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (["--apply"], 2, "no terminal for the confirmation; expected --yes"),
        (["--exclude", "a1"], 2, "--exclude is for --apply"),
        (["--apply", "--yes", "--exclude", "a1,a9"], 2, f"--exclude 'a1,a9': a9 is no host of {ID}"),
        (["--apply", "--yes", "--exclude", "a[1-"], 78, "--exclude"),
        (["--apply", "--yes", "--exclude", "A1,a2"], 10, "no step to apply on the hosts that are left"),
    ],
)
def test_hosts_are_left_out_of_a_saved_plan_by_name(state: Path, arguments: list[str], code: int, output: str) -> None:
    step = StepPreview("queues", "Set it", "run", run="true")
    plans = tuple(HostPlan(host, (), (step,)) for host in ("a1", "a2"))
    store.save(
        FixPlan(SCHEMA, ID, "", "1", "a test", ("a1", "a2"), (), (), plans), {"XDG_STATE_HOME": str(state.parents[1])}
    )
    with pytest.raises(CommandError) as refused:
        application(["fix"])(["fix", ID, *arguments])
    assert (refused.value.exit_code, output in str(refused.value)) == (code, True), refused.value


def test_a_plan_that_cannot_be_saved_is_one_line(state: Path) -> None:
    state.parent.write_text("a file in the way")
    with pytest.raises(store.PlanStoreError, match="expected a writable folder for the plan"):
        store.save(FixPlan(SCHEMA, ID, "", "1", "", (), (), (), ()), {"XDG_STATE_HOME": str(state.parents[1])})


def test_a_plan_is_applied_or_taken_back_by_one_at_a_time(state: Path) -> None:
    empty = FixPlan(SCHEMA, ID, "", "1", "a test", ("a1",), (), (), ())
    place = store.save(empty, {"XDG_STATE_HOME": str(state.parents[1])})
    with store.lock_plan(place), pytest.raises(CommandError, match="another process applies or undoes"):
        application(["fix"])(["fix", "--undo", ID, "--yes"])
    assert fix("--undo", ID, "--yes") == 0


def test_a_plan_keeps_whole_paths_of_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be applied from another folder."""
    monkeypatch.chdir(tmp_path)
    options = ConnectionOptions(ssh_config="c", gateways="g", kubeconfig="k", identity=["i"])
    kept = _plan_context(None, HostOptions("n1"), JobOptions(), "", options).connection
    files = (kept["ssh_config"], kept["gateways"], kept["kubeconfig"], *kept["identity"])
    assert files == tuple(str(tmp_path / name) for name in "cgki")
    kept = _plan_context(None, HostOptions("n1"), JobOptions(), "", ConnectionOptions(ssh_config="none")).connection
    assert (kept["ssh_config"], kept["gateways"]) == ("none", "")
