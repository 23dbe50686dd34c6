"""``--job ray:`` and ``modelarts:``: answers of a real dashboard (Ray 2.60.0), folders as ModelArts documents them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from doctor.cli.host_options import ConnectionOptions, with_job_of_pods
from doctor.diagnose.job.kinds import JOB_KINDS, read_job, read_live_job
from doctor.diagnose.job.ray import LOG_FOLDER
from doctor.diagnose.read.file_names import read_names
from doctor.engine import language
from doctor.engine.errors import InputError, UsageError
from tests import preloaded

NODE = "5a43d651eee0ea9ee946d9d79bc9db73caaa3cf72eb30ce3337263bc"
OTHER = "77" * 28
SUBMITTED = "raysubmit_xQyWnmANEakprEvP"
JOB = {
    "type": "SUBMISSION",
    "job_id": "02000000",
    "submission_id": SUBMITTED,
    "driver_info": {"id": "02000000", "node_ip_address": "192.0.2.2", "pid": "20502"},
    "status": "RUNNING",
    "entrypoint": "python /tmp/rayjob.py",
    "message": "Job is currently running.",
    "error_type": None,
    "start_time": 1795531442980,
    "end_time": None,
    "metadata": None,
    "runtime_env": None,
    "driver_agent_http_address": "http://192.0.2.2:52365",
    "driver_node_id": NODE,
    "driver_exit_code": None,
}
LOGS = (
    "2026-11-24 14:44:07,487\tINFO worker.py:2029 -- Connected to Ray cluster. View the dashboard at "
    "\x1b[1m\x1b[32mhttp://127.0.0.1:28265 \x1b[39m\x1b[22m\n"
    "\x1b[36mray::W.go()\x1b[39m (pid=20371, ip=192.0.2.2, actor_id=410271352287bb3a1147a47c02000000)\n"
    '  File "/tmp/rayjob.py", line 8, in go\n'
    '    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")\n'
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    "\x1b[36m(W pid=20371)\x1b[0m worker 1 20371\n"
)
NODES = [
    {"node_id": NODE, "node_ip": "192.0.2.2", "is_head_node": True, "state": "ALIVE", "node_name": "192.0.2.2"},
    {"node_id": OTHER, "node_ip": "192.0.2.9", "is_head_node": False, "state": "ALIVE", "node_name": "192.0.2.9"},
    {"node_id": "99" * 28, "node_ip": "192.0.2.7", "is_head_node": False, "state": "ALIVE", "node_name": "idle"},
]
ACTORS = [
    {"actor_id": "a1", "class_name": "W", "state": "ALIVE", "job_id": "02000000", "node_id": OTHER, "pid": 20371},
    {"actor_id": "a2", "class_name": "W", "state": "DEAD", "job_id": "02000000", "node_id": NODES[2]["node_id"]},
]


def listing(entries: list[dict[str, Any]]) -> dict[str, Any]:
    found = {"total": len(entries), "num_after_truncation": len(entries), "result": entries, "warnings": None}
    return {"result": True, "msg": "", "data": {"result": found}}


class Dashboard:
    """What it answers, by path; an answer may be bytes. The requests are kept."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            f"/api/jobs/{SUBMITTED}": JOB,
            f"/api/jobs/{SUBMITTED}/logs": {"logs": LOGS},
            "/api/v0/nodes": listing(NODES),
            "/api/v0/actors": listing(ACTORS),
            "/api/v0/tasks": listing([]),
        }
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.address = ""


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    served = Dashboard()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            served.asked.append((self.path, dict(self.headers)))
            answer = served.answers.get(path)
            status = answer if isinstance(answer, int) else 200 if answer is not None else 404
            self.send_response(status)
            if status == 307:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        server.shutdown()
        thread.join()


