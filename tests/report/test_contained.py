"""On a host that is a container the report names the container's remedy, and no command for machines alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Output, Visit
from doctor.engine.record import HostRecord
from doctor.engine.result import IN_CONTAINER, Report
from doctor.facts.container import HostContainer, JobContainer
from doctor.job import LaunchConfig
from doctor.session.remedy_values import needed_facts, with_containers
from tests.checks.launch_lines import records as npu_records
from tests.node_files import NO_ACCELERATORS
from tests.report import rendering

PAGES = {check.name: check for check in load_checks()}
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max processes             1000                 1000                 processes
Max open files            1024                 4096                 files
Max locked memory         unlimited            unlimited            bytes
"""
NO_SERVICES = {"": Output(out='{"limits": {}}')}
NAMES = ("open-files-limit-low", "process-limit-low")


def record(marks: list[str], variables: dict[str, str], root: str) -> HostRecord:
    """A host with low limits; without a mark it is a machine."""
    view: dict[str, Any] = {"marks": marks, "variables": variables, "cgroup": "0::/", "root": root, "sources": []}
    view |= {"namespaces": {"mnt": 4026532261}, "read_only": [], "network_cards": 1, "devices": [], "files": []}
    view |= {"libraries": [], "capabilities": 0, "uid": 0, "named_user": True}
    output = Output(out=msgspec.json.encode(view).decode())
    group = {"levels": [], "hidden": [], "allowed": 8, "online": 8, "slurm_step": False}
    others = {"ControlGroup": {"": Output(out=msgspec.json.encode(group).decode())}, **NO_ACCELERATORS}
    outputs = {"ResourceLimits": {"/proc/self/limits": Output(out=LIMITS)}, "JobContainer": {"": output}, **others}
    return HostRecord(Visit(), {**outputs, "HostContainer": {"": output}, "JobServices": NO_SERVICES})


DOCKER = record(["/.dockerenv"], {}, "overlay")
PODMAN = record(["/run/.containerenv"], {"container": "podman"}, "overlay")
POD = record([], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "overlay")
APPTAINER = record(["/.singularity.d"], {}, "overlay")
MACHINE = record([], {}, "ext4")


def rendered(**records: HostRecord) -> str:
    """The report in a pipe, with the line of the fix command if there is one."""
    cache, hosts = FactCache(records), tuple(records)
    checks = [PAGES[name] for name in NAMES]
    outcomes = tuple(evaluate_check(check, hosts, cache, {LaunchConfig: LaunchConfig()}) for check in checks)
    report = with_containers(Report("2 hosts", hosts, outcomes), checks, cache)
    return rendering.plain(report, PAGES, fixable_checks=NAMES)


@pytest.mark.parametrize("inside", [DOCKER, POD])
def test_the_container_comes_first_and_nothing_is_fixed_from_inside(inside: HostRecord) -> None:
    text = rendered(node1=inside, node2=inside)
    assert "fix: Start the container of node[1-2] again with `docker run --ulimit nofile=65535:65535`" in text
    assert "LimitNOFILE=65535" in text
    assert "In Kubernetes, Volcano and MindCluster: `podPidsLimit`" in text
    assert "/etc/security" not in text
    assert "doctor fix" not in text


def test_a_container_of_podman_is_started_again_by_podman() -> None:
    text = rendered(node1=PODMAN, node2=PODMAN)
    assert "fix: Start the container of node[1-2] again with `podman run --ulimit nofile=65535:65535`" in text
    assert "`docker " not in text


def test_a_check_without_words_for_containers_is_not_fixed_there_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doctor.engine.check.Check.section", lambda self, title: "")
    assert "doctor fix" not in rendered(node1=DOCKER, node2=POD)
    assert "doctor fix" in rendered(node1=MACHINE, node2=POD)


@pytest.mark.parametrize("machine", [MACHINE, APPTAINER])
def test_a_machine_keeps_its_remedy(machine: HostRecord) -> None:
    """Apptainer's containers have the limits of their host's session."""
    text = rendered(node1=machine, node2=machine)
    assert "`printf '%s - nproc unlimited\\n' '*' root >> /etc/security/limits.d/99-zz-cluster.conf`" in text
    assert (
        "(this prints the plan; --apply runs it): doctor fix open-files-limit-low process-limit-low -w 'node[1-2]'"
        in text
    )
    assert "again with" not in text


def test_a_fleet_of_both_gets_both() -> None:
    text = rendered(node1=MACHINE, node2=DOCKER)
    assert text.index("/etc/security/limits.d") < text.index("Start the container of")
    assert "(this prints the plan; --apply runs it): doctor fix " in text


def test_the_container_is_read_for_checks_that_ask_for_no_container() -> None:
    for name, view in (("open-files-limit-low", JobContainer), ("clocks-differ", HostContainer)):
        assert {*needed_facts([PAGES[name]])} - PAGES[name].facts == {view}
    others = [page for page in PAGES.values() if not page.section(IN_CONTAINER)]
    assert {*needed_facts(others)} == {fact for check in others for fact in check.facts}


def test_a_container_without_the_devices_of_the_others() -> None:
    """The remedy is that of the container, and not card, slot and BIOS."""
    view = DOCKER.outputs["HostContainer"]
    records = {
        host: HostRecord(Visit(), {**one.outputs, "HostContainer": {"": Output(ended="absent")}, "JobContainer": view})
        for host, one in npu_records(3, 8).items()
    }
    alone = {**npu_records(1, 0)["n0"].outputs, "HostContainer": view, "JobContainer": view}
    records = {**records, "inside": HostRecord(Visit(), alone)}
    check = PAGES["npu-count-differs"]
    outcome = evaluate_check(check, tuple(records), FactCache(records), {LaunchConfig: LaunchConfig()})
    report = with_containers(Report("4 hosts", tuple(records), (outcome,)), [check], FactCache(records))
    text = rendering.plain(report, PAGES)
    assert "0 NPUs; 3 of 4 hosts have 8" in text and "start it again with the device file of each" in text
    assert "slot and BIOS" not in text
