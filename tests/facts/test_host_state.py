"""What is remembered of a host and of its Python for the comparison with other times, and what is no change."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from pathlib import Path

import pytest

from doctor.facts import host_state
from doctor.facts.host_state import HostState, read_host_state
from doctor.facts.interfaces import Interfaces
from doctor.facts.job_snapshot import JobSnapshot, list_job
from doctor.facts.names import HostNames
from doctor.facts.settings import SOURCES
from doctor.facts.snapshot import read_file_states
from doctor.report.diff.values import RunValues, compare_values
from tests.facts.answers import answered


def test_a_row_of_a_table_is_a_kind_of_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = tmp_path / "scheduler"
    setting.write_text("[none] bfq\n")
    monkeypatch.setattr(host_state, "KERNEL_FILES", (str(tmp_path / "sched*"), str(tmp_path / "absent")))
    monkeypatch.setattr(host_state, "FURTHER_FILES", ("~/.bashrc", "$NOT_SET/*"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bashrc").write_text("alias python3=/opt/python3\n")
    answer = read_host_state({})
    assert answer["kernel"] == {str(setting): "[none] bfq"}
    assert list(answer["files"]) == [str(tmp_path / ".bashrc")]
    assert {"umask", "CPUs", "nice", "OOM score", "scheduler"} <= answer["login"].keys()
    assert read_host_state({}) == answer


def test_what_software_of_containers_sets_is_no_setting() -> None:
    answer = {
        "login": {},
        "kernel": {
            **dict.fromkeys(("/sys/class/net/veth1/threaded", "/proc/sys/net/ipv6/conf/cali1/disable_ipv6"), "1"),
            "/sys/class/net/eth0/threaded": "1",
        },
        "files": {},
        "routers": [["cni0", "10.1.0.0/16", "x"], ["eth0", "0.0.0.0/0", "via 10.0.0.1"], ["ib0", "0.0.0.0/0", "mtu 9"]],
        "neighbours": [["flannel.1", "10.244.1.0", "02:00:00:00:00:01"], ["eth0", "10.0.0.9", "02:00:00:00:00:07"]],
    }  # fmt: skip
    values = answered(HostState, answer).values
    assert values["kernel"] == {"/sys/class/net/eth0/threaded": "1"}
    assert values["interfaces"] == {
        "router to 0.0.0.0/0": "eth0 via 10.0.0.1, ib0 mtu 9",
        "neighbour 10.0.0.9 of eth0": "02:00:00:00:00:07",
    }


def test_a_link_and_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("first")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    patterns = (str(tmp_path / "[ld]*"),)
    before = read_file_states(patterns, True)
    assert before[str(tmp_path / "dangling")] == "nowhere"
    (tmp_path / "real").write_text("other")
    assert read_file_states(patterns, True)[str(tmp_path / "link")] != before[str(tmp_path / "link")]
    assert read_file_states(patterns, False)[str(tmp_path / "link")] == "real"


def loopback(mtu: int, *addresses: str) -> dict[str, str]:
    own = [["lo", "lo", address, 8] for address in addresses]
    raw = {
        "links": [["lo", True, True, True, mtu, "", False, False]],
        "addresses": own,
        "routes": [],
        "has_rules": False,
    }
    fact = answered(Interfaces, raw)
    values = next(source.values(fact) for source in SOURCES if source.category == "interfaces")
    return dict(values or {})


def test_only_what_is_unlike_that_of_every_host_is_told_of_the_loopback_interface() -> None:
    assert loopback(65536, "127.0.0.1", "::1") == {}
    assert loopback(16384, "127.0.0.1") == {"lo": "mtu 16384, up"}
    assert loopback(65536, "127.0.0.1", "10.9.0.1") == {"loopback addresses": "10.9.0.1/8"}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package of a wheel, and one that nobody installed."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "wheel-1.0.dist-info").mkdir()
    for name in ("wheel", "own/deep"):
        (tmp_path / name).mkdir(parents=True)
    source = b"x = 1\n"
    digest = base64.urlsafe_b64encode(hashlib.sha256(source).digest()).decode().rstrip("=")
    for path in ("wheel/a.py", "wheel/b,c.py", "own/deep/model.py"):
        (tmp_path / path).write_bytes(source)
    rows = (f"{name},sha256={digest},{len(source)}" for name in ("wheel/a.py", "wheel/b,c.py"))
    (tmp_path / "wheel-1.0.dist-info/RECORD").write_text("\n".join((*rows, "wheel-1.0.dist-info/RECORD,,", "")))
    return tmp_path


def sources() -> tuple[dict[str, str], dict[str, str]]:
    answer = list_job({"python": sys.executable})
    assert answer["whole_sources"] is True, answer
    own = {name: text for name, text in answer["source"].items() if name == "own"}
    return {name: text for name, text in answer["edited"].items() if name == "wheel"}, own


def test_an_edited_source_of_a_package(site: Path) -> None:
    edited, own = sources()
    assert (edited, own.keys()) == ({}, {"own"})
    os.utime(site / "wheel/a.py")  # copied anew, as it was
    os.utime(site / "wheel/a.py", (4e9, 4e9))
    assert sources() == ({}, own)
    (site / "wheel/a.py").write_text("x = 12\n")
    edited, again = sources()
    assert edited["wheel"].startswith("a.py ")
    assert again == own
    (site / "wheel/a.py").write_text("x = 2\n")  # as long as it was
    os.utime(site / "wheel/a.py", (4e9, 4e9))
    assert sources()[0]["wheel"].startswith("a.py ")
    (site / "own/deep/model.py").write_text("x = 2\n")
    assert sources()[1] != own


def test_too_many_sources_are_not_read() -> None:
    raw = {"path": "/usr/bin/python3", "whole": True, "package": {}, "library": {}}
    assert answered(JobSnapshot, raw).sources is None
    raw |= {"whole_sources": False, "edited": {"a": "b.py 0a"}, "source": {}}
    assert answered(JobSnapshot, raw).sources is None
    raw["whole_sources"] = True
    assert answered(JobSnapshot, raw).sources == {"edited files of a": "b.py 0a"}


def test_of_names_that_only_one_run_asked_for_nothing_is_told() -> None:
    def names(**meanings: dict[str, object]) -> dict[str, str]:
        fact = answered(HostNames, {"own": "n1", "names": {"n1": {"addresses": ["10.0.0.1"]}, **meanings}, "fleet": 3})
        return dict(next(source.values(fact) for source in SOURCES if source.category == "names") or {})

    def changes(before: dict[str, str], now: dict[str, str]) -> list[str]:
        runs = (RunValues("", hosts={"n1": {"HostNames": {"names": values}}}) for values in (before, now))
        return [change.name for change in compare_values(*runs)]

    first = names(n2={"addresses": ["10.0.0.2"]})
    assert changes(first, names(n3={"addresses": ["10.0.0.3"]})) == []
    assert changes(first, names(n2={"error": "no answer in 8 s"})) == []
    assert changes(first, names(n2={"addresses": ["10.9.0.2"]})) == ["n2"]
