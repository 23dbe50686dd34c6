"""What torch-version-differs finds."""

from __future__ import annotations

from tests.checks.devices import fleet, of, python, skipped

look = of("torch_version_differs")
ONE = python(torch="2.7.1", torch_npu="2.7.1")


def test_equal_hosts() -> None:
    assert look(fleet(ONE, ONE)) == []


def test_each_package_that_differs() -> None:
    found = look(fleet(ONE, ONE, python(torch="2.6.0+cpu", torch_npu="2.6.0")))
    assert [str(one) for one in found] == [
        "torch 2.6.0+cpu; 2 of 3 hosts have 2.7.1",
        "torch_npu 2.6.0; 2 of 3 hosts have 2.7.1",
    ]
    assert found[0].hosts == ("c",)
    assert [one.values["pip"] for one in found] == [
        "python3 -m pip install torch==2.7.1",
        "python3 -m pip install torch_npu==2.7.1",
    ]


def test_a_package_that_one_host_lacks() -> None:
    (found,) = look(fleet(python(mindspore="2.6.0"), python(), python(mindspore="2.6.0")))
    assert (found.hosts, found.values["package"], found.values["observed"]) == (("b",), "mindspore", "not installed")


def test_a_package_that_one_host_alone_has() -> None:
    (found,) = look(fleet(python(), python(mindspore="2.6.0"), python()))
    assert (found.hosts, found.values["pip"]) == (("b",), "python3 -m pip uninstall mindspore")


def test_versions_without_a_majority() -> None:
    (found,) = look(fleet(ONE, python(torch="2.6.0", torch_npu="2.7.1")))
    assert found.values["pip"] == "python3 -m pip install torch==<version>"


def test_a_host_whose_version_could_not_be_told_is_not_blamed() -> None:
    assert look(fleet(ONE, ONE, python(unread={"torch": "several"}, torch_npu="2.7.1"))) == []


def test_no_framework_at_all() -> None:
    assert "--python" in skipped(look, fleet(python(numpy="1.26.4"), python()))
