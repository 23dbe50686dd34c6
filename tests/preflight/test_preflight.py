"""`doctor preflight` on real hosts, over real SSH: one line, one exit code, in time, whatever happens."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hosts.fleet import Fleet
from tests.preloaded import run

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(120)]
ROOT = Path(__file__).resolve().parents[2]
LAUNCHERS = ("DOCTOR_", "SLURM_", "RANK", "OMPI_", "PMI", "MS_", "VC_", "MA_", "LOCAL_", "WORLD_", "MASTER_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
FAULT = "firewall-blocks-job"
BLOCKED = "nft 'add table inet f; add chain inet f in { type filter hook input priority 0; }; add rule inet f in {}'"
RULE = "tcp dport 29500-60999 drop"
SELECT = ("--select", FAULT)
LINE = re.compile(r"doctor preflight: (OK|WARN|FAIL|UNKNOWN|NOTHING|SKIP) nodes=\d+/\d+ (.* )?exit=\d+ t=[\d.]+s.*")


class Flight:
    """What a preflight came to."""

    def __init__(self, done: subprocess.CompletedProcess[str], seconds: float) -> None:
        self.code, self.out, self.err, self.seconds = done.returncode, done.stdout, done.stderr, seconds
        assert "Traceback" not in self.err

    @property
    def line(self) -> str:
        (line,) = self.out.splitlines()
        assert LINE.fullmatch(line), line
        return line

    @property
    def word(self) -> str:
        return self.line.split()[2]

    @property
    def keys(self) -> dict[str, str]:
        return dict(pair.partition("=")[::2] for pair in self.line.split()[3:])


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(5, {"pre0005": {"fault": "hang"}}, name="pre")


@pytest.fixture
def hosts(fleet: Fleet) -> list[str]:
    """The four that answer."""
    return list(fleet.hosts[:4])


@pytest.fixture
def preflight(fleet: Fleet, hosts: list[str]) -> Callable[..., Flight]:
    def run(
        *arguments: str, env: dict[str, str] | None = None, at: list[str] | None = None, sh: tuple[str, str] = ("", "")
    ) -> Flight:
        argv = [sys.executable, "-m", "doctor", "preflight", ",".join(at or hosts), "-F", str(fleet.ssh_config)]
        argv += [*arguments] if "--select" in arguments else [*SELECT, *arguments]
        if any(sh):
            argv = ["sh", "-c", f"{sh[0]} {shlex.join(argv)} {sh[1]}"]
        began = time.monotonic()
        done = fleet.run(argv, env={**CLEAN, **(env or {})}, cwd=ROOT, timeout=100)
        return Flight(done, time.monotonic() - began)

    return run


@pytest.fixture
def broken(fleet: Fleet, hosts: list[str]) -> Iterator[str]:
    """One host with a firewall in the job's way."""
    with fleet.broken(hosts[1], BLOCKED.replace("{}", RULE)):
        yield hosts[1]


