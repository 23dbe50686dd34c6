"""The options by which a next command reaches the hosts of a list."""

from __future__ import annotations

from doctor.environment.inventory import Inventory
from doctor.hosts.nodeset import HostLogin
from doctor.hosts.selection import PodAccess


def test_pods_are_reached_again_with_their_namespace_and_container() -> None:
    pods = PodAccess(kubectl=("/bin/kubectl", "--context=east"), namespace="train", containers={"a": "main"})
    words = Inventory(("a",), "pods", pods=pods).connection_words
    assert words == ("--context=east", "--namespace", "train", "--container", "main")


def test_a_login_of_all_hosts_is_carried_and_one_of_some_is_not() -> None:
    login = HostLogin("root", 2222)
    assert Inventory(("a", "b"), "x", logins={"a": login, "b": login}).connection_words == ("-l", "root", "-p", "2222")
    assert Inventory(("a", "b"), "x", logins={"a": login}).connection_words == ()
