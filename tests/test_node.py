"""`doctor node`: one host looks at itself, quickly, and what it leaves is worth as much as a visit over SSH."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from doctor.collect.merge import node_files
from doctor.collect.merge.node_records import NodeFileRecord
from doctor.collect.node_record import host_name, this_host_only
from doctor.engine.errors import CommandError
from doctor.environment.inventory import Inventory
from doctor.hosts.nodeset import InventoryError, validate_host
from tests.conftest import PREPARED
from tests.hosts.fleet import Fleet, merge
from tests.hosts.npu import npu_fleet
from tests.smoke.interpreter import visible_folders
from tests.test_cli import CLEAN, ROOT, doctor
from tests.test_cli import site as site
from tests.test_startup import imported

QUICK = ("--select", "host-unreachable")


def looks(path: Path) -> list[NodeFileRecord]:
    pile = node_files.read_node_files([path])
    assert pile.unusable == ()
    return list(pile.records)


class TestTheFile:
    def test_is_named_after_the_host_and_its_owners_alone(self, tmp_path: Path) -> None:
        done = doctor("node", *QUICK, "--name", "n7", "--out", str(tmp_path / "new" / "folder"))
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        (path,) = (tmp_path / "new" / "folder").iterdir()
        assert path.name == "n7.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        (look,) = looks(path)
        assert look.name == "n7" and look.record.visit.local

    def test_may_be_read_by_others_where_that_is_asked_for(self, tmp_path: Path) -> None:
        assert doctor("node", *QUICK, "--name", "n7", "--out", str(tmp_path), "--mode", "0640").returncode == 0
        assert stat.S_IMODE((tmp_path / "n7.json").stat().st_mode) == 0o640

    def test_tells_the_job_and_the_fleet(self, tmp_path: Path) -> None:
        env = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n[7-8]", "SLURMD_NODENAME": "n8", "MASTER_ADDR": "n7"}
        assert doctor("node", *QUICK, "--out", str(tmp_path), env=env).returncode == 0
        (look,) = looks(tmp_path)
        assert (look.name, look.run.probe_inputs.hosts, look.run.probe_inputs.job) == ("n8", ("n7", "n8"), "5.0")
        assert look.run.launch.environ == {"MASTER_ADDR": "n7", "SLURM_JOB_ID": "5"}

    def test_holds_no_secret(self, tmp_path: Path, site: Any) -> None:
        arguments = [*site("echo --api-key k-123"), "--out", str(tmp_path), "--name", "n1"]
        assert doctor("node", *arguments).returncode == 0
        assert "k-123" not in (tmp_path / "n1.json").read_text()

    def test_can_be_lines_on_stdout_that_are_mixed_with_those_of_others(self) -> None:
        outputs = [doctor("node", *QUICK, "--out", "-", "--name", name).stdout for name in ("n1", "n2")]
        first, second = (text.splitlines(keepends=True) for text in outputs)
        assert {len(line) for line in (*first, *second)} == {512}
        lines = b"".join(b"0: " + a + b for a, b in zip(first, reversed(second), strict=True))
        done = doctor("merge", "-", "--expect", "n[1-2]", *QUICK, "--json", input=lines)
        assert (done.returncode, json.loads(done.stdout)["hosts"]) == (0, ["n1", "n2"])


class TestTheExitCode:
    def test_alone_is_what_is_wrong_with_this_host(self, site: Any) -> None:
        arguments = site("echo no", body="pass")
        assert doctor("node", *arguments).returncode == 10
        assert b"our-rule" in doctor("node", *arguments).stdout

    def test_counts_what_the_launch_line_shows_as_check_does(self) -> None:
        line = ["--", "torchrun", "--nproc-per-node", "8", "x.py", "--tensor-model-parallel-size", "3"]
        for command in ("check", "node"):
            done = doctor(command, "--select", "training", *line)
            assert done.returncode == 10 and b"FAIL    launch-ranks-not-divisible" in done.stdout, done.stdout

    def test_with_a_file_is_0_so_that_the_merge_can_judge(self, site: Any, tmp_path: Path) -> None:
        arguments = [*site("echo no"), "--out", str(tmp_path)]
        done = doctor("node", *arguments)
        assert (done.returncode, done.stdout) == (0, b"")
        completed = doctor("node", *arguments, "--judge")
        assert completed.returncode == 10 and b"our-rule" in completed.stdout

    def test_is_the_signals_where_one_ended_it_and_the_file_is_whole(self, site: Any, tmp_path: Path) -> None:
        out = tmp_path / "out"
        arguments = [*site(f"echo $$ > {tmp_path}/pid; exec sleep 1000"), "--out", str(out), "--name", "n1"]
        process = subprocess.Popen([sys.executable, "-m", "doctor", "node", *arguments], cwd=ROOT, env=CLEAN)
        deadline = time.monotonic() + 50
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        process.terminate()
        assert process.wait(50) == 143
        (look,) = looks(out)
        assert look.record.visit.text == "the run was interrupted before the host answered"

    @pytest.mark.parametrize(("out", "output"), [("/dev/null/x", "Not a directory"), ("/proc/1", "/proc/1/n1.json")])
    def test_is_12_where_nothing_could_be_written(self, out: str, output: str) -> None:
        done = doctor("node", *QUICK, "--name", "n1", "--out", out)
        assert (done.returncode, done.stdout) == (12, b"")
        assert output.encode() in done.stderr and done.stderr.count(b"\n") == 1

    def test_is_12_where_stdout_is_full(self) -> None:
        with open("/dev/full", "wb") as full:
            done = doctor("node", *QUICK, "--out", "-", capture_output=False, stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 12
        assert b"No space left on device" in done.stderr and done.stderr.count(b"\n") == 1

    @pytest.mark.parametrize(
        ("arguments", "output"),
        [
            (["--judge"], "--judge needs a folder: expected --out DIR"),
            (["--out", "-", "--judge"], "--judge needs a folder: expected --out DIR"),
            (["--out", "/tmp", "--json"], "--out without --judge makes no report"),
            (["--mode", "rw"], "--mode 'rw': expected octal digits such as 0640"),
            (["--name", "a/b"], '--name: "a/b" is not a host name'),
            (["--within", "'"], "--within"),
            (["--from", "x"], "--from reads a saved run"),
        ],
    )
    def test_is_2_for_words_that_cannot_be_followed(self, arguments: list[str], output: str) -> None:
        done = doctor("node", *QUICK, *arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.decode().startswith(f"doctor: {output}") and done.stderr.count(b"\n") == 1


def test_it_needs_neither_ssh_nor_torch_nor_colours() -> None:
    assert (
        imported("node", *QUICK) & {"paramiko", "cryptography", "torch", "torch_npu", "rich", "ClusterShell"} == set()
    )


NODE_NAME = os.uname().nodename
SHORT = NODE_NAME.partition(".")[0]


@pytest.mark.parametrize(
    ("name", "hosts", "environ", "text"),
    [
        ("given", (NODE_NAME,), {"SLURMD_NODENAME": "slurm"}, "given"),
        ("", (NODE_NAME,), {"SLURMD_NODENAME": "slurm"}, "slurm"),
        ("", ("other", f"{SHORT}.site.example"), {}, f"{SHORT}.site.example" if SHORT == NODE_NAME else SHORT),
        ("", ("other",), {}, SHORT),
        ("", (), {}, SHORT),
    ],
)
def test_what_a_host_is_called(name: str, hosts: tuple[str, ...], environ: Mapping[str, str], text: str) -> None:
    assert host_name(name, Inventory(hosts, "") if hosts else None, environ) == text


def test_it_finds_its_own_address_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "doctor.collect.node_record.addresses_of_interfaces", lambda: {"127.0.0.1", "fe80::1", "10.1.2.3"}
    )
    assert host_name("", Inventory(("10.1.2.2", "10.1.2.3"), ""), {}) == "10.1.2.3"


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(CommandError, match="expected --name NAME"):
        host_name("", None, {"SLURMD_NODENAME": "a b"})
    with pytest.raises(InventoryError):
        validate_host("a b", "")


def test_how_the_host_is_stands_in_a_note() -> None:
    """psutil's numbers of this machine."""
    (note,) = this_host_only("n1", None).notes
    assert note.startswith("this host: up ") and " load " in note and note.endswith(" GiB in use")


