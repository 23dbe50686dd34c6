"""Records what the API server of the test cluster answers to `doctor`: ``recorded.json``, which tests replay.

    python -m tests.hosts.kubernetes.record        makes a cluster, and writes the file anew

Answers are as they came, but for ``managedFields``. Of a gang there is nothing: it asks the API server nothing.
"""

from __future__ import annotations

import io
import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from doctor.engine.http_answer import http_answer
from tests.hosts.kubernetes.cluster import HUB, Cluster

FILE = Path(__file__).with_name("recorded.json")
NODE = "node001"
Exchange = dict[str, Any]


def main() -> None:
    cluster = Cluster(1)
    try:
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        cluster.apply(*_pods())
        cluster.wait(lambda: _settled(cluster), "the pods do not settle")
        done = cluster.run([sys.executable, "-m", "tests.hosts.kubernetes.record", "inside", str(cluster.folder)])
        assert done.returncode == 0, done.stderr
        recorded = json.loads(done.stdout)
        recorded["version"] = json.loads(cluster.kubectl("get", "--raw", "/version").stdout)["gitVersion"]
        pages, following = [], ""
        while True:
            path = f"/api/v1/namespaces/default/pods?limit=3{following}"
            pages.append(_plain(json.loads(cluster.kubectl("get", "--raw", path).stdout)))
            if not pages[-1]["metadata"].get("continue"):
                break
            following = f"&continue={pages[-1]['metadata']['continue']}"
        recorded["pages"] = pages
        FILE.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    finally:
        cluster.end()


def _pods() -> list[dict[str, Any]]:
    """One that runs with a second container, one that has ended, one that failed, and those that wait."""

    def made(name: str, command: list[str], image: str = "no-python", **more: Any) -> dict[str, Any]:
        container = {"name": "main", "image": f"localhost/{image}:1", "imagePullPolicy": "Never", "command": command}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never", **more}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}

    runs = made("runs", ["sleep", "10000"])
    beside = {**runs["spec"]["containers"][0], "name": "beside"}
    runs["spec"]["containers"].append(beside)
    first = {**beside, "name": "first"}
    return [
        runs,
        made("done", ["sleep", "0"]),
        made("failed", ["sh", "-c", "exit 7"]),
        made("absent", ["sleep", "1"], image="absent"),
        made("first", ["sleep", "1"], initContainers=[first]),
        made("nowhere", ["sleep", "1"], nodeSelector={"kubernetes.io/hostname": "node9"}),
    ]


def _settled(cluster: Cluster) -> bool:
    items = {item["metadata"]["name"]: item["status"] for item in cluster.get("pods")["items"]}
    waiting = [state["state"].get("waiting", {}) for state in items["absent"].get("containerStatuses", ())]
    first = [state["state"] for state in items["first"].get("initContainerStatuses", ())]
    phases = {name: status["phase"] for name, status in items.items()}
    expected = {"runs": "Running", "done": "Succeeded", "failed": "Failed", "nowhere": "Pending"}
    return (
        expected.items() <= phases.items()
        and any(state.get("reason") == "ErrImageNeverPull" for state in waiting)
        and any("running" in state for state in first)
        and bool(items["nowhere"].get("conditions"))
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key != "managedFields"}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def record_inside(folder: Path) -> None:
    """Where the API server can be reached: has `doctor` send its own requests, and prints the exchanges."""
    from doctor.session.idle_guard import pod_with_devices
    from doctor.transport.kubernetes import api_server
    from tests.report import reports
    from tests.transport.test_api_server import failed_report, notify_receiver, of_one_host

    exchanges: list[Exchange] = []

    def answer(request: urllib.request.Request, seconds: float, limit: int, context: ssl.SSLContext | None) -> bytes:
        data: Any = request.data
        exchange: Exchange = {
            "method": request.get_method(),
            "path": request.full_url.partition(":6443")[2],
            "document": json.loads(data) if data else None,
        }
        exchanges.append(exchange)
        try:
            text = http_answer(request, seconds, limit, context)
        except urllib.error.HTTPError as error:
            exchange |= {"status": error.code, "answer": json.loads(error.read())}
            raise urllib.error.HTTPError(
                error.url, error.code, error.msg, error.hdrs, _again(exchange["answer"])
            ) from None
        exchange |= {"status": 200, "answer": _plain(json.loads(text))}
        return text

    mock.patch.object(api_server, "http_answer", answer).start()
    os.environ |= {"KUBERNETES_SERVICE_HOST": HUB, "KUBERNETES_SERVICE_PORT": "6443"}
    account = folder / "account"
    account.mkdir()
    (account / "ca.crt").write_bytes((folder / "pki" / "apiserver.crt").read_bytes())
    api_server.ACCOUNT = account
    recorded: dict[str, Any] = {}

    def scenario(name: str, token: str, act: Callable[[], object]) -> None:
        (account / "token").write_text(token)
        exchanges.clear()
        act()
        recorded[name] = list(exchanges)

    scenario("sick", "token-admin", lambda: notify_receiver(of_one_host(failed_report(NODE)), 10))
    scenario("healthy", "token-admin", lambda: notify_receiver(of_one_host(reports.healthy()), 0))
    scenario("forbidden", "token-nobody", lambda: notify_receiver(of_one_host(failed_report(NODE)), 10))
    scenario("expired", "token-expired", lambda: notify_receiver(of_one_host(failed_report(NODE)), 10))
    scenario("idle", "token-admin", lambda: pod_with_devices(api_server.ApiServer(5), "node1"))
    scenario("conflict", "token-admin", lambda: _conflict(api_server.ApiServer(5)))
    (path,) = {item["path"] for item in recorded["sick"] if item["method"] == "GET"}
    (account / "token").write_text("token-admin")
    api_server.ApiServer(5).request("DELETE", path)
    scenario("gone", "token-admin", lambda: notify_receiver(of_one_host(failed_report(NODE)), 10))
    print(json.dumps(recorded))


def _again(answer: Any) -> Any:
    return io.BytesIO(json.dumps(answer).encode())


def _conflict(server: Any) -> None:
    from doctor.transport.kubernetes.api_server import MERGE, Conflict

    old = {"metadata": {"resourceVersion": "1"}, "spec": {"taints": []}}
    try:
        server.request("PATCH", f"/api/v1/nodes/{NODE}", old, MERGE)
    except Conflict:
        return
    raise AssertionError("no conflict")


if __name__ == "__main__":
    record_inside(Path(sys.argv[2])) if sys.argv[1:2] == ["inside"] else main()
