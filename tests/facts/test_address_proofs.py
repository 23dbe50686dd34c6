"""Which host answers at an address: a keyed handshake between the hosts of a run."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from doctor.engine.fact import Output, PerHost, ProbeAnswer, Unreadable
from doctor.facts.address_proofs import AddressProofs, addresses_proven_elsewhere, prove_addresses
from doctor.facts.interfaces import Interfaces
from doctor.facts.visit import Reachability
from doctor.remote.runtime.keyed_hash import make_proof
from tests.checks.network import interfaces
from tests.facts.answers import answered
from tests.facts.garbage import JSON, as_answer, runs_on_python_3_6, value_of

OWN = {"a": "aa" * 32, "b": "bb" * 32}


def reached(**addresses: str) -> PerHost[Reachability]:
    return PerHost({host: Reachability("", "", "", address) for host, address in addresses.items()})


def planned(fleet: dict[str, Any], **addresses: str) -> dict[str, Any]:
    return AddressProofs.plan({Interfaces: PerHost(fleet), Reachability: reached(**addresses)})


def test_hosts_in_one_network_are_not_asked() -> None:
    fleet = {"a": interfaces(eth0="10.0.0.1/24"), "b": interfaces(eth0="10.0.0.2/24")}
    assert planned(fleet, a="10.0.0.1", b="10.0.0.2") == {}


def test_in_a_second_network_each_calls_the_others() -> None:
    fleet = {
        host: interfaces(eth0=f"10.0.0.{at}/24", eth1=f"10.95.0.{at}/16", eth2=f"192.0.{at}.1/24")
        for at, host in enumerate("ab", 1)
    }
    plan = planned(fleet, a="10.0.0.1", b="10.0.0.2")
    assert plan["a"]["peers"] == [("10.0.0.2", "b"), ("10.95.0.2", "b")]
    assert plan["a"]["own"] == ["10.0.0.1", "10.95.0.1"]
    assert {task["host"] for task in plan.values()} == {"a", "b"}
    assert len({(task["key"], task["port"]) for task in plan.values()}) == 1
    assert len({task[name] for task in plan.values() for name in ("own_key", "nonce")}) == 4
    assert planned(fleet, a="10.0.0.1", b="10.0.0.2")["a"]["key"] != plan["a"]["key"]


def test_the_answer_is_read() -> None:
    assert answered(AddressProofs, {"proven": {"10.95.0.2": "b"}, "unopened": []}).proven == {"10.95.0.2": "b"}


@given(JSON)
def test_an_answer_that_makes_no_sense_is_unreadable(value: Any) -> None:
    value_of(AddressProofs, as_answer(value))


def test_what_is_no_address_is_not_read() -> None:
    with pytest.raises((Unreadable, ValueError)):
        AddressProofs.read(ProbeAnswer({"": Output(out=as_answer({"proven": {"h1\n": "b"}}))}))


def test_the_function_runs_on_old_python() -> None:
    assert runs_on_python_3_6(prove_addresses)


def test_no_host_is_its_own_witness() -> None:
    def proofs(**said: dict[str, str]) -> dict[str, AddressProofs]:
        return {host: AddressProofs(proven=proven) for host, proven in said.items()}

    assert addresses_proven_elsewhere(proofs(a={"10.95.0.2": "b"}, b={"10.95.0.1": "a"})) == {
        "a": {"10.95.0.1"},
        "b": {"10.95.0.2"},
    }
    assert addresses_proven_elsewhere(proofs(a={"10.95.0.1": "a"})) == {}
    assert addresses_proven_elsewhere(proofs(a={"10.95.0.9": "b"}, b={"10.95.0.9": "c"})) == {}


def test_a_host_that_has_been_answered_stays_for_what_was_lost() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.2", 0))
        port = free.getsockname()[1]
    task: dict[str, Any] = {"port": port, "key": "ab" * 32, "seconds": 5.0}
    own = {**task, "host": "a", "own_key": OWN["a"], "nonce": OWN["a"][:32]}
    asked: Any = {"asked": "x", "x": {**own, "own": ["127.0.0.1"], "peers": [["127.0.0.2", "b"]]}}
    call = b"c" + bytes.fromhex(OWN["b"][:32])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer, ThreadPoolExecutor() as pool:
        peer.bind(("127.0.0.2", port))
        peer.settimeout(5)
        done = pool.submit(prove_addresses, asked)
        nonce = peer.recvfrom(512)[0][1:].hex()
        proof = make_proof({**task, "host": "b", "own_key": OWN["b"]}, b"address", nonce)  # type: ignore[no-untyped-call]
        for data in (b"p" + proof, call, call, call, call):
            peer.sendto(data, ("127.0.0.1", port))
        time.sleep(0.15)
        peer.sendto(call, ("127.0.0.1", port))
        assert done.result()["proven"].keys() == {"127.0.0.2"}
        peer.setblocking(False)
        answers = list[bytes]()
        with suppress(BlockingIOError):
            while True:
                answers.append(peer.recvfrom(512)[0][:1])
        assert answers.count(b"p") == 5


RULES = """nft -f - <<'END'
table inet f {
  chain in { type filter hook input priority 0; policy drop; ct state established accept; iif lo accept; }
}
END
"""
PROVE = """python - <<'END'
import json, os; from doctor.facts.address_proofs import prove_addresses
task = json.loads(os.environ["TASK"])
print(json.dumps([task["host"], prove_addresses({"asked": "x", "x": task})]))
END
"""
BOTH = 'TASK=$FAR nsenter -n -t "$other" sh -c "$RUN" & TASK=$NEAR sh -c "$RUN"; wait $!'
TRUE = [{"10.7.7.2": "b"}, {"10.7.7.1": "a"}]
LIAR = {"own_key": "cc" * 32}


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("rules", "far_task", "expected"),
    [
        pytest.param(RULES, {}, TRUE, id="both accept answers alone"),
        pytest.param("", {"key": "cd" * 32}, [{}, {}], id="a stranger without the key"),
        pytest.param("", LIAR, [{}, {"10.7.7.1": "a"}], id="a host of the run in another one's name"),
    ],
)
def test_two_hosts_prove_themselves(rules: str, far_task: dict[str, str], expected: list[dict[str, str]]) -> None:
    """Two network namespaces, over a pair of virtual cards."""
    task = {"port": 20123, "seconds": 0.5 if "key" in far_task else 20.0, "key": "ab" * 32}
    tasks = {host: {**task, "host": host, "own_key": key, "nonce": key[:32]} for host, key in OWN.items()}
    near = {**tasks["a"], "own": ["10.7.7.1"], "peers": [["10.7.7.2", "b"]]}
    far = {**tasks["b"], "own": ["10.7.7.2"], "peers": [["10.7.7.1", "a"]], **far_task}
    script = Path(__file__).with_name("hardware_addresses.sh")
    path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    done = subprocess.run(
        ["unshare", "-n", "sh", str(script), "sh", "-c", BOTH],
        env={"NEAR": json.dumps(near), "FAR": json.dumps(far), "RUN": rules + PROVE, "PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    said = dict(map(json.loads, done.stdout.splitlines()))
    proven = [AddressProofs.verified(said[host], host, tasks)["proven"] for host in tasks]
    assert proven == expected, done.stderr
