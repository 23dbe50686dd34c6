"""The command that runs an attack campaign: groups, exit codes, a group without a module."""

import importlib.util
import sys
import types

import pytest

from tests.attack import hostile
from tests.attack.__main__ import GROUPS, main


@pytest.mark.parametrize(("failed", "code"), [(0, 0), (3, 1)])
def test_the_exit_code_says_whether_an_attack_succeeded(failed, code, monkeypatch, capsys):
    asked = []
    module = types.ModuleType("tests.attack.signals")
    module.campaign = lambda count, seed: asked.append((count, seed)) or failed
    module.__spec__ = importlib.util.spec_from_loader(module.__name__, None)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert main(["signals", "7", "--seed", "5"]) == code
    assert asked == [(7, 5)]
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
def test_a_sample_of_signals(capsys):
    from tests.attack import signals

    assert signals.campaign(3, 7) == 0, capsys.readouterr().out


@pytest.mark.full
@pytest.mark.hosts
@pytest.mark.timeout(300)
def test_a_sample_of_jobs_with_a_faulty_node(capsys):
    from tests.attack import transport

    assert transport.campaign(4, 2) == 0, capsys.readouterr().out
