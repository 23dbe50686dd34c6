"""Verdicts that are written to nodes: by HTTPS, to a small server that answers as the API server does.

It applies patches as Kubernetes does: conditions are merged by type, taints replaced as a whole. It also replays what a
real one has answered (`tests/hosts/kubernetes/recorded.json`). On the real one: ``test_manifests_cluster.py``.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.config.file import ConfigError, ConfigFile
from doctor.config.notify_targets import NODE_PARTS, NotifyTarget, parse_notify
from doctor.engine.errors import CommandError
from doctor.engine.result import Finding, Outcome, Report, Severity
from doctor.session.idle_guard import pod_with_devices, run_only_when_idle
from doctor.session.notify.message import message_of
from doctor.session.notify.node_status import NodeVerdict, node_verdicts
from doctor.session.notify.notifier import await_notifications, notify, notify_line
from doctor.transport import TransportError
from doctor.transport.kubernetes import api_server
from doctor.transport.kubernetes.api_server import ApiServer
from tests.report import reports

NODE = "node001"
RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "hosts" / "kubernetes" / "recorded.json").read_text("utf-8")
)
TARGET = NotifyTarget("kubernetes", when="always", node_parts=NODE_PARTS)
HEALTHY, FAILED = "healthy", "failed"


class SmallServer:
    """One node, its events, and what is forbidden."""

    def __init__(self) -> None:
        self.node: dict[str, Any] = {
            "kind": "Node",
            "metadata": {"labels": {}, "resourceVersion": "7"},
            "spec": {},
            "status": {},
        }
        self.events: list[dict[str, Any]] = []
        self.forbidden: set[str] = set()
        self.statuses: list[int] = []
        """Of the next answers, in the place of what is asked."""
        self.requests: list[str] = []
        self.changes = 0
        """So many times the node is changed by others right after it was read."""
        self.pods: list[dict[str, Any]] = []
        self.recorded: list[dict[str, Any]] = []
        """Exchanges with a real one, in their order: what is left of them."""

    def condition(self) -> dict[str, Any]:
        (only,) = self.node["status"].get("conditions", [{}])
        return dict(only)

    def answer(self, method: str, path: str, document: Any) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        if self.recorded:
            exchange = self.recorded.pop(0)
            assert (method, path, shape(document)) == (
                exchange["method"],
                exchange["path"],
                shape(exchange["document"]),
            )
            return exchange["status"], exchange["answer"]
        if path.startswith("/api/v1/pods?"):
            return (403, _forbidden("list", "pods")) if "list pods" in self.forbidden else (200, {"items": self.pods})
        resource = "events" if path.endswith("/events") else "nodes/status" if path.endswith("/status") else "nodes"
        verb = {"GET": "get", "PATCH": "patch", "POST": "create"}[method]
        if method == "GET" and self.changes:
            self.changes -= 1
            answer = json.loads(json.dumps(self.node))
            self.node["metadata"]["resourceVersion"] += "1"
            return 200, answer
        if self.statuses:
            return self.statuses.pop(0), {"kind": "Status", "message": "etcdserver: leader changed"}
        if f"{verb} {resource}" in self.forbidden:
            return 403, _forbidden(verb, resource)
        if method == "POST":
            self.events.append(document)
        elif method == "PATCH" and resource == "nodes/status":
            self.node["status"] = {"conditions": document["status"]["conditions"]}
        elif method == "PATCH":
            self.node["metadata"]["labels"] |= document.get("metadata", {}).get("labels", {})
            if "spec" in document:
                if document["metadata"]["resourceVersion"] != self.node["metadata"]["resourceVersion"]:
                    return 409, {"kind": "Status", "reason": "Conflict", "message": "the object has been modified"}
                self.node["spec"]["taints"] = document["spec"]["taints"]
        return 200, self.node


def shape(document: Any) -> Any:
    """A document without its values: a server takes another time, and no other field."""
    if isinstance(document, dict):
        return {name: shape(value) for name, value in document.items()}
    return [shape(value) for value in document] if isinstance(document, list) else type(document)


def _forbidden(verb: str, resource: str) -> dict[str, str]:
    text = f'{resource} is forbidden: User "a" cannot {verb} resource "{resource}" in API group ""'
    return {"kind": "Status", "reason": "Forbidden", "message": text}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("account")
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubernetes"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"), "-out", str(folder / "ca.crt")]
    subprocess.run(argv, check=True, capture_output=True)
    (folder / "token").write_text("t0ken-of-the-account\n")
    return folder


@pytest.fixture
def server(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallServer]:
    small = SmallServer()

    class Handler(BaseHTTPRequestHandler):
        def handle_request(self) -> None:
            assert self.headers["Authorization"] == "Bearer t0ken-of-the-account"
            length = int(self.headers.get("Content-Length") or 0)
            document = json.loads(self.rfile.read(length)) if length else None
            status, answer = small.answer(self.command, self.path, document)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.handle_request()

        def do_PATCH(self) -> None:
            self.handle_request()

        def do_POST(self) -> None:
            self.handle_request()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "ca.crt", certificate / "key")
        running.socket = context.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(running.server_port))
        monkeypatch.setattr(api_server, "ACCOUNT", certificate)
        monkeypatch.setattr(api_server, "_RETRY_SECONDS", 0.01)
        yield small
        running.shutdown()
        thread.join()


def failed_report(*hosts: str, text: str = "eth1 is down", check: str = "link-down") -> Report:
    return reports.report(Outcome(check, Severity.ERROR, "links", "", (Finding(text, hosts=hosts),), (NODE,)))


def notify_receiver(report: Report, code: int, command: str = "check", target: NotifyTarget = TARGET) -> None:
    notify([target], report, {}, code, command)
    await_notifications()


def of_one_host(report: Report) -> Report:
    """The same report, of one host."""
    return msgspec.structs.replace(report, hosts=(NODE,))


class TestRecorded:
    """Exchanges with a real API server (`tests/hosts/kubernetes/record.py`) are replayed: it took what is sent."""

    @pytest.mark.parametrize(
        ("name", "code", "line"),
        [
            ("sick", 10, ""),
            ("healthy", 0, ""),
            ("expired", 10, "the API server does not accept this user's login"),
            ("gone", 10, 'the API server has no nodes "node001"'),
        ],
    )
    def test_verdicts(
        self, server: SmallServer, capsys: pytest.CaptureFixture[str], name: str, code: int, line: str
    ) -> None:
        server.recorded = list(RECORDED[name])
        notify_receiver(of_one_host(failed_report(NODE) if code else reports.healthy()), code)
        assert not server.recorded
        assert line in capsys.readouterr().err
        notify_receiver(of_one_host(reports.healthy()), 0)  # the small server again

    def test_each_refusal(self, server: SmallServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.recorded = list(RECORDED["forbidden"])
        notify_receiver(of_one_host(failed_report(NODE)), 10)
        forbids = 'the API server forbids this user to {0} resource "nodes"'
        lines = "; ".join(forbids.format(verb) for verb in ("get", "patch"))
        assert capsys.readouterr().err == f"doctor: --notify kubernetes: not sent: {lines}\n"

    def test_a_node_that_another_has_changed(self, server: SmallServer) -> None:
        server.recorded = list(RECORDED["conflict"])
        old = {"metadata": {"resourceVersion": "1"}, "spec": {"taints": []}}
        with pytest.raises(api_server.Conflict):
            ApiServer(5).request("PATCH", f"/api/v1/nodes/{NODE}", old, api_server.MERGE)

    def test_the_pods_of_a_node(self, server: SmallServer) -> None:
        server.recorded = list(RECORDED["idle"])
        assert pod_with_devices(ApiServer(5), "node1") == ""
        assert not server.recorded

    def test_what_the_small_server_makes_up_has_the_form_of_a_real_answer(self) -> None:
        real = RECORDED["forbidden"][0]["answer"]
        assert _forbidden("get", "nodes").keys() <= real.keys()
        assert 'cannot get resource "nodes" in API group ""' in real["message"]


class TestWriting:
    def test_a_sick_node_gets_it_and_a_mended_one_loses_it(
        self, server: SmallServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        notify_receiver(of_one_host(failed_report(NODE)), 10)
        condition = server.condition()
        assert (condition["type"], condition["status"]) == ("ClusterDoctorCheckFailed", "True")
        assert (condition["reason"], condition["message"]) == ("LinkDown", "link-down: eth1 is down")
        assert server.node["metadata"]["labels"]["cluster-doctor.dev/check"] == "failed"
        assert int(server.node["metadata"]["labels"]["cluster-doctor.dev/check-time"]) > 1_700_000_000
        assert server.node["spec"]["taints"] == [
            {"key": "cluster-doctor.dev/check", "value": "failed", "effect": "NoSchedule"}
        ]
        (event,) = server.events
        assert (event["type"], event["reason"], event["involvedObject"]["name"]) == ("Warning", "LinkDown", NODE)
        notify_receiver(of_one_host(reports.healthy()), 0)
        assert (server.condition()["status"], server.condition()["reason"]) == ("False", "NoErrorFound")
        assert server.node["metadata"]["labels"]["cluster-doctor.dev/check"] == "healthy"
        assert server.node["spec"]["taints"] == []
        assert [item["type"] for item in server.events] == ["Warning", "Normal"]
        assert capsys.readouterr().err == ""

    def test_the_same_again_is_no_event_and_keeps_the_time_of_the_change(self, server: SmallServer) -> None:
        notify_receiver(of_one_host(failed_report(NODE)), 10)
        server.node["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        notify_receiver(of_one_host(failed_report(NODE)), 10)
        assert len(server.events) == 1 and server.condition()["lastTransitionTime"] == "2026-01-01T00:00:00Z"
        assert server.condition()["lastHeartbeatTime"] > "2026-01-01T00:00:00Z"
        notify_receiver(of_one_host(failed_report(NODE, check="ntp-unsynced")), 10)
        assert len(server.events) == 2

    def test_unknown_is_neither_and_takes_no_taint_away(self, server: SmallServer) -> None:
        notify_receiver(of_one_host(failed_report(NODE)), 10)
        notify_receiver(of_one_host(reports.healthy()), 12)
        assert server.condition()["status"] == "Unknown" and server.node["spec"]["taints"]
        assert server.node["metadata"]["labels"]["cluster-doctor.dev/check"] == "unknown"

    def test_each_command_has_a_condition_of_its_own(self, server: SmallServer) -> None:
        notify_receiver(of_one_host(failed_report(NODE)), 10, "smoke")
        assert server.condition()["type"] == "ClusterDoctorSmokeFailed"
        assert server.node["spec"]["taints"][0]["key"] == "cluster-doctor.dev/smoke"

    def test_an_interrupted_run_leaves_the_verdict_that_stands(self, server: SmallServer) -> None:
        notify_receiver(of_one_host(failed_report(NODE)), 143)
        notify_line([TARGET], "loss is NaN", "watch", "train.py", is_error=True)
        await_notifications()
        assert not server.requests

    @pytest.mark.parametrize("part", NODE_PARTS)
    def test_only_what_was_requested_is_written(self, server: SmallServer, part: str) -> None:
        notify_receiver(
            of_one_host(failed_report(NODE)), 10, target=NotifyTarget("kubernetes", when="always", node_parts=(part,))
        )
        written = {
            "condition": bool(server.node["status"]),
            "event": bool(server.events),
            "label": bool(server.node["metadata"]["labels"]),
            "taint": bool(server.node["spec"]),
        }
        assert [name for name, is_there in written.items() if is_there] == [part]

    @pytest.mark.parametrize(
        ("right", "others"),
        [
            ("get nodes", {"label"}),
            ("patch nodes/status", {"label", "event"}),
            ("patch nodes", {"condition", "event"}),
            ("create events", {"condition", "label"}),
        ],
    )
    def test_a_right_that_is_missing_is_one_line(
        self, server: SmallServer, right: str, others: set[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.forbidden = {right}
        notify_receiver(of_one_host(failed_report(NODE)), 10)
        verb, resource = right.split()
        expected = (
            f'doctor: --notify kubernetes: not sent: the API server forbids this user to {verb} resource "{resource}"\n'
        )
        assert capsys.readouterr().err == expected
        assert ("condition" in others) == bool(server.node["status"])
        assert ("label" in others) == bool(server.node["metadata"]["labels"])
        assert ("event" in others) == bool(server.events)

    def test_a_server_that_is_busy_is_tried_again(
        self, server: SmallServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.statuses = [503, 429, 500]
        notify_receiver(of_one_host(failed_report(NODE)), 10)
        assert server.condition()["status"] == "True" and capsys.readouterr().err == ""

    def test_taints_of_others_stay_whoever_writes_meanwhile(self, server: SmallServer) -> None:
        other = {"key": "maintenance", "effect": "NoExecute"}
        server.node["spec"]["taints"] = [other]
        server.changes = 4
        notify_receiver(of_one_host(failed_report(NODE)), 10)
        assert server.node["spec"]["taints"][0] == other and len(server.node["spec"]["taints"]) == 2
        server.changes = 2
        notify_receiver(of_one_host(reports.healthy()), 0)
        assert server.node["spec"]["taints"] == [other]
        patches = [line for line in server.requests if line.startswith("PATCH") and not line.endswith("/status")]
        notify_receiver(of_one_host(reports.healthy()), 0)
        after = [line for line in server.requests if line.startswith("PATCH") and not line.endswith("/status")]
        assert len(after) == len(patches) + 1  # the labels alone

    def test_a_server_that_is_gone_is_one_line(
        self, server: SmallServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
        notify_receiver(
            of_one_host(failed_report(NODE)),
            10,
            target=NotifyTarget("kubernetes", when="always", node_parts=("label",), seconds=1),
        )
        error = capsys.readouterr().err
        assert error == "doctor: --notify kubernetes: not sent: the API server is not reached: Connection refused\n"

    def test_a_stranger_with_another_certificate_gets_no_token(
        self, server: SmallServer, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other"]
        argv += ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "ca.crt")]
        subprocess.run(argv, check=True, capture_output=True)
        (tmp_path / "token").write_text("t0ken")
        with pytest.raises(TransportError, match="certificate is not accepted"):
            ApiServer(5, account=tmp_path).request("GET", "/api/v1/nodes/n")
        assert not server.requests

    def test_outside_of_a_cluster(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        notify_receiver(of_one_host(failed_report(NODE)), 10)
        expected = "doctor: --notify kubernetes: not sent: this process is in no pod of Kubernetes\n"
        assert capsys.readouterr().err == expected

    def test_names_that_are_hidden_or_a_command_that_judges_no_node(
        self, server: SmallServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        notify([TARGET], of_one_host(failed_report(NODE)), {}, 10, "check", redact=True)
        notify_receiver(of_one_host(failed_report(NODE)), 10, "diagnose")
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2 and all(line.startswith("doctor: --notify kubernetes: not sent: ") for line in lines)
        assert not server.requests


def verdicts(report: Report, code: int) -> dict[str, NodeVerdict]:
    return {
        item.node: item for item in node_verdicts(report, code, "check", message_of(report, {}, code, "check", "m"))
    }


class TestVerdict:
    def test_of_several_each_is_judged_for_itself(self) -> None:
        states = {name: item.state for name, item in verdicts(failed_report("node002"), 10).items()}
        assert states["node002"] == "failed" and states["node001"] == "healthy"
        assert set(states.values()) == {"failed", "healthy", "unknown"}  # only node001 was looked at

    @pytest.mark.parametrize(
        ("code", "state"), [(0, HEALTHY), (11, HEALTHY), (10, FAILED), (12, "unknown"), (78, "unknown")]
    )
    def test_of_one_the_exit_code_decides(self, code: int, state: str) -> None:
        assert verdicts(of_one_host(reports.healthy()), code)[NODE].state == state

    def test_a_warning_that_fails_is_named(self) -> None:
        finding = Finding("the queue is short", hosts=[NODE])
        report = reports.report(Outcome("listen-queue-short", Severity.WARNING, "kernel", "", (finding,), (NODE,)))
        item = verdicts(of_one_host(report), 10)[NODE]
        assert (item.reason, item.message) == ("ListenQueueShort", "listen-queue-short: the queue is short")

    def test_what_a_host_printed_is_one_short_line(self) -> None:
        text = "\x1b[31mdown\n" * 400
        item = verdicts(of_one_host(failed_report(NODE, text=text)), 10)[NODE]
        assert len(item.message) <= 500 and item.message.isprintable()

    def test_a_node_whose_object_is_strange(self) -> None:
        item = verdicts(of_one_host(failed_report(NODE)), 10)[NODE]
        now = datetime.now(timezone.utc)
        for node in ({}, {"status": 3}, {"status": {"conditions": {}}}, {"status": {"conditions": [1, None]}}):
            assert item.condition(node, now)["status"] == "True" and item.changes(node)

    def test_time_of_a_label_is_utc_seconds(self) -> None:
        now = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=8)))
        item = verdicts(of_one_host(failed_report(NODE)), 10)[NODE]
        assert item.labels(now)["cluster-doctor.dev/check-time"] == str(int(now.timestamp()))
        assert item.condition({}, now)["lastHeartbeatTime"] == "2025-12-31T16:00:00Z"


def test_words_and_tables() -> None:
    (word,) = parse_notify(["kubernetes:condition,taint"], ConfigFile("", ""))
    (table,) = parse_notify(
        ["node"], ConfigFile("doctor.toml", '[notify.node]\nkubernetes = ["label"]\nseconds = 30\n')
    )
    assert (word.node_parts, word.when) == (("condition", "taint"), "always")
    assert (table.node_parts, table.seconds, table.when) == (("label",), 30, "always")
    for mistake in ("kubernetes:", "kubernetes:conditions", "kubernetes:condition,,label"):
        with pytest.raises(ConfigError, match="expected condition, event, label, taint"):
            parse_notify([mistake], ConfigFile("", ""))


def pod(requests: dict[str, str], phase: str = "Running", **more: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": requests, "limits": requests}}
    spec = {"containers": [container], **more}
    return {"metadata": {"name": "train-0", "namespace": "team-a"}, "spec": spec, "status": {"phase": phase}}


class TestIdle:
    @pytest.mark.parametrize(
        ("item", "resource"),
        [
            (pod({"nvidia.com/gpu": "8", "cpu": "1"}), "nvidia.com/gpu"),
            (pod({"huawei.com/Ascend910": "1"}, "Pending"), "huawei.com/Ascend910"),
            (pod({}, initContainers=[{"resources": {"limits": {"amd.com/gpu": "1"}}}]), "amd.com/gpu"),
            (pod({}, resourceClaims=[{"name": "gpus"}]), "resourceClaims"),
            (pod({"nvidia.com/gpu": "8"}, "Succeeded"), ""),
            (pod({"nvidia.com/gpu": "0", "cpu": "4", "hugepages-2Mi": "1Gi", "a.kubernetes.io/x": "1"}), ""),
            ({"spec": {"containers": [{}]}}, ""),
        ],
    )
    def test_what_makes_a_node_busy(self, server: SmallServer, item: dict[str, Any], resource: str) -> None:
        server.pods = [pod({"cpu": "1"}), item]
        assert pod_with_devices(ApiServer(5), NODE) == (f"team-a/train-0 ({resource})" if resource else "")

    def test_a_busy_node_is_not_tested(self, server: SmallServer) -> None:
        server.pods = [pod({"nvidia.com/gpu": "8"})]
        with pytest.raises(CommandError, match="nothing is tested beside the pod team-a/train-0") as raised:
            run_only_when_idle(NODE)
        assert raised.value.exit_code == 78

    @pytest.mark.parametrize(
        "strange", [{"items": 3}, {"items": [{"spec": {"containers": 1}}]}, {"metadata": {"continue": "x"}}]
    )
    def test_an_answer_that_cannot_be_read_is_not_idle(
        self, server: SmallServer, strange: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "answer", lambda *_: (200, strange))
        with pytest.raises(CommandError, match="nothing is tested"):
            run_only_when_idle(NODE)

    def test_a_right_that_is_missing(self, server: SmallServer) -> None:
        server.forbidden = {"list pods"}
        with pytest.raises(CommandError, match='forbids this user to list resource "pods"'):
            run_only_when_idle(NODE)

    def test_a_pod_that_comes_ends_the_test(
        self, server: SmallServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ended = threading.Event()
        monkeypatch.setattr("doctor.session.idle_guard._INTERVAL", 0.01)
        monkeypatch.setattr("doctor.session.idle_guard.os.kill", lambda *_: ended.set())
        run_only_when_idle(NODE)
        server.pods = [pod({"nvidia.com/gpu": "8"})]
        assert ended.wait(60)
        assert "beside the pod team-a/train-0 (nvidia.com/gpu)" in capsys.readouterr().err
