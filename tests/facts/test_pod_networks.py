"""The networks of a pod, by its annotations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from doctor.engine.fact import Absent, Unreadable
from doctor.facts.pod_networks import ATTACHED, MAX_TEXT, REQUESTED, VARIABLE, PodNetworks, list_pod_networks
from doctor.session.select_pods import _networks_variable
from doctor.transport.kubernetes.pods import Pod, _Metadata, _Spec
from tests.facts.answers import answered
from tests.facts.garbage import JSON, runs_on_python_3_6

STATUS = """[{
    "name": "k8s-pod-network",
    "ips": ["10.52.2.122"],
    "default": true,
    "dns": {}
},{
    "name": "harvester-system/storagenetwork-95bj4",
    "interface": "lhnet1",
    "ips": ["192.168.0.3"],
    "mac": "2e:51:e6:31:96:40",
    "dns": {}
}]"""
"""As Multus wrote it: Harvester's documentation, "Storage network"."""


def raw(**more: Any) -> dict[str, Any]:
    return {"requested": "", "attached": STATUS, "links": ["eth0", "lhnet1", "lo"], **more}


def test_a_status_of_multus() -> None:
    fact = answered(PodNetworks, raw(requested='[{"namespace": "harvester-system", "name": "storagenetwork-95bj4"}]'))
    assert isinstance(fact, PodNetworks)
    assert fact.requested == ("storagenetwork-95bj4",)
    assert [(network.interface, network.ips) for network in fact.attached] == [
        ("", ("10.52.2.122",)),
        ("lhnet1", ("192.168.0.3",)),
    ]


def test_the_short_form_of_a_request() -> None:
    fact = answered(PodNetworks, raw(requested=" a, team/b@net2 ,a,"))
    assert isinstance(fact, PodNetworks) and fact.requested == ("a", "b")


def test_a_host_without_annotations() -> None:
    assert isinstance(answered(PodNetworks, raw(attached="")), Absent)
    assert isinstance(answered(PodNetworks, list_pod_networks({})), Absent)


@pytest.mark.parametrize(
    "wrong",
    [
        {"attached": "{"},
        {"attached": '[{"ips": ["x"]}]'},
        {"attached": json.dumps([{"name": "a"}] * 65)},
        {"requested": "[{"},
        {"links": []},
    ],
)
def test_malformed_output_is_unreadable(wrong: dict[str, Any]) -> None:
    assert isinstance(answered(PodNetworks, raw(**wrong)), Unreadable)


@given(JSON)
def test_anything_else(value: object) -> None:
    assert isinstance(answered(PodNetworks, value), Unreadable)


def test_the_annotations_come_as_a_variable_whatever_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "a; $(touch /tmp/x) `id` \n'\""
    pod = Pod(metadata=_Metadata(name="w-0", annotations={REQUESTED: hostile, ATTACHED: STATUS, "other": "x"}))
    name, _, value = "".join(_networks_variable(pod)).partition("=")
    assert name == VARIABLE and value.isalnum()
    monkeypatch.setenv(name, value)
    answer = list_pod_networks({})
    assert (answer["requested"], answer["attached"]) == (hostile, STATUS)
    assert not [*_networks_variable(Pod(metadata=pod.metadata, spec=_Spec(host_network=True)))]
    long = Pod(metadata=_Metadata(name="w-0", annotations={ATTACHED: "x" * (MAX_TEXT + 1)}))
    assert not [*_networks_variable(long), *_networks_variable(Pod())]


@pytest.mark.parametrize("value", ["zz", "ff", "7b"])
def test_a_variable_that_is_none(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert isinstance(answered(PodNetworks, list_pod_networks({})), Absent)


def test_the_source_that_is_sent() -> None:
    assert runs_on_python_3_6(list_pod_networks)
