"""What torch-version-differs finds."""

from __future__ import annotations

from tests.checks.devices import fleet, of, python, skipped

look = of("torch_version_differs")
PYTHON_ENV = python(torch="2.7.1", torch_npu="2.7.1")


def test_each_package_that_differs() -> None:
    findings = look(fleet(PYTHON_ENV, PYTHON_ENV, python(torch="2.6.0+cpu", torch_npu="2.6.0")))
    assert [str(finding) for finding in findings] == [
        "torch 2.6.0+cpu; 2 of 3 hosts have 2.7.1",
        "torch_npu 2.6.0; 2 of 3 hosts have 2.7.1",
    ]
    assert findings[0].hosts == ("c",)
    assert [finding.values["pip"] for finding in findings] == [
        "/opt/job/python -m pip install torch==2.7.1",
        "/opt/job/python -m pip install torch_npu==2.7.1",
    ]


def test_a_package_that_one_host_lacks() -> None:
    (finding,) = look(fleet(python(mindspore="2.6.0"), python(), python(mindspore="2.6.0")))
    assert (finding.hosts, finding.values["package"], finding.values["observed"]) == (
        ("b",),
        "mindspore",
        "not installed",
    )


def test_a_package_that_one_host_alone_has() -> None:
    (finding,) = look(fleet(python(), python(mindspore="2.6.0"), python()))
    assert (finding.hosts, finding.values["pip"]) == (("b",), "/opt/job/python -m pip uninstall mindspore")


def test_versions_without_a_majority() -> None:
    (finding,) = look(fleet(PYTHON_ENV, python(torch="2.6.0", torch_npu="2.7.1")))
    assert finding.values["pip"] == "/opt/job/python -m pip install torch==<version>"


def test_a_host_whose_version_could_not_be_told_is_not_blamed() -> None:
    assert look(fleet(PYTHON_ENV, PYTHON_ENV, python(unread={"torch": "several"}, torch_npu="2.7.1"))) == []


def test_no_framework_at_all() -> None:
    assert "--python" in skipped(look, fleet(python(numpy="1.26.4"), python()))