def test_healthy_hosts_are_one_line_and_nothing_else(preflight: Callable[..., Flight], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    flight = preflight("--report", str(report))
    assert (flight.code, flight.word, flight.err) == (0, "OK", "")
    assert flight.keys["nodes"] == "4/4", flight.line
    assert flight.keys["report"] == str(report)
    assert json.loads(report.read_text())["exit"] == 0


def test_a_bad_host_is_named_with_the_check_and_the_fix_goes_to_stderr(
    preflight: Callable[..., Flight], broken: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    flight = preflight("--report", str(report))
    assert (flight.code, flight.word) == (10, "FAIL")
    assert flight.keys["nodes"] == "3/4"
    assert flight.keys["bad"] == broken
    assert flight.keys["why"] == f"{FAULT}:{broken}"
    assert 1 <= len(flight.err.splitlines()) <= 5
    assert "nft" in flight.err
    assert json.loads(report.read_text())["verdict"] == "failed"


def test_a_warning_has_its_fix_on_stderr(preflight: Callable[..., Flight], fleet: Fleet, hosts: list[str]) -> None:
    """The job may start, and whoever reads the line knows what to do."""
    with fleet.broken(hosts[1], "prlimit --pid 1 --nproc=1024:"):
        flight = preflight("--select", "process-limit-low")
    assert (flight.code, flight.word) == (0, "WARN"), flight.line
    assert re.search(r"^warn process-limit-low on .*: .*Fix: .*nproc", flight.err, re.MULTILINE), flight.err
    assert len(flight.err.splitlines()) <= 5


def test_a_shell_that_names_hosts_has_a_tmpdir_of_its_own(preflight: Callable[..., Flight], tmp_path: Path) -> None:
    """Outside a job nothing carries it to other hosts; within one it is missed there."""
    flight = preflight("--select", "disk-full,folder-not-writable", env={"TMPDIR": str(tmp_path)})
    assert (flight.code, flight.word, flight.err) == (0, "OK", ""), flight.line


@pytest.mark.parametrize(("is_apart", "word"), [(True, "WARN"), (False, "OK")])
def test_the_namespaces_of_the_process_of_like_are_judged(is_apart: bool, word: str) -> None:
    """Seen: without --scope local doctor's own network was judged, and that of the job has no loopback."""
    argv = [*(["unshare", "--net"] if is_apart else []), "sh", "-c", "echo started; exec sleep 60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        line = [sys.executable, "-m", "doctor", "preflight", "--like", str(process.pid), "--select", "loopback-down"]
        done = run(line, env=CLEAN, cwd=ROOT, capture_output=True, text=True, timeout=60)
        process.kill()
    assert done.stdout.split()[2] == word, done


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("export TMPDIR=/proc/none\nLAUNCH", "WARN"),
        ("export TMPDIR=FOLDER\nmkdir -p $TMPDIR\nLAUNCH", "OK"),
        ("export TMPDIR=FOLDER\nsource prepare.sh\nLAUNCH", "OK"),
        ("env TMPDIR=/proc/none LAUNCH", "WARN"),
        ("export TMPDIR=/tmp\nLAUNCH", "OK"),
    ],
)
def test_the_tmpdir_of_a_script_is_the_jobs_where_nothing_before_the_launch_may_make_it(
    tmp_path: Path, script: str, word: str
) -> None:
    """Seen: that of the shell was judged."""
    text = script.replace("FOLDER", str(tmp_path / "made")).replace("LAUNCH", "torchrun --nproc-per-node 2 t.py")
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{text}\n")
    (tmp_path / "t.py").touch()
    line = [sys.executable, "-m", "doctor", "preflight", "--select", "folder-not-writable", "--job-script", "job.sh"]
    environ = {**CLEAN, "PYTHONPATH": str(ROOT), "TMPDIR": "/tmp"}
    done = run(line, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[2] == word, done


def test_the_hosts_of_a_saved_environment_are_those_of_the_job(tmp_path: Path) -> None:
    """Seen: this host alone was checked, and the job of two others might start."""
    saved = tmp_path / "job.env"
    line = [sys.executable, "-m", "doctor", "preflight", "--env-file", str(saved), "--select", "host-unreachable"]
    for text, expected in (
        ("SLURM_JOB_ID=5\nSLURM_JOB_NODELIST=x[1-2].invalid\nSLURM_JOB_NUM_NODES=2\n", ("FAIL", "nodes=0/2")),
        ("RANK=0\nWORLD_SIZE=4\nMASTER_ADDR=10.0.0.1\nMASTER_PORT=29500\n", ("UNKNOWN", "nodes=1/1")),
        ("RANK=0\nWORLD_SIZE=4\nMASTER_ADDR=127.0.0.1\nMASTER_PORT=29500\n", ("OK", "nodes=1/1")),
    ):
        saved.write_text(text)
        done = run(line, env=CLEAN, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert tuple(done.stdout.split()[2:4]) == expected, done


def test_quiet_says_the_line_alone(preflight: Callable[..., Flight], broken: str) -> None:
    flight = preflight("--quiet")
    assert (flight.code, flight.err) == (10, "")


def test_the_budget_is_hard_and_what_did_not_answer_is_unknown(
    preflight: Callable[..., Flight], fleet: Fleet, tmp_path: Path
) -> None:
    """One host hangs in its login for ever."""
    report = tmp_path / "report.json"
    flight = preflight("--budget", "9s", "--report", str(report), at=list(fleet.hosts))
    assert (flight.code, flight.word) == (12, "UNKNOWN")
    assert float(flight.keys["t"][:-1]) <= 9.5
    assert flight.seconds < 14
    assert flight.keys["nodes"] == "4/5"
    document = json.loads(report.read_text())
    evaluated_hosts = next(outcome for outcome in document["outcomes"] if outcome["check"] == FAULT)["evaluated_hosts"]
    assert evaluated_hosts == list(fleet.hosts[:4])


def test_a_code_for_the_scheduler(preflight: Callable[..., Flight], broken: str) -> None:
    assert preflight("--fail-exit", "200").keys["exit"] == "200"
    assert preflight("--fail-exit", "200").code == 200
    assert preflight("--exit-style", "nagios").code == 2


def test_enough_healthy_hosts_are_enough(
    preflight: Callable[..., Flight], broken: str, hosts: list[str], tmp_path: Path
) -> None:
    good, bad = tmp_path / "nodes", tmp_path / "bad"
    arguments = ["--write-nodes", str(good), "--write-bad", str(bad)]
    flight = preflight("--need", "3", *arguments)
    assert (flight.code, flight.word) == (0, "OK")
    assert (flight.keys["nodes"], flight.keys["need"], flight.keys["bad"]) == ("3/4", "3", broken)
    assert good.read_text().split() == [host for host in hosts if host != broken]
    assert bad.read_text().split() == [broken]
    assert preflight("--need", "2", *arguments).code == 0
    assert good.read_text().split() == [hosts[0], hosts[2]]
    assert preflight("--need", "4", *arguments).code == 10


def test_a_host_that_hangs_is_left_out_and_the_rest_is_enough(
    preflight: Callable[..., Flight], fleet: Fleet, hosts: list[str], tmp_path: Path
) -> None:
    """Also where a second round is due: the first one leaves it its time."""
    good, bad = tmp_path / "nodes", tmp_path / "bad"
    arguments = ["--need", "4", "--budget", "15s", "--write-nodes", str(good), "--write-bad", str(bad)]
    flight = preflight(*arguments, "--select", "kernel", "--select", "versions", at=list(fleet.hosts))
    assert (flight.code, flight.word, flight.keys["nodes"]) == (0, "OK", "4/5"), flight.err
    assert flight.keys["unknown"].endswith(":pre0005")
    assert (good.read_text().split(), bad.read_text().split()) == (hosts, ["pre0005"])


@pytest.mark.parametrize(("options", "text"), [("size=64k", "are free"), ("ro", "is on a read-only file system")])
def test_the_jobs_own_folders_are_checked_on_every_host(
    preflight: Callable[..., Flight], fleet: Fleet, hosts: list[str], options: str, text: str
) -> None:
    """Of the job in which it runs, also over SSH, where a login shell knows nothing of them."""
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": ",".join(hosts), "TMPDIR": "/scratch"}
    fill = "; head -c 65536 /dev/zero >/scratch/full || true" if options != "ro" else ""
    with fleet.broken(hosts[2], f"mkdir /scratch && mount -t tmpfs -o {options} tmpfs /scratch{fill}"):
        flight = preflight("--select", "disk-full,folder-not-writable", env=job)
    assert (flight.code, flight.keys["bad"]) == (10, hosts[2]), flight.line
    assert "/scratch" in flight.err
    assert text in flight.err


SCONTROL = """#!/bin/sh
echo "NodeName=pre-rack1 NodeAddr={0} NodeHostName=x State=ALLOCATED"
echo "NodeName=pre-rack2 NodeAddr={1} NodeHostName=y State=ALLOCATED"
"""


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
def test_slurms_names_of_nodes_that_are_no_host_names(
    fleet: Fleet, hosts: list[str], tmp_path: Path, transport: str
) -> None:
    """They are reached by their NodeAddr, and called by their names."""
    (tmp_path / "scontrol").write_text(SCONTROL.format(*(fleet.addresses[host] for host in hosts)))
    (tmp_path / "scontrol").chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "pre-rack[1-2]", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    arguments = ["preflight", "-F", str(fleet.ssh_config), "--transport", transport, *SELECT]
    done = fleet.run([sys.executable, "-m", "doctor", *arguments], env={**CLEAN, **job}, cwd=ROOT, timeout=100)
    flight = Flight(done, 0.0)
    assert (flight.code, flight.keys["nodes"]) == (0, "2/2"), flight.err


def test_a_list_on_stdout_stands_there_alone(preflight: Callable[..., Flight], hosts: list[str]) -> None:
    flight = preflight("--write-nodes", "-")
    assert (flight.code, flight.out.split()) == (0, hosts)
    assert LINE.fullmatch(flight.err.splitlines()[0])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--write-nodes", "{0}/a", "--write-bad", "{0}/link/a"),
        ("--write-nodes", "{0}/old", "--write-bad", "{0}/other"),
        ("--write-nodes", "-", "--write-bad", "-"),
        ("--report", "{0}/a", "-f", "junit={0}/./a"),
        ("--save", "{0}/a", "--report", "{0}/a"),
    ],
)
def test_two_outputs_in_one_file_are_refused(
    preflight: Callable[..., Flight], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "link").symlink_to(".")
    (tmp_path / "old").write_text("")
    (tmp_path / "other").hardlink_to(tmp_path / "old")
    flight = preflight(*(word.format(tmp_path) for word in arguments))
    assert (flight.code, flight.out) == (2, "")
    assert "expected a separate file for each" in flight.err


@pytest.mark.parametrize("option", ["--write-nodes", "--report"])
def test_a_file_that_hangs_does_not_take_the_verdict_with_it(
    preflight: Callable[..., Flight], tmp_path: Path, option: str
) -> None:
    """A pipe whose reader reads nothing. What was evaluated stands; without its list, no job may start."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 65536)
    flight = preflight("--budget", "20s", option, str(tmp_path / "pipe"))
    os.close(reader)
    os.close(writer)
    assert flight.keys["nodes"] == "4/4", flight.line
    assert flight.code == (12 if option == "--write-nodes" else 0)
    assert flight.seconds < 30


def test_a_list_that_cannot_be_written_starts_no_job(
    preflight: Callable[..., Flight], broken: str, tmp_path: Path
) -> None:
    """A script that starts by the list would start by an old one."""
    flight = preflight("--need", "3", "--write-nodes", str(tmp_path / "no" / "nodes"))
    assert (flight.code, flight.word) == (12, "UNKNOWN")
    assert "it was not written" in flight.err


def test_what_is_skipped_leaves_its_trace(preflight: Callable[..., Flight], broken: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    flight = preflight("--report", str(report), env={"DOCTOR_SKIP": FAULT})
    assert (flight.code, flight.keys["skip"]) == (0, FAULT)
    assert "DOCTOR_SKIP" in report.read_text()
    flight = preflight("--report", str(report), env={"DOCTOR_SKIP": "all"})
    assert (flight.code, flight.word, flight.keys["skip"]) == (0, "SKIP", "all")
    assert "DOCTOR_SKIP" in report.read_text()


def test_a_slip_in_what_is_to_be_skipped_starts_no_job(preflight: Callable[..., Flight]) -> None:
    flight = preflight(env={"DOCTOR_SKIP": "firewall-blocks-jbo"})
    assert (flight.code, flight.word) == (78, "NOTHING")
    assert FAULT in flight.err


def test_every_format_goes_to_a_file(preflight: Callable[..., Flight], broken: str, tmp_path: Path) -> None:
    formats = ("human", "plain", "oneline", "json", "jsonl", "md", "junit", "prometheus")
    flight = preflight(*(word for name in formats for word in ("-f", f"{name}={tmp_path / name}")))
    assert flight.code == 10
    assert flight.line
    for name in formats:
        assert FAULT in (tmp_path / name).read_text().replace("_", "-"), name
    events = [json.loads(text) for text in (tmp_path / "jsonl").read_text().splitlines()]
    assert (events[0]["event"], events[-1]["event"]) == ("start", "end")
    assert preflight("-f", "md").code == 2


def test_names_can_be_kept_back(preflight: Callable[..., Flight], broken: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    flight = preflight("--redact", "--report", str(report), env={"XDG_STATE_HOME": str(tmp_path / "state")})
    assert flight.code == 10
    for text in (flight.out, flight.err, report.read_text()):
        assert broken not in text
        assert "10.77." not in text


def test_a_waiver_is_counted(preflight: Callable[..., Flight], broken: str, tmp_path: Path) -> None:
    settings = tmp_path / "doctor.toml"
    waiver = f'[[waive]]\ncheck = "{FAULT}"\nhosts = "{broken}"\nreason = "small host"\nuntil = '
    settings.write_text(waiver + "2999-12-31\n")
    flight = preflight("--config", str(settings))
    assert (flight.code, flight.word, flight.keys["waived"]) == (0, "OK", "1")
    settings.write_text(waiver + "2020-01-01\n")
    assert preflight("--config", str(settings)).code == 10


def test_bad_input_is_said_in_the_line_too(preflight: Callable[..., Flight]) -> None:
    flight = preflight("--exclude", "pre[0001-0005]")
    assert (flight.code, flight.word) == (78, "NOTHING")
    assert flight.keys["why"] == "bad-input"
    assert "expected at least one host" in flight.err


class TestKilledAtAnyMoment:
    """One line, the right exit code, and a report that is whole or absent: never that of an earlier run."""

    @pytest.mark.parametrize(
        ("number", "moment"),
        [
            (signal.SIGTERM, 0.0),
            (signal.SIGTERM, 0.3),
            (signal.SIGINT, 0.6),
            (signal.SIGUSR1, 0.2),
            (signal.SIGQUIT, 0.8),
            (signal.SIGTERM, 1.0),
        ],
    )
    def test_by_a_signal(self, fleet: Fleet, tmp_path: Path, number: signal.Signals, moment: float) -> None:
        report = tmp_path / "report.json"
        report.write_text('{"exit": 0, "outcomes": []}')
        argv = [sys.executable, "-m", "doctor", "preflight", ",".join(fleet.hosts), "-F", str(fleet.ssh_config)]
        argv += [*SELECT, "--report", str(report)]
        process = subprocess.Popen(
            fleet.argv(argv), env=CLEAN, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        child = _descendant(process)
        time.sleep(moment)
        os.kill(child, number)
        out, err = process.communicate(timeout=30)
        assert "Traceback" not in err
        assert LINE.fullmatch(out.strip()), out
        assert f"exit={128 + number} " in out
        assert process.returncode == 128 + number
        if report.exists():
            full = json.loads(report.read_text())
            assert {outcome["status"] for outcome in full["outcomes"]} <= {"failed", "passed", "unknown", "skipped"}
            assert full["exit"] == 128 + number
        else:
            assert f"nodes=0/{len(fleet.hosts)} why=interrupted" in out

    def test_no_room_for_the_report(self, preflight: Callable[..., Flight], broken: str, tmp_path: Path) -> None:
        """On a real file system of one page, which is taken."""
        mounted = f"mount -t tmpfs -o size=4k tmpfs {tmp_path} && head -c 4096 /dev/zero >{tmp_path}/taken &&"
        after = f"; code=$?; ls -A {tmp_path} >&2; umount {tmp_path}; exit $code"
        flight = preflight("--quiet", "--report", str(tmp_path / "report.json"), sh=(mounted, after))
        assert flight.code == 10
        assert flight.err.splitlines() == [
            f"doctor: --report {tmp_path}/report.json: No space left on device; it was not written",
            "taken",
        ]
        assert "report" not in flight.keys

    def test_no_home_no_terminal_no_stdin(self, preflight: Callable[..., Flight], broken: str) -> None:
        flight = preflight(env={"HOME": "/proc/nowhere", "TERM": "dumb"}, sh=("", "</dev/null"))
        assert (flight.code, flight.word) == (10, "FAIL")

    @pytest.mark.parametrize("closed", [">&-", "2>&-", ">/dev/full", "2>/dev/full", "| true"])
    def test_nobody_listens(self, preflight: Callable[..., Flight], broken: str, closed: str, tmp_path: Path) -> None:
        report = tmp_path / "report.json"
        flight = preflight("--report", str(report), sh=("", f"{closed}; echo code=$? >&2"))
        assert json.loads(report.read_text())["exit"] == 10
        if "|" not in closed and "2>" not in closed:
            assert "code=10" in flight.err


def _descendant(process: subprocess.Popen[str]) -> int:
    """The Python program behind whatever enters the hub's namespaces, once it listens to signals."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(OSError):
            pid = process.pid
            while pid and not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(os.fsencode(sys.executable)):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                pid = int(children[0]) if children else 0
            caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.M)
            if pid and caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
                return pid
        time.sleep(0.005)
    raise TimeoutError