# ---- real hosts


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Three healthy hosts with NPUs."""
    family = npu_fleet("A2", 3, name="nod")
    return make_fleet(
        3,
        {name: merge(merge(PREPARED, own_values), {"shows": visible_folders()}) for name, own_values in family.items()},
        name="nod",
    )


def on(fleet: Fleet, host: str, *arguments: str, env: str = "") -> subprocess.CompletedProcess[Any]:
    """`doctor node` on a host, in a login of its own there."""
    argv = shlex.join([sys.executable, "-m", "doctor", "node", *arguments])
    return fleet.ssh(host, f"PYTHONPATH={shlex.quote(str(ROOT))} {env} exec {argv}")


def gathered(fleet: Fleet, folder: Path, hosts: Sequence[str], *arguments: str, env: Mapping[str, str] = {}) -> str:
    """Every host's own file, written there, all at once, in one folder here."""

    def look(host: str) -> None:
        options = ("--out", "/tmp/looks", "--expect", ",".join(fleet.hosts), *arguments)
        done = on(fleet, host, *options, env=env.get(host, ""))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        (folder / f"{host}.json").write_text(fleet.read(host, f"/tmp/looks/{host}.json"))

    with ThreadPoolExecutor() as pool:
        list(pool.map(look, hosts))
    return str(folder)


