"""An interpreter that imports torch before the run is known: it becomes the ranks that were expected, or ends."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from doctor.cli.app import application
from doctor.smoke.plan import plan_as_dict
from doctor.smoke.run import early_start
from tests.smoke.stub import ENDS, WAITS, Client, has_ended, plan

SAY_PARENT = "def live(rank, box, say, orders):\n    say('joined', parent=os.getppid(), early=repr(early_import))\n"


class FakeTorch:
    """A package torch of one line, and the words that start an interpreter with it."""

    def __init__(self, folder: Path, text: str) -> None:
        self.record = folder / "pids"
        package = folder / "torch" / "distributed"
        package.mkdir(parents=True)
        start = f"import os\nopen({str(self.record)!r}, 'a').write('%d\\n' % os.getpid())\n"
        (folder / "torch" / "__init__.py").write_text(start + textwrap.dedent(text))
        (package / "__init__.py").write_text("")
        self.python = f"env PYTHONPATH={folder} {sys.executable}"

    def pids(self, count: int = 1) -> list[int]:
        """Of the processes that imported it, once there are so many."""
        deadline = time.monotonic() + 10
        while True:
            lines = self.record.read_text().splitlines() if self.record.exists() else []
            if len(lines) >= count or time.monotonic() > deadline:
                return [int(line) for line in lines]
            time.sleep(0.005)


def expected(python: str, world: int = 2, **fields: Any) -> dict[str, Any]:
    return {"mine": list(range(world)), "plan": plan_as_dict(plan(world, **fields)), "python": python}


@pytest.fixture
def torch(tmp_path: Path) -> FakeTorch:
    return FakeTorch(tmp_path, "")


def test_the_interpreter_becomes_the_ranks_that_were_expected(torch: FakeTorch) -> None:
    with Client(listen=True, expected=expected(torch.python)) as client:
        client.until("hello")
        (early,) = torch.pids()
        client.start(SAY_PARENT, python=torch.python, hosts_store=True)
        events = [client.until("event", ev="joined") for _ in range(2)]
        assert [event["parent"] for event in events] == [early, early]
        assert all(re.fullmatch(r"\(\d+\.\d+(e-\d+)?, None\)", event["early"]) for event in events)
        assert torch.pids() == [early]
        client.order("end")
        assert client.until("bye")["left"] == []
    assert has_ended(client)


def test_it_has_the_files_that_any_other_interpreter_has(torch: FakeTorch) -> None:
    """Else it could not report, or the agent would wait for the end of a pipe."""
    observed = []
    for early in (expected(torch.python), None):
        with Client(listen=True, expected=early) as client:
            client.until("hello")
            client.start(ENDS, python=torch.python, hosts_store=True)
            observed.append(client.until("event", ev="imported")["fds"])
    assert len(observed[0]) == len(observed[1])


OTHERS: dict[str, Callable[[FakeTorch], dict[str, Any]]] = {
    "other ranks": lambda torch: {"world": 3},
    "another interpreter": lambda torch: {"python": f"env {torch.python}"},
    "a variable of the job": lambda torch: {"plan": plan_as_dict(plan(environment="job", variables={"GLOO_X": "1"}))},
    "an interpreter for each rank": lambda torch: {"start": "exec"},
    "ranks that meet elsewhere": lambda torch: {"hosts_store": False},
}


@pytest.mark.parametrize("name", OTHERS)
def test_where_the_order_is_another_one_it_is_ended(torch: FakeTorch, name: str) -> None:
    with Client(listen=True, expected=expected(torch.python)) as client:
        client.until("hello")
        (early,) = torch.pids()
        order = {"python": torch.python, "hosts_store": True, **OTHERS[name](torch)}
        client.start(WAITS, **order)
        for rank in range(order.get("world", 2)):
            client.until("snap", rank=rank, state="collective")
        while Path(f"/proc/{early}").exists():  # until it is reaped
            client.until("snap")
        client.order("end")
        assert client.until("bye")["left"] == []
    assert has_ended(client)


def test_one_that_has_died_is_replaced(tmp_path: Path) -> None:
    """The second one dies in the same way, if there is a reason, and that is reported as of any other."""
    once = tmp_path / "once"
    once.mkdir()
    torch = FakeTorch(tmp_path, f"os.path.isdir({str(once)!r}) and (os.rmdir({str(once)!r}), os._exit(9))")
    with Client(listen=True, expected=expected(torch.python)) as client:
        client.until("hello")
        (early,) = torch.pids()
        stat = Path(f"/proc/{early}/stat")
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":  # its memory goes before
            time.sleep(0.005)
        client.start(SAY_PARENT, python=torch.python, hosts_store=True)
        assert client.until("event", ev="error", rank=0)["text"] == "name 'early_import' is not defined"


def test_the_agent_of_ranks_that_differ_has_no_more_files_open(torch: FakeTorch) -> None:
    counts = []
    for early in (expected(torch.python, 3), None):
        with Client(listen=True, expected=early) as client:
            pid = client.until("hello")["pid"]
            client.start(WAITS, python=torch.python, hosts_store=True)
            client.until("snap", rank=0, state="collective")
            counts.append(len(os.listdir(f"/proc/{pid}/fd")))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("limit", range(11, 25, 2))
def test_what_cannot_be_opened_is_tried_again_when_it_is_ordered(torch: FakeTorch, limit: int) -> None:
    """A limit of open files, which is lifted before the order comes."""
    shell = ("sh", "-c", f'ulimit -S -n {limit}; eval "$1"', "sh")
    with Client(listen=True, expected=expected(torch.python), shell=shell) as client:
        pid = client.until("hello")["pid"]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1024, 1024))
        client.start(WAITS, python=torch.python, hosts_store=True)
        for rank in (0, 1):
            client.until("snap", rank=rank, state="collective")


def test_the_store_is_one_file_for_it_and_for_the_ranks(torch: FakeTorch) -> None:
    listens = (
        "def live(rank, box, say, orders):\n    say('joined', s=socket.socket(fileno=orders['store']).getsockname())\n"
    )
    with Client(listen=True, expected=expected(torch.python)) as client:
        port = client.until("hello")["port"]
        client.start(listens, 2, python=torch.python, hosts_store=True)
        assert client.until("event", ev="joined", rank=1)["s"][1] == port


def test_a_host_where_the_ranks_do_not_meet_starts_none(torch: FakeTorch) -> None:
    with Client(listen=False, expected=expected(torch.python)) as client:
        client.until("hello")
        client.start(WAITS, python=torch.python)
        client.until("snap", rank=0, state="collective")
        assert torch.pids(0) == []


def test_the_agent_ends_it_where_no_order_comes(torch: FakeTorch) -> None:
    with Client(listen=True, expected=expected(torch.python)) as client:
        client.until("hello")
        torch.pids()
        client.order("end")
        assert client.until("bye")["left"] == []
    assert has_ended(client)
    with Client(listen=True, expected=expected(torch.python)) as client:
        client.until("hello")
        torch.pids(2)
    assert has_ended(client)


def run_smoke(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "doctor", "smoke", "--no-history", "--steps", "1", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **environ}, timeout=60)


@pytest.mark.parametrize(
    "text",
    [
        "raise ImportError('libcudnn.so.9: cannot open shared object file')",
        "raise SystemExit('this torch needs a newer driver')",
        "os.kill(os.getpid(), 11)",
        "os.write(2, b'Illegal instruction\\n'); os._exit(132)",
    ],
)
def test_an_import_that_fails_is_reported_as_without_the_early_start(tmp_path: Path, text: str) -> None:
    torch = FakeTorch(tmp_path, text)
    arguments = ["--ranks-per-host", "2", "--python", torch.python, "--json"]
    with_early, without = run_smoke(*arguments), run_smoke(*arguments, "--scope", "local")
    assert with_early.returncode == without.returncode == 10
    messages = [
        re.sub(r'.*"(?:started|seconds|began|at)": .*\n|\d+\.\d+ s', "", done.stdout) for done in (with_early, without)
    ]
    assert findings(messages[0]) == findings(messages[1]) != []


def findings(text: str) -> list[str]:
    return re.findall(r'"(?:message|text)": "(.*)"', text)


class TestTheCommandLine:
    """Which words are known to leave the run on this machine."""

    @pytest.fixture(autouse=True)
    def _nothing_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(early_start, "_started", [])

    @pytest.fixture
    def started(self, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
        """What agents would be started for; none is."""
        expected_ranks: list[dict[str, Any]] = []
        monkeypatch.setattr(early_start, "start_agent", expected_ranks.append)
        return expected_ranks

    def test_its_options_are_those_of_the_command(self) -> None:
        group: Any = get_command(application(["smoke"]))
        by_name = {name: option for option in group.commands["smoke"].params for name in option.opts}
        assert by_name.keys() >= early_start.FLAGS
        assert all(by_name[name].is_flag for name in early_start.FLAGS)
        assert by_name.keys() >= early_start.OPTIONS
        assert not any(by_name[name].is_flag for name in early_start.OPTIONS)

    @pytest.mark.parametrize(
        "message",
        [
            "node1", "--json node1", "--ranks-per-host 2 node1", "--hosts node1", "--hostfile f", "--rank-table t",
            "--master-port 7", "--env clean", "--backend nccl", "--devices 0", "--interface lo", "--select smoke",
            "--ignore x", "--within podman", "--from f", "--like 7", "--help", "--json=x", "--python",
            "-- torchrun x.py", "--ranks-per-host 65", "--ranks-per-host 2x", "--ranks-per-host -1",
            "--ranks-per-host ２", "--stepz 3", "--python /\udcff", "--steps=\x1b[31m",
        ],
    )  # fmt: skip
    def test_whatever_else_there_is_starts_nothing(self, message: str, started: list[dict[str, Any]]) -> None:
        early_start.start_early(message.split(), {})
        assert started == []

    @pytest.mark.parametrize(
        ("message", "ranks"),
        [
            ("", 4),
            ("--json --steps 2", 4),
            ("--ranks-per-host 2 -v", 2),
            ("--ranks-per-host=3", 3),
            ("--layout dp=2 --ranks-per-host 0", 4),
        ],
    )
    def test_how_many_ranks_are_expected(self, message: str, ranks: int, started: list[dict[str, Any]]) -> None:
        early_start.start_early(message.split(), {"GLOO_SOCKET_IFNAME": "lo", "OTHER": "1"})
        assert [
            (expected_ranks["mine"], len(expected_ranks["plan"]["places"]), expected_ranks["plan"]["variables"])
            for expected_ranks in started
        ] == [(list(range(ranks)), ranks, {"GLOO_SOCKET_IFNAME": "lo"})]

    def test_a_usage_error_leaves_no_process(self) -> None:
        done = run_smoke("--steps", "1000", DOCTOR_TEST_MARK="usage")
        assert done.returncode == 2
        assert not [
            path for path in Path("/proc").glob("[0-9]*/environ") if b"DOCTOR_TEST_MARK=usage" in readable(path)
        ]

    @pytest.mark.parametrize(
        "environ",
        [
            {"DOCTOR_HOSTS": "n1"}, {"DOCTOR_HOSTFILE": "f"}, {"RANK_TABLE_FILE": "f"},
            {"SLURM_JOB_ID": "7"}, {"SLURM_JOBID": "7"}, {"PBS_JOBID": "7"}, {"LSB_JOBID": "7"}, {"JOB_ID": "7"},
            {"FLUX_JOB_ID": "f7"}, {"FLUX_ENCLOSING_ID": "f7"}, {"CCS_JOB_ID": "7"}, {"PJM_JOBID": "7"},
            {"COBALT_JOBID": "7"}, {"OAR_JOB_ID": "7"},
        ],
    )  # fmt: skip
    def test_an_environment_with_hosts_starts_nothing(
        self, environ: dict[str, str], started: list[dict[str, Any]]
    ) -> None:
        early_start.start_early([], environ)
        assert started == []

    def test_an_agent_that_is_of_no_use_is_ended(self) -> None:
        """As for a run whose options turn out to name another port."""
        early_start.start_early(["--ranks-per-host", "2"], {})
        (started,) = early_start._started
        assert early_start.take_early({"localhost": 0}, True, 29500) is None
        assert early_start._started == []
        assert started.conversation.code == 3  # it ended all that it had started, as the controller has gone


def readable(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_run_of_this_machine_imports_torch_once(tmp_path: Path) -> None:
    """Its agent is started early, and what is expected is what is ordered."""
    started = tmp_path / "started"
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nif sys.argv[:1] == ['-c']: open({str(started)!r}, 'a').write('%s\\n' % sys.orig_argv)\n"
    )
    done = run_smoke("--ranks-per-host", "2", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout
    interpreters = [line for line in started.read_text().splitlines() if "worker.py" in line]
    assert len(interpreters) == 1
    assert "early_import" in interpreters[0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_signal_before_the_options_are_read_leaves_nothing_behind(number: int, code: int, tmp_path: Path) -> None:
    """The agent is there, and imports torch, while this process still loads its own modules."""
    mark = f"DOCTOR_TEST_MARK=early-{os.getpid()}-{number}"
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'doctor.cli.app':\n"
        "            import time; time.sleep(30)\n"
        "sys.meta_path.insert(0, Slow())\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), **dict([mark.split("=")])}
    process = subprocess.Popen([sys.executable, "-m", "doctor", "smoke"], env=environ, stderr=subprocess.PIPE)

    def marked() -> list[str]:
        return [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if mark.encode() in readable(path)]

    wait_until(lambda: len(marked()) == 3)  # this one, the agent, the interpreter
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == code
    assert b"Traceback" not in stderr
    wait_until(lambda: not marked())


def wait_until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