class TestRay:
    def test_hosts_are_those_of_the_driver_and_of_living_actors(self, dashboard: Dashboard) -> None:
        job = read_live_job(f"ray:{dashboard.address}/{SUBMITTED}")
        assert job.hosts == ["192.0.2.2", "192.0.2.9"] and job.source == f"Ray job {SUBMITTED} (RUNNING)"
        assert job.variables == {"RAY_JOB_ID": ["02000000", "ffffffff"]}  # as the processes of its tasks have it
        assert f"{LOG_FOLDER}/worker-*-20371.out" in job.outputs
        assert f"{LOG_FOLDER}/worker-*-02000000-*.err" in job.outputs and not job.notes
        asked = next(path for path, _ in dashboard.asked if "actors" in path)
        assert parse_qs(urlsplit(asked).query)["filter_values"] == ["02000000"]

    def test_of_a_job_that_has_ended_all_its_actors_count(self, dashboard: Dashboard) -> None:
        nodes = [NODES[0], NODES[1], {**NODES[2], "state": "DEAD"}]
        dashboard.answers["/api/v0/nodes"] = listing(nodes)
        dashboard.answers[f"/api/jobs/{SUBMITTED}"] = {**JOB, "status": "FAILED", "driver_exit_code": 1}
        job = read_job(f"ray:http://{dashboard.address}/{SUBMITTED}")
        assert job.hosts == ["192.0.2.2", "192.0.2.9", "192.0.2.7"]
        assert job.notes == ["Ray calls these nodes of the job dead: 192.0.2.7"]
        with pytest.raises(InputError, match=r"it has ended \(FAILED\)"):
            read_live_job(f"ray:{dashboard.address}/{SUBMITTED}")
        assert '"driver_exit_code":1' in job.texts[f"ray job status {SUBMITTED}"]

    def test_what_the_dashboard_does_not_say_is_a_note(self, dashboard: Dashboard) -> None:
        dashboard.answers["/api/v0/actors"] = 500
        dashboard.answers[f"/api/jobs/{SUBMITTED}/logs"] = b"<html>"
        job = read_job(f"ray:{dashboard.address}/{SUBMITTED}")
        assert job.hosts == ["192.0.2.2"] and len(job.notes) == 2 and not job.logs

    def test_without_driver_and_actors_all_living_nodes_are_looked_at(self, dashboard: Dashboard) -> None:
        dashboard.answers[f"/api/jobs/{SUBMITTED}"] = {**JOB, "driver_info": None, "job_id": None}
        job = read_job(f"ray:{dashboard.address}/{SUBMITTED}")
        assert job.hosts == ["192.0.2.2", "192.0.2.9", "192.0.2.7"] and "all of the cluster" in job.notes[0]

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            (404, "HTTP status 404"),
            (307, "HTTP status 307"),
            (b"<html>", "not that of Ray's dashboard"),
            (b'{"status": 7}', "not that of Ray's dashboard"),
            (b"[" * 100_000, "not that of Ray's dashboard"),
        ],
    )
    def test_another_answer_is_one_line(self, dashboard: Dashboard, answer: object, why: str) -> None:
        dashboard.answers[f"/api/jobs/{SUBMITTED}"] = answer
        with pytest.raises(InputError, match=why) as raised:
            read_job(f"ray:{dashboard.address}/{SUBMITTED}")
        assert "\n" not in str(raised.value)

    def test_addresses_of_a_liar_are_addresses(self, dashboard: Dashboard) -> None:
        liar = {**NODES[1], "node_ip": "-oProxyCommand=touch /tmp/x"}
        dashboard.answers["/api/v0/nodes"] = listing([NODES[0], liar])
        assert read_job(f"ray:{dashboard.address}/{SUBMITTED}").hosts == ["192.0.2.2"]

    def test_the_token_goes_along(self, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RAY_AUTH_TOKEN", "t0ken")
        read_job(f"ray:{dashboard.address}/{SUBMITTED}")
        assert {headers.get("Authorization") for _, headers in dashboard.asked} == {"Bearer t0ken"}

    def test_diagnose_reads_the_drivers_log(self, dashboard: Dashboard, tmp_path: Path) -> None:
        dashboard.answers[f"/api/jobs/{SUBMITTED}"] = {**JOB, "driver_info": None, "job_id": None, "status": "FAILED"}
        dashboard.answers["/api/v0/nodes"] = listing([])
        argv = ["diagnose", "--job", f"ray:{dashboard.address}/{SUBMITTED}", "--json", "--no-history"]
        saved = tmp_path / "logs.json"
        ended = preloaded.run(
            [sys.executable, "-m", "doctor", *argv, "--save", str(saved)], capture_output=True, text=True
        )
        assert ended.returncode == 10, ended.stderr
        assert json.loads(ended.stdout)["causes"][0]["signature"] == "cuda-oom"
        again = preloaded.run(
            [sys.executable, "-m", "doctor", "diagnose", "--from", str(saved), "--json", "--no-history"],
            capture_output=True,
            text=True,
        )
        assert json.loads(again.stdout)["causes"] == json.loads(ended.stdout)["causes"]


class TestModelArts:
    NAME = "modelarts-job-95f661bd-1527-41b8-971c-eca55e513254-{}.log"

    def test_each_file_is_that_of_a_node_and_gaps_are_named(self, tmp_path: Path) -> None:
        for task in ("worker-0", "worker-3"):
            (tmp_path / self.NAME.format(task)).write_text("")
        job = read_job(f"modelarts:{tmp_path}")
        assert job.title == "ModelArts job 95f661bd-1527-41b8-971c-eca55e513254" and job.outputs == [str(tmp_path)]
        assert job.notes == ["no log of worker-1, worker-2"]
        hints = read_names([str(tmp_path / self.NAME.format(task)) for task in ("worker-0", "worker-3")])
        assert [hint.host for hint in hints] == ["worker-0", "worker-3"]

    @pytest.mark.parametrize(
        "name",
        [
            "{}-proc-rank-6-device-6.txt",
            "{}-ma-platform-init-worker-0-172.16.24.51-01909681.log",
            "{}/ascend/process_log/rank_0/debug/plog/plog-12_20260101.log",
        ],
    )
    def test_logs_of_processes_and_of_cann_alone_are_those_of_the_job(self, name: str, tmp_path: Path) -> None:
        job = "9b43aba3-ed9c-48c1-9f5e-2d61d20dce65"
        path = tmp_path / name.format(f"modelarts-job-{job}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        place = read_job(f"modelarts:{tmp_path}")
        assert (place.title, place.notes) == (f"ModelArts job {job}", [])

    def test_a_folder_of_none_or_of_two_jobs_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="expected a folder with files such as"):
            read_job(f"modelarts:{tmp_path}")
        (tmp_path / "modelarts-job-dev-image").mkdir()  # no logs of CANN are in it
        with pytest.raises(InputError, match="expected a folder with files such as"):
            read_job(f"modelarts:{tmp_path}")
        for job in ("a1", "b2"):
            (tmp_path / f"modelarts-job-{job}-worker-0.log").write_text("")
        with pytest.raises(InputError, match="the logs of 2 jobs"):
            read_job(f"modelarts:{tmp_path}")

    def test_its_hosts_are_not_known(self, tmp_path: Path) -> None:
        (tmp_path / "modelarts-job-a-worker-0.log").write_text("")
        with pytest.raises(InputError, match="no host of it is known"):
            read_live_job(f"modelarts:{tmp_path}")

    def test_diagnose_names_the_node(self, tmp_path: Path) -> None:
        for task in ("worker-0", "worker-1"):
            (tmp_path / self.NAME.format(task)).write_text("step 1\n")
        with (tmp_path / self.NAME.format("worker-1")).open("a") as file:
            file.write("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 3; 60.97 GiB total)\n")
        argv = [sys.executable, "-m", "doctor", "diagnose", "--job", f"modelarts:{tmp_path}", "--json", "--no-history"]
        ended = preloaded.run(argv, capture_output=True, text=True)
        assert ended.returncode == 10, ended.stderr
        assert json.loads(ended.stdout)["causes"][0]["hosts"] == ["worker-1"]


@pytest.mark.parametrize(
    "text",
    [
        "ray:",
        "ray:head",
        "ray:head/../x/",
        "ray:ftp://head/x",
        "ray:head:99999/x",
        "ray:head:8265/x?y",
        "ray:user@head/x",
        "ray:head/" + "9" * 101,
        "modelarts:",
        "k8s:llama",
        "k8s:/llama",
        "k8s:team/",
        "k8s:team/a/b/c",
        "k8s:team//b",
        "pbs:7",
        "7",
    ],
)
def test_another_form_is_a_usage_error_that_names_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected (slurm|ray|k8s|modelarts):"):
        with_job_of_pods(ConnectionOptions(), text)
        read_job(text)


def test_a_job_of_kubernetes_is_what_three_options_say() -> None:
    connection, job = with_job_of_pods(ConnectionOptions(), "k8s:team-a/pytorchjob/llama")
    assert (connection.transport, connection.namespace, job) == ("kubernetes", "team-a", "pytorchjob/llama")
    assert with_job_of_pods(connection, "k8s:team-a/llama")[1] == "llama"
    assert with_job_of_pods(ConnectionOptions(), "slurm:7") == (ConnectionOptions(), "slurm:7")
    for other in (connection, ConnectionOptions(transport="slurm")):
        with pytest.raises(UsageError, match="--job k8s:"):
            with_job_of_pods(other, "k8s:team-b/llama")


def test_each_kind_names_its_form() -> None:
    assert all(row.form.startswith(f"{name}:") for name, row in JOB_KINDS.items())


def test_all_forms_are_translated() -> None:
    with pytest.raises(UsageError) as raised:
        read_job("other:1")
    language.select("zh", {})
    try:
        text = language.localized_filled(str(raised.value))
    finally:
        language.select("en", {})
    assert "such as" not in text
    assert "with the logs" not in text
    assert all(kind in text for kind in JOB_KINDS)
