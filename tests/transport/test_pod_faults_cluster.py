"""Faults of the host catalogue in pods of a real cluster: each is found over the transport, and by the gang.

The rows are those of `tests/faults`, in the batches of `tests/test_faults.py`; the pods are emulated as its hosts are
(`tests/hosts/kubernetes/pod_hosts.py`). Runs with ``--full``, and whenever KUBERNETES_BIN names the folder that
``tests/hosts/kubernetes/build.sh`` has filled.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import PREPARED, prepared
from tests.faults import Row
from tests.faults.connectivity import AHEAD
from tests.hosts.gpu import gpu_fleet
from tests.hosts.kubernetes.cluster import Cluster
from tests.hosts.kubernetes.pod_hosts import INTERPRETER, PROGRAM, PodHosts, pod_hosts
from tests.hosts.testbed import Overrides, merge
from tests.smoke.interpreter import visible_folders
from tests.test_faults import BATCHES, OUT_OF_TIME, of_machine, outcome

pytestmark = pytest.mark.cluster(4)
NOT_IN_PODS = {
    "open-files-limit-low": "the row lowers the limit of sshd; a command in a pod has that of its container's runtime",
    "locked-memory-limit-low": "as above",
    "process-limit-low": "as above, or a control group that the row puts sshd into",
    "memory-short": "a control group that the row puts sshd into",
    "cpus-too-few": "as above",
    "sysctl-lost-at-reboot": "a pod does not boot",
    "interface-unreachable": "a pod has a default route, by which the address of another network may be reached",
    "host-name-repeated": "the name of a pod is its identity, by which it is entered",
}
"""Checks whose rows cannot be put into a pod, and why."""
ROWS_NOT_IN_PODS = {
    "hccn-conf-differs:# the file is gone": "a container without /etc/hccn.conf was not given its host's file: skipped",
}
"""Single rows of checks whose others can be, and why."""
FEWEST = 5


_GIVEN = "for n in 0 1 2 3; do [ -e /dev/nvidia$n ] || mknod /dev/nvidia$n c 195 $n; done"


def _in_a_pod(row: Row) -> Row:
    """The row as it is in a pod.

    A wrapper of python3 hands on as many words as the carrier of a gang has. And what a container was given is the
    device files that its plugin has put into it: those stay where a GPU falls off the bus.
    """
    if row.check == "gpu-missing":
        return replace(row, fault=f"{row.fault}\n{_GIVEN}")
    return replace(row, fault=AHEAD.replace('$4"', '$4" "$5"')) if row.fault == AHEAD else row


IN_PODS = [
    [_in_a_pod(row) for row in batch if row.check not in NOT_IN_PODS and str(row) not in ROWS_NOT_IN_PODS]
    for batch in BATCHES
    if batch[0].fleet in ("cpu", "a2", "gpu") and len(batch) >= FEWEST
]
GANG = {"DOCTOR_GANG_KEY": "k" * 32, **PROGRAM}
REPORT = "/tmp/gang.json"


def overrides(fleet: str) -> dict[str, Overrides]:
    if fleet == "a2":
        return prepared("A2")
    if fleet == "gpu":
        return {name: merge(PREPARED, values) for name, values in gpu_fleet(4).items()}
    return {"*": PREPARED}


def by_transport(pods: PodHosts, selected: str) -> dict[str, Any]:
    """The report over ``--transport kubernetes``."""
    words = ["check", "--transport", "kubernetes", ",".join(pods.hosts), "--json", "--no-history", "--select", selected]
    done = pods.cluster.run([sys.executable, "-m", "doctor", *words], timeout=300)
    assert done.returncode in (0, 10, 11, 12), done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def by_gang(pods: PodHosts, selected: str) -> dict[str, Any]:
    """The report of the pod that leads; all end alike."""
    options = ["--gang", "auto", ",".join(pods.hosts), "--net", "off", "--budget", "120", "--gang-wait", "90s"]
    words = [
        INTERPRETER,
        "-m",
        "doctor",
        "preflight",
        "--no-history",
        *options,
        "--select",
        selected,
        "--report",
        REPORT,
    ]
    processes = [
        subprocess.Popen(
            pods.command(host, words, **GANG),
            env=pods.cluster.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in pods.hosts
    ]
    ended = [(*process.communicate(timeout=300), process.returncode) for process in processes]
    assert len({(out, code) for out, _, code in ended}) == 1, ended
    report = pods.run(pods.hosts[0], f"cat {REPORT}").stdout
    assert report, ended
    return dict(json.loads(report))


def asked(way: Callable[[PodHosts, str], dict[str, Any]], pods: PodHosts, selected: str) -> dict[str, Any]:
    """A report; once more, where a starved machine kept an answer from coming."""
    report = way(pods, selected)
    late = OUT_OF_TIME.search(json.dumps([entry["unknown"] for entry in report["outcomes"]]))
    return way(pods, selected) if late else report


def problems(rows: Sequence[Row], hosts: Sequence[str], report: dict[str, Any]) -> list[str]:
    """What is wrong with a report on pods that have these faults: rows that it lacks, and pods that it accuses."""
    blamed: dict[str, set[str]] = {}
    for row in rows:
        named = {hosts[number] for number in ([row.host] if row.blamed is None else row.blamed)} or set(hosts)
        for name in (row.check, *row.also):
            blamed.setdefault(name, set()).update(named)
    wrong = []
    for row in rows:
        findings = outcome(report, row.check)["findings"]
        named = {hosts[number] for number in ([row.host] if row.blamed is None else row.blamed)}
        if not named <= {name for finding in findings for name in finding["hosts"]} or not findings:
            wrong.append(f"{row}: not found: {outcome(report, row.check)}")
    for other in report["outcomes"]:
        wrong += [f"{other['check']}: unknown or crashed: {other}" for kind in ("crashed",) if other[kind]]
        for finding in other["findings"] if not of_machine(other) else ():
            if not set(finding["hosts"]) <= blamed.get(other["check"], set()):
                wrong.append(f"accused: {finding}")
    return wrong


def test_at_least_forty_faults_are_tried() -> None:
    assert sum(len(rows) for rows in IN_PODS) >= 40
    assert {row.check for batch in BATCHES for row in batch} >= set(NOT_IN_PODS)
    assert {str(row) for batch in BATCHES for row in batch} >= set(ROWS_NOT_IN_PODS)


@pytest.mark.parametrize("rows", IN_PODS, ids=[f"{rows[0].fleet}-{len(rows)}-{rows[0].check}" for rows in IN_PODS])
def test_each_is_found_over_the_transport_and_by_the_gang(cluster: Cluster, rows: list[Row]) -> None:
    selected = ",".join(sorted({name for row in rows for name in (row.check, *row.also)}))
    with pod_hosts(cluster, overrides(rows[0].fleet), visible_folders()) as pods:
        for way in (by_transport, by_gang):
            assert problems([], pods.hosts, asked(way, pods, selected)) == [], way.__name__
        for row in rows:
            pods.breaks(pods.hosts[row.host], f"(\n{row.fault}\n)")
        wrong = {
            way.__name__: problems(rows, pods.hosts, asked(way, pods, selected)) for way in (by_transport, by_gang)
        }
    assert not any(wrong.values()), json.dumps(wrong, indent=1)
