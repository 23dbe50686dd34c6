"""The command that runs an attack campaign: groups, exit codes, a group without a module."""

import importlib.util
import random
import sys
import types

import pytest

from tests.attack import healthy, hostile
from tests.attack.__main__ import GROUPS, main
from tests.hosts.products import GPUS, NPUS, PARTS, Product


@pytest.mark.parametrize(("failed", "code"), [(0, 0), (3, 1)])
def test_the_exit_code_says_whether_an_attack_succeeded(failed, code, monkeypatch, capsys):
    requested = []
    module = types.ModuleType("tests.attack.signals")
    module.campaign = lambda count, seed: requested.append((count, seed)) or failed
    module.__spec__ = importlib.util.spec_from_loader(module.__name__, None)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert main(["signals", "7", "--seed", "5"]) == code
    assert requested == [(7, 5)]
    assert f"signals: 7 attacks, seed 5: {failed} succeeded" in capsys.readouterr().out


def test_a_group_without_a_module_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["fix", "1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_unknown_group_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["nothing", "1"])
    assert stop.value.code == 2
    printed = capsys.readouterr().err
    assert all(group in printed for group in GROUPS)


def test_a_sample_of_mutated_inputs(capsys):
    assert hostile.campaign(6000, 3) == 0, capsys.readouterr().out


@pytest.mark.timeout(180)
@pytest.mark.parametrize("count", [4, pytest.param(60, marks=pytest.mark.full)])
def test_a_sample_of_secrets(count, capsys):
    from tests.attack import secrets

    assert secrets.campaign(count, 11) == 0, capsys.readouterr().out


@pytest.mark.full
@pytest.mark.hosts
@pytest.mark.timeout(900)
def test_a_sample_of_kills(capsys):
    from tests.attack import kills

    assert kills.campaign(8, 1) == 0, capsys.readouterr().out


@pytest.mark.timeout(180)
def test_a_sample_of_signals(capsys):
    from tests.attack import signals

    assert signals.campaign(3, 7) == 0, capsys.readouterr().out


@pytest.mark.full
@pytest.mark.hosts
@pytest.mark.timeout(300)
def test_a_sample_of_jobs_with_a_faulty_node(capsys):
    from tests.attack import transport

    assert transport.campaign(4, 2) == 0, capsys.readouterr().out


@pytest.mark.hosts
def test_a_sample_of_healthy_fleets(make_fleet, capsys):
    assert healthy.campaign(2, 5) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("check", "status", "false"),
    [
        ("npu-unhealthy", {"findings": [{"hosts": ["a"], "message": "ill", "severity": "error"}]}, 1),
        ("npu-unhealthy", {"findings": [{"hosts": ["a"], "message": "noted", "severity": "note"}]}, 0),
        ("host-settings-differ", {"findings": [{"hosts": ["a"], "message": "kernel", "severity": "warning"}]}, 1),
        ("npu-unhealthy", {"unknown": [{"reason": "no answer"}]}, 1),
        ("npu-busy", {"unknown": [{"reason": "this driver lists no processes"}]}, 0),
        ("npu-busy", {"crashed": ["bug"]}, 1),
        ("device-ip-unset", {"unknown": [{"reason": "unknown without super pod ids"}]}, 1),
    ],
)
def test_what_a_healthy_fleet_may_not_show(check, status, false):
    report = {"outcomes": [{"check": check, "findings": [], "crashed": [], "unknown": [], **status}]}
    alike = [Product("A3 driver 25", "none", "kylin", "1000")] * 2
    assert len(healthy.judge_report(report, alike).false) == false


def test_what_a_fleet_was_made_with_is_no_false_finding():
    finding = {"hosts": ["a"], "message": "kernel", "severity": "warning"}
    report = {"outcomes": [{"check": "host-settings-differ", "findings": [finding], "crashed": [], "unknown": []}]}
    hosts = [Product("", "none", distribution, "1000") for distribution in ("debian", "kylin")]
    assert healthy.judge_report(report, hosts).false == []


def test_the_fleets_of_a_campaign_hold_every_product():
    choose = random.Random(1)
    hosts = {host.accelerator for _ in range(120) for host in healthy.fleet_of(choose).hosts}
    assert hosts == {*NPUS, *GPUS, *PARTS, "310P", ""}


def test_each_token_in_each_place() -> None:
    """One place in twenty; all of them are those of the next test."""
    from tests.attack import secrets

    assert list(secrets.crossed_leaks(8, 3, 20)) == []


@pytest.mark.every
@pytest.mark.parametrize("part", range(4))
def test_each_token_in_every_place(part: int) -> None:
    from tests.attack import secrets

    assert list(secrets.crossed_leaks(9, part, 4)) == []


@pytest.mark.every
def test_secrets_in_what_programs_pass_on() -> None:
    """Some 600 secrets, each in 15 layers: of a shell's words, JSON, HTML, Python's bytes, heads of lines."""
    from tests.attack import secrets

    assert list(secrets.layered_leaks(8)) == []
