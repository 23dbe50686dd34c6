"""Which pods are the hosts of a job, which container is meant, and why a pod cannot be entered. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.engine.errors import InputError
from doctor.environment.inventory import Inventory
from doctor.hosts.nodeset import InventoryError
from doctor.hosts.selection import HostSelection, PodAccess, PodSelection
from doctor.session import select_pods
from doctor.session.examine import _meeting_in_pods, _names_among_hosts
from doctor.session.select_pods import absent_replicas
from doctor.smoke.plan import SmokeOptions
from doctor.transport import TransportError
from doctor.transport.kubernetes import kubectl
from doctor.transport.kubernetes.jobs import job_kinds, pods_of_job, without_replaced
from doctor.transport.kubernetes.kubernetes_transport import Kubernetes, NodePods
from doctor.transport.kubernetes.pods import Pod, list_pods, natural_order, read_pod
from tests.hosts.kubernetes.small_server import pod


def read(*items: dict[str, Any]) -> list[Pod]:
    return [msgspec.convert(item, Pod) for item in items]


@pytest.mark.parametrize("row", job_kinds(), ids=lambda row: f"{row.kinds[0]}-{row.label or row.owner}")
def test_each_kind_of_job_has_its_pods_and_no_others(row: Any) -> None:
    owner = f"{row.owner or 'Job'}/{'train' if not row.label else 'train-0'}"
    members = [pod(f"w-{number}", labels={row.label: "train"} if row.label else {}, owner=owner) for number in (10, 2)]
    other = pod("x", labels={row.label: "train-2"} if row.label else {}, owner=f"{row.owner or 'Job'}/train-2")
    job_pods = pods_of_job("train", read(*members, other))
    assert [item.name for item in job_pods.pods] == ["w-2", "w-10"]
    assert [item.name for item in pods_of_job(f"{row.kinds[-1]}/train", read(*members, other)).pods] == ["w-2", "w-10"]


@pytest.mark.parametrize(
    ("item", "name"),
    [
        (pod("w-0", owner="AscendJob/t"), ""),
        (pod("w-0", labels={"ray.io/cluster": "t"}, owner="RayCluster/t"), ""),
        ({**pod("w-0", owner="AscendJob/t"), "spec": {"containers": [{"name": "main"}], "subdomain": "s"}}, "w-0.s"),
        (pod("w-0", labels={"job-name": "t"}, owner="Job/t"), None),
        (pod("w-0"), None),
    ],
)
def test_pods_that_no_service_names_are_looked_up_by_no_name(item: dict[str, Any], name: str | None) -> None:
    """Whether ``--job``, ``--selector`` or HOSTS names them."""
    listing = select_pods.FoundPods(tuple(read(item)), (), ("kubectl",), "default", "1 pod")
    inventory = select_pods.inventory_of(listing, "")
    assert inventory.pods and inventory.pods.names.get("w-0") == name
    assert _names_among_hosts(inventory) == ("w-0" if name is None else name,)


def test_the_launcher_of_an_mpijob_is_no_host() -> None:
    label = "training.kubeflow.org/job-name"
    launcher = pod("m-launcher-x", labels={label: "m", "training.kubeflow.org/job-role": "launcher"}, owner="Job/m")
    workers = [pod(f"m-worker-{number}", labels={label: "m"}, owner="MPIJob/m") for number in range(2)]
    job_pods = pods_of_job("m", read(launcher, *workers))
    assert [item.name for item in job_pods.pods] == ["m-worker-0", "m-worker-1"]
    assert job_pods.notes == ("m-launcher-x starts the job, and is no host of it",)


def pod_object(name: str, minute: int, *, phase: str = "Running", index: str = "", **metadata: Any) -> dict[str, Any]:
    """A pod of the job ``t``, as its controller makes it."""
    base = f"t-{index}-" if index else "t-"
    annotations = {"batch.kubernetes.io/job-completion-index": index} if index else {}
    more = {"generateName": base, **metadata}
    created = f"2026-01-01T00:{minute:02}:00Z"
    labels, full_name = {"job-name": "t"}, f"{base}{name}" if more["generateName"] else name
    return pod(
        full_name, phase=phase, labels=labels, owner="Job/t", created=created, annotations=annotations, metadata=more
    )


@pytest.mark.parametrize(
    ("pods", "names", "left_out"),
    [
        ([pod_object("aaaaa", 0, phase="Failed"), pod_object("bbbbb", 5)], ["t-bbbbb"], 1),
        ([pod_object("aaaaa", 0, phase="Failed")], ["t-aaaaa"], 0),  # nobody came after it
        ([pod_object("aaaaa", 5, phase="Failed"), pod_object("bbbbb", 0)], ["t-aaaaa", "t-bbbbb"], 0),
        # A node that died: its pod stays, and is being deleted for ever.
        ([pod_object("aaaaa", 0, deletionTimestamp="2026-01-01T00:04:00Z"), pod_object("bbbbb", 5)], ["t-bbbbb"], 1),
        ([pod_object("aaaaa", 0, deletionTimestamp="2026-01-01T00:04:00Z")], ["t-aaaaa"], 0),
        # Another index was made later, and this one waits for its turn.
        (
            [pod_object("aaaaa", 0, index="0", phase="Failed"), pod_object("bbbbb", 5, index="1")],
            ["t-0-aaaaa", "t-1-bbbbb"],
            0,
        ),
        (
            [
                pod_object("aaaaa", 0, index="0", phase="Failed"),
                pod_object("bbbbb", 5, index="0"),
                pod_object("ccccc", 0, index="1"),
            ],
            ["t-0-bbbbb", "t-1-ccccc"],
            1,
        ),
        # Names that a controller has fixed: no other pod can have come in its place.
        (
            [pod_object("t-0", 0, phase="Failed", generateName=""), pod_object("t-1", 5, generateName="")],
            ["t-0", "t-1"],
            0,
        ),
        ([pod_object("0", 0, phase="Failed"), pod_object("1", 5)], ["t-0", "t-1"], 0),
    ],
)
def test_pods_that_were_replaced_are_no_hosts_and_the_others_are(
    pods: list[dict[str, Any]], names: list[str], left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_pods = pods_of_job("t", read(*pods))
    assert [item.name for item in job_pods.pods] == names
    assert [
        note.startswith("left out, as later pods stand in their place: 1 pod, ended") for note in job_pods.notes
    ] == [True] * left_out
    monkeypatch.setattr(select_pods, "list_pods", lambda *_: read(*pods))
    monkeypatch.setattr(select_pods, "namespace_of", lambda *_: "team")
    monkeypatch.setattr(kubectl, "command_line", lambda *_: ("kubectl",))
    by_labels = select_pods.find_pods(PodSelection(selector="job-name=t"))
    alive = [item["metadata"]["name"] for item in pods if item["status"]["phase"] != "Failed"]
    assert [item.name for item in by_labels.pods] == [name for name in names if name in alive or not alive]


def revision(letters: str, hash_: str, minute: int, deployment: str = "web", **metadata: Any) -> dict[str, Any]:
    """A pod of one revision of a Deployment."""
    base = f"{deployment}-{hash_}"
    labels, created = {"app": "web", "pod-template-hash": hash_}, f"2026-01-01T00:{minute:02}:00Z"
    more = {"generateName": f"{base}-", **metadata}
    return pod(f"{base}-{letters}", labels=labels, owner=f"ReplicaSet/{base}", created=created, metadata=more)


LEAVES = {"deletionTimestamp": "2026-01-01T00:06:00Z"}


@pytest.mark.parametrize(
    ("pods", "names"),
    [
        ([revision("aaaaa", "5d8f", 0, **LEAVES), revision("bbbbb", "77c9", 5)], ["web-77c9-bbbbb"]),
        # Nobody came in its place; it is not on its way out; and what came later is of another Deployment.
        ([revision("aaaaa", "5d8f", 0, **LEAVES)], ["web-5d8f-aaaaa"]),
        ([revision("aaaaa", "5d8f", 0), revision("bbbbb", "77c9", 5)], ["web-5d8f-aaaaa", "web-77c9-bbbbb"]),
        (
            [revision("aaaaa", "5d8f", 0, **LEAVES), revision("bbbbb", "77c9", 5, "web-canary")],
            ["web-5d8f-aaaaa", "web-canary-77c9-bbbbb"],
        ),
        # A hash that is no part of the name is not its Deployment's.
        (
            [revision("aaaaa", "5d8f", 0, **LEAVES, labels={"pod-template-hash": "0"}), revision("bbbbb", "77c9", 5)],
            ["web-5d8f-aaaaa", "web-77c9-bbbbb"],
        ),
    ],
)
def test_pods_of_an_earlier_revision_of_a_deployment(pods: list[dict[str, Any]], names: list[str]) -> None:
    current, notes = without_replaced(read(*pods))
    assert [item.name for item in current] == names
    assert len(notes) == len(pods) - len(names)


def test_a_starter_that_does_not_run_is_named_with_its_reason() -> None:
    label, role = "training.kubeflow.org/job-name", "training.kubeflow.org/job-role"
    launcher = pod("m-launcher-x", phase="Failed", labels={label: "m", role: "launcher"}, status={"reason": "Evicted"})
    job_pods = pods_of_job("m", read(launcher, pod("m-worker-0", labels={label: "m"})))
    assert job_pods.notes == ("m-launcher-x starts the job, and is no host of it: its pod has ended: Evicted",)
    scheduler = pod("a-scheduler-0", labels={"replica-type": "scheduler"}, owner="AscendJob/a")
    job_pods = pods_of_job("acjob/a", read(scheduler, pod("a-worker-0", owner="AscendJob/a")))
    assert [item.name for item in job_pods.pods] == ["a-worker-0"]


@pytest.mark.parametrize(
    ("answer", "absent"),
    [
        ({"spec": {"replicas": 4}}, ("t-1", "t-3")),
        ({"spec": {"replicas": 3, "ordinals": {"start": 2}}}, ("t-3", "t-4")),
        ({"spec": {}}, ()),  # one replica
        ({"spec": {"replicas": 1}}, ()),
        ({"spec": {"replicas": "many"}}, ()),
        ([], ()),
        (None, ()),  # it may not be read
    ],
)
def test_pods_that_a_stateful_set_should_have(
    answer: Any, absent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []

    def ask(program: Sequence[str], *argv: str, **limits: Any) -> bytes:
        requests.append(argv[-1])
        if answer is None:
            raise TransportError("auth", "the API server forbids it")
        return msgspec.json.encode(answer)

    monkeypatch.setattr(kubectl, "ask", ask)
    pods = read(*(pod(f"t-{number}", owner="StatefulSet/t") for number in (0, 2)), pod("x", owner="Job/j"))
    assert absent_replicas(("kubectl",), "team", pods) == absent
    assert requests == ["/apis/apps/v1/namespaces/team/statefulsets/t"]
    requests.clear()
    hostile = read(pod("y", owner="StatefulSet/..%2f"))
    assert absent_replicas(("kubectl",), "team", hostile) == () and not requests


def test_a_number_of_replicas_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubectl, "ask", lambda *argv, **limits: b'{"spec": {"replicas": 2000000000}}')
    assert len(absent_replicas(("kubectl",), "team", read(pod("t-0", owner="StatefulSet/t")))) < 10_000


def test_jobs_of_two_kinds_with_one_name() -> None:
    both = read(pod("a", labels={"volcano.sh/job-name": "t"}), pod("b", labels={"ray.io/cluster": "t"}))
    with pytest.raises(InventoryError, match="expected one of"):
        pods_of_job("t", both)
    assert [item.name for item in pods_of_job("raycluster/t", both).pods] == ["b"]


def test_a_jobset_is_no_second_kind_beside_the_jobs_that_it_makes() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "t", "job-name": "t"}
    assert len(pods_of_job("t", read(pod("t-0", labels=labels, owner="Job/t"))).pods) == 1


@pytest.mark.parametrize(("job", "text"), [("nope", "none of the 1 pod"), ("cronjob/t", "an unknown kind")])
def test_a_job_that_is_none(job: str, text: str) -> None:
    with pytest.raises(InventoryError, match=text):
        pods_of_job(job, read(pod("a")))


def test_the_container_is_the_one_that_kubectl_chooses() -> None:
    first = read(pod("a", containers=["mesh", "train"]))[0]
    annotated = read(
        pod("a", containers=["mesh", "train"], annotations={"kubectl.kubernetes.io/default-container": "train"})
    )[0]
    wrong = read(pod("a", containers=["mesh"], annotations={"kubectl.kubernetes.io/default-container": "gone"}))[0]
    assert [first.container(), annotated.container(), wrong.container()] == ["mesh", "train", "mesh"]
    assert (annotated.container("mesh"), annotated.container("nope")) == ("mesh", "")


def waiting(reason: str, message: str = "", last: dict[str, Any] | None = None) -> dict[str, Any]:
    state = {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}
    return {"containerStatuses": [{**state, "lastState": {"terminated": last} if last else {}}]}


BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}


def exited(code: int) -> dict[str, Any]:
    return {"terminated": {"reason": "Error", "exitCode": code}}


def initial(state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"initContainerStatuses": [{"name": "first", "state": state, "lastState": last or {}}]}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (pod("a"), ""),
        (
            pod("a", phase="Failed", status={"reason": "Evicted", "message": "The node was low on resource: memory."}),
            "its pod has ended: Evicted: The node was low on resource: memory.",
        ),
        (pod("a", phase="Succeeded", status={"containerStatuses": []}), "its pod has ended: Succeeded"),
        (
            pod("a", phase="Pending", status=waiting("ImagePullBackOff", 'Back-off pulling image "x"')),
            'its container main waits: ImagePullBackOff: Back-off pulling image "x"',
        ),
        (
            pod("a", status=waiting("CrashLoopBackOff", "", {"reason": "OOMKilled", "exitCode": 137})),
            "its container main waits: CrashLoopBackOff; before that it ended: OOMKilled (exit code 137)",
        ),
        (
            pod(
                "a",
                status={
                    "containerStatuses": [{"name": "main", "state": {"terminated": {"reason": "Error", "exitCode": 1}}}]
                },
            ),
            "its container main has ended: Error (exit code 1)",
        ),
        (
            pod(
                "a",
                phase="Pending",
                status={
                    "initContainerStatuses": [{"name": "wait", "state": {"running": {}}}],
                    **waiting("PodInitializing"),
                },
            ),
            "its init container wait still runs",
        ),
        (pod("a", phase="Pending", status={"containerStatuses": []}), "its pod does not run yet (phase Pending)"),
        (
            pod("a", phase="Failed", status={**initial(exited(10)), **waiting("PodInitializing")}),
            "its init container first has ended: Error (exit code 10)",
        ),
        (
            pod("a", phase="Pending", status={**initial(exited(12)), **waiting("PodInitializing")}),
            "its init container first has ended: Error (exit code 12)",
        ),
        (
            pod("a", phase="Pending", status={**initial(BACK_OFF, exited(12)), **waiting("PodInitializing")}),
            "its init container first waits: CrashLoopBackOff; before that it ended: Error (exit code 12)",
        ),
        # A sidecar runs on, and is not what the others wait for; nor is its end that of the pod.
        (
            pod(
                "a", phase="Pending", sidecars=["first"], status={**initial({"running": {}}), **waiting("ErrImagePull")}
            ),
            "its container main waits: ErrImagePull",
        ),
        (
            pod("a", phase="Pending", sidecars=["first"], status={**initial({"running": {}}), **waiting("")}),
            "its container main waits: no reason given",
        ),
        (
            pod("a", phase="Failed", sidecars=["first"], status={**initial(exited(143)), **waiting("PodInitializing")}),
            "its pod has ended: Failed",
        ),
        (
            pod("a", metadata={"deletionTimestamp": "2026-01-01T00:04:00Z"}, status=waiting("ContainerCreating")),
            "its pod has been ending since 2026-01-01T00:04:00Z",
        ),
        (pod("a", metadata={"deletionTimestamp": "2026-01-01T00:04:00Z"}), ""),
    ],
)
def test_why_a_pod_cannot_be_entered(item: dict[str, Any], text: str) -> None:
    assert read(item)[0].why_unready("main") == text


def test_a_pod_on_no_node() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/4 nodes are available",
    }
    item = pod("a", phase="Pending", status={"containerStatuses": [], "conditions": [condition]})
    item["spec"]["nodeName"] = ""
    assert read(item)[0].why_unready("main") == "its pod is on no node: 0/4 nodes are available"


def test_names_are_in_natural_order() -> None:
    items = read(pod("w-10"), pod("w-9"), pod("v"))
    assert [item.name for item in sorted(items, key=natural_order)] == ["v", "w-9", "w-10"]


@pytest.mark.parametrize(
    ("stderr", "kind", "text"),
    [
        # By kubectl 1.32.4, to a server that was not there, was silent, or has a certificate of its own.
        (
            "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?",
            "refused",
            "6443",
        ),
        (
            "Unable to connect to the server: dial tcp: lookup k8s.invalid on 10.0.0.1:53: no such host",
            "no-route",
            "resolve",
        ),
        ("Unable to connect to the server: net/http: TLS handshake timeout", "dropped", "in time"),
        (
            "Unable to connect to the server: tls: failed to verify: x509: certificate signed by unknown authority",
            "auth",
            "certificate signed by unknown authority",
        ),
        ("error: You must be logged in to the server (Unauthorized)", "auth", "login"),
        ('error: context "nope" does not exist', "error", "nope"),
        ("error: unexpected EOF", "lost", "cut"),
        ("error: cannot exec into a container in a completed pod; current phase is Succeeded", "error", "has ended"),
        # The API server's and the kubelet's own words (Kubernetes 1.20.2, pkg/registry/core/pod, pkg/kubelet).
        ("Error from server (BadRequest): pod a does not have a host assigned", "error", "no node"),
        ("Error from server (BadRequest): container nope is not valid for pod a", "error", "does not run"),
        (
            'Error from server: Get "https://10.77.0.11:10250/containerLogs/ns/a/main": dial tcp 10.77.0.11:1: refused',
            "no-route",
            "does not reach the kubelet of its node: 10.77.0.11:1: refused",
        ),
        (
            'Error from server (BadRequest): container "main" in pod "eph" is not available',
            "error",
            "its container is not available",
        ),
        (
            'Error from server (BadRequest): container "main" in pod "a" is waiting to start: ContainerCreating',
            "error",
            "its container is waiting to start: ContainerCreating",
        ),
        (
            'Error from server (BadRequest): previous terminated container "main" in pod "a" not found',
            "error",
            "its node has it no longer",
        ),
        ("", "error", "no reason given"),
        ("\x1b[31mError\x1b[0m from somewhere", "error", "somewhere"),
    ],
)
def test_what_kubectl_says(stderr: str, kind: str, text: str) -> None:
    error = kubectl.complaint(stderr.encode())
    assert (error.kind, text in error.text) == (kind, True), error.text
    assert "\x1b" not in error.text


def test_the_last_of_several_complaints_counts() -> None:
    stderr = b'W1 error: websocket: bad handshake\nError from server (NotFound): pods "a" not found\n'
    assert kubectl.complaint(stderr).kind == "name"


def test_exit_codes_are_kubectls_own_words() -> None:
    assert kubectl.reported_exit_code(b"x\ncommand terminated with exit code 12\n") == 12
    assert kubectl.reported_exit_code(b"command terminated with exit code 12\nmore\n") is None
    own_message = b"E1124 14:46:31.687105   25087 v2.go:104] websocket: close sent\n"
    assert kubectl.without_report(b"mine\n" + own_message + b"command terminated with exit code 3\n") == b"mine\n"


def test_names_that_are_none_become_no_path_and_no_word() -> None:
    item = read(pod("a", containers=["../../etc/x", "--kubeconfig=/x", "main"]))[0]
    assert item.container() == "main"
    assert item.container("../../etc/x") == ""


def test_an_answer_about_another_pod_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = msgspec.json.encode(pod("../../tmp/x"))
    monkeypatch.setattr(kubectl, "ask", lambda *argv, **limits: answer)
    with pytest.raises(TransportError, match="about another pod"):
        read_pod(("kubectl",), "default", "a")


@pytest.mark.parametrize("answer", [b"", b"[]", b"{" * 5000, b'{"items": [{"metadata": 7}]}', b"\xff\xfe"])
def test_an_answer_that_is_none(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(kubectl, "ask", lambda *argv, **limits: answer)
    with pytest.raises(TransportError, match="none that Kubernetes gives"):
        list_pods(("kubectl",), "default")


def test_ranks_in_pods_meet_at_the_first_pods_address_unless_the_user_names_one() -> None:
    access = PodAccess(addresses={"w-0": "10.77.11.2", "w-1": "10.77.12.2"})
    pods = Inventory(("w-0", "w-1"), "2 hosts", pods=access)
    assert _meeting_in_pods(SmokeOptions(), pods).master_addr == "10.77.11.2"
    assert _meeting_in_pods(SmokeOptions(master_addr="w-0.train"), pods).master_addr == "w-0.train"
    assert _meeting_in_pods(SmokeOptions(), Inventory(("n1", "n2"), "2 hosts")).master_addr == ""


@pytest.mark.parametrize("program", ["/nowhere/kubectl", "/etc/passwd"])
def test_pods_on_nodes_without_a_kubectl_that_starts(program: str) -> None:
    nodes = NodePods(PodAccess(kubectl=(program,), node_image="busybox"), ("n1", "n2"))
    for node in ("n1", "n2"):
        with pytest.raises(TransportError, match="no pod could be made on it: "):
            nodes.pod(node)
    nodes.remove()


def test_a_starting_api_server_is_tried_again() -> None:
    error = kubectl.complaint(b'error: the server doesn\'t have a resource type "pods"\n')
    assert (error.kind, error.text.partition(":")[0]) == ("dropped", "the API server cannot serve now")


def refusing(folder: Path, complaint: str, times: int) -> tuple[str]:
    """A kubectl that fails so many times, and then lists no pods."""
    program = folder / "kubectl"
    count = f"echo x >>{folder}/count; [ $(wc -l <{folder}/count) -gt {times} ]"
    program.write_text(f"#!/bin/sh\n{count} || {{ echo '{complaint}' >&2; exit 1; }}\necho '{{\"items\": []}}'\n")
    program.chmod(0o755)
    return (str(program),)


REFUSED = "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?"


def test_a_list_is_asked_for_again_while_the_api_server_is_absent(tmp_path: Path) -> None:
    assert list_pods(refusing(tmp_path, REFUSED, 2), "default", patience=60) == []
    assert (tmp_path / "count").read_text().count("x") == 3


@pytest.mark.parametrize(
    ("complaint", "kind"),
    [
        (
            'Error from server (Forbidden): pods is forbidden: User "x" cannot list resource "pods" in API group ""',
            "auth",
        ),
        ("The connection to the server localhost:8080 was refused - did you specify the right host or port?", "error"),
    ],
)
def test_an_answer_that_stays_the_same_is_not_asked_for_again(tmp_path: Path, complaint: str, kind: str) -> None:
    with pytest.raises(TransportError) as stop:
        list_pods(refusing(tmp_path, complaint, 9), "default", patience=60)
    assert stop.value.kind == kind and stop.value.hint
    assert (tmp_path / "count").read_text().count("x") == 1


def test_a_list_is_given_up_in_time(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="refuses connections"):
        list_pods(refusing(tmp_path, REFUSED, 9), "default", patience=0.1)


def test_pods_on_nodes_that_were_made_without_an_answer(tmp_path: Path) -> None:
    """The second attempt finds the pods of the first, whose answer was cut."""
    program = tmp_path / "kubectl"
    exists = 'Error from server (AlreadyExists): error when creating "STDIN": pods "doctor-1-0" already exists'
    running = json.dumps(pod("NAME", containers=["doctor"])).replace("NAME", "'${last##*/}'")
    script = f"for last; do :; done; case $* in *can-i*) exit 0 ;; *create*) cat >/dev/null; [ -e {tmp_path}/made ] && "
    script += f"{{ echo '{exists}' >&2; exit 1; }}; touch {tmp_path}/made; echo 'error: unexpected EOF' >&2; exit 1 ;;"
    script += f" *--raw*) echo '{running}' ;; esac"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    nodes = NodePods(PodAccess(kubectl=(str(program),), node_image="busybox"), ("n1",))
    try:
        assert nodes.pod("n1").startswith("doctor-")
    finally:
        nodes.remove()


def test_nodes_that_cannot_be_asked_for_come_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = TransportError("auth", "the API server forbids it", "kubectl auth can-i --list")
    monkeypatch.setattr(select_pods, "namespace_of", lambda *_: (_ for _ in ()).throw(refused))
    monkeypatch.setattr(kubectl, "command_line", lambda *_: ("kubectl",))
    selection = HostSelection(nodes="n1", pods=PodSelection(node_image="busybox"))
    with pytest.raises(InputError, match="try kubectl auth can-i --list"):
        select_pods.pods_inventory(selection)


def test_the_way_to_pods_stays_where_some_are_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select_pods, "namespace_of", lambda *_: "team")
    monkeypatch.setattr(kubectl, "command_line", lambda *_: ("kubectl",))
    chosen = HostSelection(nodes="n[1-2]", exclude="n1", pods=PodSelection(node_image="busybox"))
    inventory = select_pods.pods_inventory(chosen)
    assert inventory.hosts == ("n2",)
    assert inventory.pods is not None
    assert inventory.pods.namespace == "team"


def test_pages_of_a_real_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded by `tests/hosts/kubernetes/record.py`: pods in many states, on two pages."""
    path = Path(__file__).parents[1] / "hosts" / "kubernetes" / "recorded.json"
    pages = [json.dumps(page).encode() for page in json.loads(path.read_text("utf-8"))["pages"]]
    requests: list[str] = []

    def ask(program: Sequence[str], *argv: str, **limits: Any) -> bytes:
        requests.append(argv[-1])
        return pages[len(requests) - 1]

    monkeypatch.setattr(kubectl, "ask", ask)
    pods = {pod.name: pod for pod in list_pods(("kubectl",), "default")}
    assert len(requests) == 2 and "&continue=" in requests[1]
    why = {name: pod.why_unready(pod.container()) for name, pod in pods.items()}
    assert why.pop("runs") == "" and pods["runs"].container("beside") == "beside"
    assert why.pop("absent").startswith("its container main waits: ErrImageNeverPull")
    assert why.pop("nowhere").startswith("its pod is on no node: 0/")
    assert why == {
        "done": "its pod has ended: Completed",
        "failed": "its pod has ended: Error (exit code 7)",
        "first": "its init container first still runs",
    }


def test_pages_without_end_are_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that always has one more page, and nothing in it."""
    requests: list[str] = []

    def ask(program: Sequence[str], *argv: str, **limits: Any) -> bytes:
        requests.append(argv[-1])
        return b'{"items": [], "metadata": {"continue": "more"}}'

    monkeypatch.setattr(kubectl, "ask", ask)
    assert list_pods(("kubectl",), "default") == []
    assert len(requests) == 40


def test_a_stream_that_ends_before_its_command_has_begun() -> None:
    """Kubectl ends with 0 and prints nothing, where the API server lost the stream: that is no command that ran."""
    transport = Kubernetes(PodAccess(kubectl=("/bin/true",)), ("w-0",), 0.1)
    with pytest.raises(TransportError, match="the connection through the API server was cut"):
        transport.run("w-0", "true", b"", 10)
    session = transport.open_session("w-0", "true")
    with pytest.raises(TransportError, match="the connection through the API server was cut"):
        list(session)
    transport.close()


def test_a_kind_that_no_row_has_is_refused_before_the_api_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTOR_KUBECTL", "/nowhere/kubectl")
    with pytest.raises(InputError, match="--job Foo/x: an unknown kind; expected one of "):
        select_pods.find_pods(PodSelection(job="Foo/x"))
