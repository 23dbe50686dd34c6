"""The options by which a next command reaches the hosts of a list."""

from __future__ import annotations

from doctor.engine.result import Finding, Report
from doctor.environment.inventory import Inventory
from doctor.hosts.nodeset import HostLogin
from doctor.hosts.selection import PodAccess
from doctor.report.layout.failures import filled_fix
from doctor.report.layout.host_names import Fleet


def test_pods_are_reached_again_with_their_namespace_and_container() -> None:
    pods = PodAccess(kubectl=("/bin/kubectl", "--context=east"), namespace="train", containers={"a": "main"})
    words = Inventory(("a",), "pods", pods=pods).connection_words
    assert words == ("--context=east", "--namespace", "train", "--container", "main")


def test_a_login_of_all_hosts_is_carried_and_one_of_some_is_not() -> None:
    login = HostLogin("root", 2222)
    assert Inventory(("a", "b"), "x", logins={"a": login, "b": login}).connection_words == ("-l", "root", "-p", "2222")
    assert Inventory(("a", "b"), "x", logins={"a": login}).connection_words == ()


def test_a_smoke_run_that_a_remedy_names_has_the_options_of_this_one_and_other_commands_have_not() -> None:
    words = ("--layout", "dp=4", "--backend", "gloo")
    report = Report("", ("a1", "a2"), (), connection_words=("-F", "my config"), smoke_words=words)
    fix = "`doctor smoke`, `doctor smoke --device-test`, `doctor check --select x`, `doctor smoke {all_hosts}`"
    (line,) = filled_fix(fix, Finding("x"), ["a1"], Fleet.of_report(report))
    assert "`doctor smoke 'a[1-2]' -F 'my config' --layout dp=4 --backend gloo`" in line
    assert "doctor smoke 'a[1-2]' -F 'my config' --layout dp=4 --backend gloo --device-test" in line
    assert "`doctor check 'a[1-2]' -F 'my config' --select x`" in line
    assert line.count("--layout dp=4") == 3