def report(fleet: Fleet, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = fleet.run([sys.executable, "-m", "doctor", *arguments, "--json"], env=CLEAN, cwd=ROOT, timeout=100)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def by_check(report: dict[str, Any]) -> dict[str, Any]:
    return {outcome["check"]: outcome for outcome in report["outcomes"]}


SEEN_FROM_OUTSIDE = {"clocks-differ", "device-unreachable", "launcher-login-fails", "peer-unreachable"}
"""What no host can tell of itself alone."""


def without_answer(*outcomes: dict[str, Any]) -> set[str]:
    """Checks that a starved machine kept an answer from, in one of the two ways."""
    return {
        name
        for by_name in outcomes
        for name, outcome in by_name.items()
        if any(re.search(r"no answer (in|within) \d|stayed busy", gap["reason"]) for gap in outcome["unknown"])
    }


@pytest.mark.hosts
def test_files_come_to_the_same_as_visits_over_ssh(fleet: Fleet, tmp_path: Path) -> None:
    fleet.sysctl(fleet.hosts[1], "net.core.somaxconn", 128)
    hosts = ",".join(fleet.hosts)
    code, visited = report(fleet, "check", hosts, "-F", str(fleet.ssh_config))
    again, merged = report(fleet, "merge", gathered(fleet, tmp_path, fleet.hosts), "--expect", hosts)
    ours, theirs = by_check(merged), by_check(visited)
    assert code == again == 10
    assert [finding["hosts"] for finding in ours["listen-queue-short"]["findings"]] == [[fleet.hosts[1]]]
    assert {name for name in theirs if ours[name] != theirs[name]} - without_answer(ours, theirs) == SEEN_FROM_OUTSIDE
    assert ours["clocks-differ"]["status"] == "skipped"
    assert ours["device-unreachable"]["status"] == "unknown"
    assert theirs["device-unreachable"]["status"] == theirs["clocks-differ"]["status"] == "passed"


@pytest.mark.hosts
def test_one_host_is_gone_and_the_others_were_told_different_masters(fleet: Fleet, tmp_path: Path) -> None:
    first, second, third = fleet.hosts
    chosen = ("--select", "launch-differs", "--select", "listen-queue-short")
    reports = {first: f"MASTER_ADDR={first}", second: f"MASTER_ADDR={second}"}
    folder = gathered(fleet, tmp_path, (first, second), *chosen, env=reports)
    code, merged = report(fleet, "merge", folder, "--expect", ",".join(fleet.hosts), *chosen)
    ours = by_check(merged)
    assert code == 10
    assert [finding["hosts"] for finding in ours["launch-differs"]["findings"]] == [[first], [second]]
    assert [gap["hosts"] for gap in ours["listen-queue-short"]["unknown"]] == [[third]]