def test_an_unfinished_rank_table_is_waited_for_and_then_unknown(fleet: Fleet, tmp_path: Path) -> None:
    """As MindCluster's operator mounts it, before it knows all devices."""
    table = tmp_path / "hccl.json"
    table.write_text('{"status": "initializing", "server_list": [], "server_count": "0", "version": "1.0"}')
    argv = [sys.executable, "-m", "doctor", "preflight", "--budget", "4s", *SELECT]
    env = {**CLEAN, "RANK_TABLE_FILE": str(table)}
    flight = Flight(fleet.run(argv, env=env, cwd=ROOT), 0.0)
    assert (flight.code, flight.word) == (12, "UNKNOWN")
    assert 'its status is "initializing"' in flight.err
    assert float(flight.keys["t"][:-1]) < 4


def test_the_smoke_tier_trains(fleet: Fleet, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch for the ranks")
    report = tmp_path / "report.json"
    arguments = ["--tier", "smoke", "--ranks-per-host", "2", "--python", sys.executable, "--report", str(report)]
    done = subprocess.run(
        [sys.executable, "-m", "doctor", "preflight", *arguments, "--select", "smoke"],
        cwd=ROOT,
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=110,
    )
    flight = Flight(done, 0.0)
    assert (flight.code, flight.keys["tier"]) == (0, "smoke"), flight.err
    outcomes = {outcome["check"]: outcome["status"] for outcome in json.loads(report.read_text())["outcomes"]}
    assert outcomes["smoke-mask-differs"] == "passed"


HANGING = """
import os, sys
opened = os.open
os.open = lambda path, flags, *rest, **more: opened(
    path, flags & ~os.O_NONBLOCK if os.fspath(path) == sys.argv[3] else flags, *rest, **more
)
from doctor.cli.main import main
main()
"""
"""The program, for which to open the file of its third argument takes for ever."""


def test_a_file_system_that_hangs_ends_with_the_budget(tmp_path: Path) -> None:
    """A pipe that nobody writes to, in place of a hostfile on a server that is gone.

    An eighth of the budget is for the report: of two seconds a busy machine needs more, and the line goes first.
    """
    os.mkfifo(tmp_path / "hosts")
    report = tmp_path / "report.json"
    argv = [sys.executable, "-c", HANGING, "preflight", "--hostfile", str(tmp_path / "hosts"), "--budget", "8s"]
    done = subprocess.run(
        [*argv, "--report", str(report)], cwd=ROOT, env=CLEAN, capture_output=True, text=True, timeout=60
    )
    flight = Flight(done, 0.0)
    assert (flight.code, flight.word, flight.keys["why"]) == (12, "UNKNOWN", "budget-ended")
    assert json.loads(report.read_text())["exit"] == 12
