"""The helper for `--sudo`, with a real sudo and an ordinary user: it runs its own probes as root, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.root_helper import helper_text, root_probes, sudoers_line
from doctor.collect.collector.collector import ROOT_HELPER
from doctor.engine.catalog import load_checks
from doctor.engine.fact import Fact
from doctor.facts.boot import boot_facts
from tests.conftest import PREPARED
from tests.hosts.fleet import Fleet, merge

ROOT = Path(__file__).parents[1]
RULES = "table inet f { chain c { type filter hook input priority 0; tcp dport 29500-60000 drop; }; }"
PROBES = root_probes([*(fact for check in load_checks() for fact in check.facts), *boot_facts(load_checks())])


@pytest.mark.parametrize("user", ["ann", "%hpc", "a.b-c_1"])
def test_the_line_allows_one_program_without_arguments(user: str) -> None:
    assert sudoers_line(user) == f'{user} ALL=(root) NOPASSWD: {ROOT_HELPER} ""'


@pytest.mark.parametrize(
    "user", ["", "ann ALL=(ALL) NOPASSWD: ALL\nx", "ALL,ann", "-x", "a b", "#0", "ALL", "%ALL", "ADMINS", "Defaults"]
)
def test_what_is_no_name_makes_no_line(user: str) -> None:
    with pytest.raises(ValueError):
        sudoers_line(user)


def test_every_probe_that_needs_root_is_in_it_and_none_that_takes_arguments() -> None:
    facts = {fact for check in load_checks() for fact in check.facts}
    alone = {(fact.shares or fact).__name__ for fact in facts if (fact.shares or fact).probe.root and not fact.needs}
    assert alone <= set(PROBES)
    for name, (_, fields) in PROBES.items():
        assert fields.get("root") is True, name
        assert name != "HccsPings"


def test_it_is_one_file_of_ascii() -> None:
    class Nothing(Fact, frozen=True):
        """No fact."""

    assert helper_text([]).isascii()
    compile(helper_text([]), "helper", "exec")


pytest_hosts = pytest.mark.hosts


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    created = make_fleet(2, {"*": merge(PREPARED, {"users": {"ann": {}}})})
    helper = subprocess.run(
        [sys.executable, "-m", "doctor", "root-helper", "--print"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    files = {
        ROOT_HELPER: {"text": helper, "mode": "755"},
        "/etc/sudoers.d/doctor": {"text": sudoers_line("ann") + "\n", "mode": "440"},
    }
    with created.broken(created.hosts, f"nft '{RULES}'", files=files):
        yield created
    created.down()


def as_ann(fleet: Fleet, command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return fleet.ssh(f"ann@{fleet.hosts[0]}", command, input=text, check=False)


KEPT_OPEN = "rm -f /tmp/$$; mkfifo /tmp/$$; exec 3<>/tmp/$$; head -n 1 >&3; {command} </tmp/$$"
"""What waits for the answer keeps stdin open, as a connection does: its end ends the helper."""


def ask(fleet: Fleet, probes: Any, **more: Any) -> subprocess.CompletedProcess[str]:
    request = {"marker": "a1b2c3d4", "seconds": 20, "probes": probes, "ports": [], **more}
    return as_ann(fleet, KEPT_OPEN.format(command=f"sudo -n {ROOT_HELPER}"), json.dumps(request) + "\n")


def check(fleet: Fleet, *arguments: str) -> dict[str, Any]:
    hosts = ",".join(fleet.hosts)
    command = [sys.executable, "-m", "doctor", "check", hosts, "-F", str(fleet.ssh_config), "-l", "ann", "--json"]
    done = fleet.run([*command, "--no-history", *arguments], cwd=ROOT)
    outcomes: Sequence[dict[str, Any]] = json.loads(done.stdout)["outcomes"]
    return {outcome["check"]: outcome for outcome in outcomes}


@pytest_hosts
def test_what_only_root_may_read_is_read_by_a_user_who_may_call_it(fleet: Fleet) -> None:
    without = check(fleet, "--select", "firewall-blocks-job")
    assert without["firewall-blocks-job"]["status"] == "unknown"
    outcome = check(fleet, "--sudo", "--select", "firewall-blocks-job")["firewall-blocks-job"]
    assert (outcome["status"], outcome["unknown"]) == ("failed", [])
    after = check(fleet, "--sudo", "--after-reboot", "--select", "firewall-blocks-job,listen-queue-short")
    assert after["listen-queue-short"]["status"] == "passed"
    assert "no file or service that was found loads it at boot" in str(after["firewall-blocks-job"]["unknown"])


@pytest_hosts
@pytest.mark.parametrize(
    "command",
    [
        "sudo -n id",
        "sudo -n sh -c id",
        "sudo -n python3 -c 'print(1)'",
        f"sudo -n {ROOT_HELPER} -c id",
        f"sudo -n -u nobody {ROOT_HELPER}",
        f"sudo -n PYTHONPATH=/tmp {ROOT_HELPER}",
        f"sudo -n {ROOT_HELPER}.bak",
        f"sudo -n /usr/bin/python3 -IS {ROOT_HELPER}",
        f"sudo -n tee {ROOT_HELPER}",
    ],
)
def test_sudo_allows_nothing_else(fleet: Fleet, command: str) -> None:
    done = as_ann(fleet, command)
    assert done.returncode == 1
    assert done.stderr.startswith("sudo: ")
    assert done.stdout == ""


PWN = "import os; open('/run/pwned','w')"


@pytest_hosts
@pytest.mark.parametrize(
    "request_text",
    [
        PWN + "\n",
        "",
        "{}\n",
        "[]\n",
        "null\n",
        '{"marker": "a\\nb", "seconds": 1, "probes": {}, "ports": []}\n',
        '{"marker": "ab", "seconds": 1, "probes": [], "ports": []}\n',
        '{"marker": "ab", "seconds": "x", "probes": {}, "ports": []}\n',
        '{"marker": "ab", "seconds": 1, "probes": {}, "ports": ["$(id)"]}\n',
        '{"marker": "ab", "seconds": 1, "probes": {}, "ports": [99999]}\n',
        '{"marker": "ab", "seconds": 1, "probes": {"x": {"kind": "run", "text": "touch /run/pwned"}}, "ports": []}\n',
        "x" * 70000,
    ],
)
def test_what_is_no_request_is_refused(fleet: Fleet, request_text: str) -> None:
    done = as_ann(fleet, f"sudo -n {ROOT_HELPER}", request_text)
    assert (done.returncode, done.stdout) == (1, "")
    assert "expected one line of JSON" in done.stderr
    assert "Traceback" not in done.stderr
    assert fleet.enter(fleet.hosts[0], "test -e /run/pwned", check=False).returncode == 1


@pytest_hosts
def test_a_probe_of_another_version_is_not_run_and_the_answer_says_so(fleet: Fleet) -> None:
    name, (digest, _) = next(iter(PROBES.items()))
    done = ask(fleet, {name: "0" * 16, "Rm": digest, "GpuCards": PROBES["GpuCards"][0]})
    record = json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])
    assert record["uid"] == 0
    for unknown in (name, "Rm"):
        assert "install it again" in record["outputs"][unknown][""]["err"]
    assert "err" not in record["outputs"]["GpuCards"][""]


@pytest_hosts
def test_files_in_the_places_of_others_cannot_be_given(fleet: Fleet) -> None:
    """What a plan lays over a host's files would let root read any file for a user."""
    overlay = {"/etc/nftables.conf": 'include "/etc/shadow"\n'}
    done = ask(
        fleet, {"BootFirewall": PROBES["BootFirewall"][0]}, given={"BootFirewall": overlay}, BootFirewall=overlay
    )
    assert done.returncode == 0
    assert "shadow" not in done.stdout + done.stderr


@pytest_hosts
def test_no_program_of_the_user_runs_as_root(fleet: Fleet) -> None:
    """Also where sudo keeps the user's PATH and Python's variables."""
    host = fleet.hosts[0]
    stub = "#!/bin/sh\\ntouch /run/pwned\\n"
    evil = f"mkdir -p /tmp/evil; for t in nft ip npu-smi hccn_tool; do printf '{stub}' >/tmp/evil/$t; done"
    evil += '; echo \'open("/run/pwned", "w")\' >/tmp/evil/json.py; chmod -R 755 /tmp/evil'
    request = json.dumps(
        {"marker": "ab12", "seconds": 20, "probes": {n: d for n, (d, _) in PROBES.items()}, "ports": []}
    )
    fleet.enter(host, evil)
    fleet.enter(
        host,
        "cd /tmp/evil; export PATH=/tmp/evil:$PATH PYTHONPATH=/tmp/evil; "
        + KEPT_OPEN.format(command=f"{ROOT_HELPER} >/run/answer"),
        input=request + "\n",
    )
    assert "FirewallRules" in fleet.read(host, "/run/answer")
    assert fleet.enter(host, "test -e /run/pwned", check=False).returncode == 1
