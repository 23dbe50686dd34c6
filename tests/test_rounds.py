"""What a host says in the second round of who has answered it: the record keeps what the controller has verified."""

from __future__ import annotations

import msgspec
import pytest

from doctor.collect.rounds import _verified
from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Output, Unreadable, Visit
from doctor.engine.record import HostRecord
from doctor.facts.address_proofs import AddressProofs, tasks_with_keys
from doctor.facts.master_trial import MasterTrial
from doctor.remote.runtime.keyed_hash import keyed_hash

TASKS = tasks_with_keys(["a", "b"])


def kept(fact: type[AddressProofs | MasterTrial], said: object) -> object:
    """The fact of host a, as its record has it."""
    outputs = _verified(fact, {"": Output(out=msgspec.json.encode(said).decode())}, "a", {fact.__name__: TASKS})
    assert not any(task["own_key"] in outputs[""].out for task in TASKS.values())
    return read_fact(HostRecord(Visit(), {fact.__name__: outputs}), fact)


def proof(role: bytes, key: str) -> list[str]:
    nonce = bytes.fromhex(TASKS["a"]["nonce"])
    return ["b", keyed_hash(bytes.fromhex(key), role, nonce, b"b")[:16].hex()]  # type: ignore[no-untyped-call]


def test_a_proof_becomes_a_name() -> None:
    own = TASKS["b"]["own_key"]
    assert kept(MasterTrial, {"reached": proof(b"master", own)}) == MasterTrial(reached="b")
    assert kept(AddressProofs, {"proven": {"10.0.0.2": proof(b"address", own)}}) == AddressProofs(
        proven={"10.0.0.2": "b"}
    )


def test_a_name_without_its_proof_is_not_kept() -> None:
    """Of a host that has the run's key, and one of its own."""
    for key in (TASKS["a"]["key"], TASKS["a"]["own_key"]):
        assert kept(MasterTrial, {"reached": proof(b"master", key)}) == MasterTrial()
        assert kept(AddressProofs, {"proven": {"10.0.0.2": proof(b"address", key)}}) == AddressProofs(proven={})
    assert kept(MasterTrial, {"reached": "b"}) == MasterTrial()
    assert kept(AddressProofs, {"proven": {"10.0.0.2": "b"}}) == AddressProofs(proven={})


@pytest.mark.parametrize("said", [None, "b", ["b"], 7])
def test_what_is_no_report_is_unreadable(said: object) -> None:
    assert isinstance(kept(MasterTrial, said), Unreadable)
    assert isinstance(kept(AddressProofs, said), Unreadable)
