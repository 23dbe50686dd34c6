"""The command as a script and a person meet it: exit codes, one line for bad input, nothing lost on the way out."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded

ROOT = Path(__file__).resolve().parents[1]
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("DOCTOR_", "SLURM_", "RANK_", "HCCL_", "MASTER_", "NO_COLOR", "FORCE_COLOR", "PYTHONUTF8"))
} | {"PYTHONPATH": str(ROOT)}


def doctor(*arguments: str, env: dict[str, str] | None = None, **more: Any) -> subprocess.CompletedProcess[bytes]:
    more.setdefault("capture_output", True)
    return preloaded.run(
        [sys.executable, "-m", "doctor", *arguments], cwd=ROOT, env={**CLEAN, **(env or {})}, timeout=100, **more
    )


SITE = '''
from collections.abc import Iterator
from doctor import {severity}, Finding, check
from doctor.engine.fact import Fact, ProbeAnswer, run

class Said(Fact, frozen=True):
    """What a command said."""
    probe = run({command!r}, timeout=600)
    text: str

    @classmethod
    def read(cls, answer: ProbeAnswer) -> "Said":
        return cls(text=answer.text())

@check(severity={severity})
def our_rule(said: Said) -> Iterator[Finding]:
    """Every host says yes."""
    {body}
    if said.text != "yes\\n":
        yield Finding("it said {{text}}", text=said.text)
'''


@pytest.fixture
def site(tmp_path: Path) -> Any:
    """Makes a folder with one check whose fact is what a command says."""

    def make(command: str, severity: str = "ERROR", body: str = "pass") -> list[str]:
        folder = tmp_path / "site"
        folder.mkdir(exist_ok=True)
        (folder / "our_rule.py").write_text(SITE.format(command=command, severity=severity, body=body))
        return ["--checks", str(folder), "--select", "our-rule"]

    return make


class TestExitCodes:
    def test_healthy_is_0(self, site: Any) -> None:
        assert doctor("check", *site("echo yes")).returncode == 0

    def test_what_was_asked_for_and_does_not_apply_is_78(self, site: Any) -> None:
        """That the host answered, which nobody asked, is no verdict on the check."""
        arguments = site("echo yes", body="from doctor import Skip; raise Skip('no')")
        for more, code in (([], 78), (["--select", "host-unreachable"], 0), (["--on-unknown", "ok"], 78)):
            done = doctor("check", *arguments, *more)
            assert done.returncode == code, done
        assert b"NOTHING: none of 1 check applies" in doctor("check", *arguments).stdout

    def test_failed_is_10(self, site: Any) -> None:
        assert doctor("check", *site("echo no")).returncode == 10

    def test_a_warning_is_0_and_with_strict_11_and_10_where_warnings_fail(self, site: Any) -> None:
        arguments = site("echo no", severity="WARNING")
        assert doctor("check", *arguments).returncode == 0
        assert doctor("check", *arguments, "--strict").returncode == 11
        assert doctor("check", *arguments, "--fail-on", "warning").returncode == 10

    def test_unknown_is_12_unless_it_is_allowed(self, site: Any) -> None:
        arguments = site("exit 3")
        assert doctor("check", *arguments).returncode == 12
        assert doctor("check", *arguments, "--on-unknown", "ok").returncode == 0
        assert doctor("check", *arguments, "--on-unknown", "warn", "--strict").returncode == 11

    def test_a_check_that_breaks_is_unknown_never_healthy(self, site: Any) -> None:
        assert doctor("check", *site("echo yes", body="1 / 0")).returncode == 12

    @pytest.mark.parametrize(
        "arguments",
        [
            ("check", "--no-such-option"),
            ("check", "--select", "no-such-check"),
            ("check", "--transport", "telnet"),
            ("check", "a", "--hosts", "b"),
            ("check", "--timeout", "soon"),
            ("check", "--timeout", "nan"),
            ("check", "--budget", "nan"),
            ("check", "--connect-timeout", "inf"),
            ("smoke", "--budget", "nan"),
            ("check", "n1", "--hostfile", "hosts"),
            ("check", "--hosts", "n1", "--hostfile", "hosts"),
            ("check", "--within", "docker exec 'x"),
            ("check", "--smoke", "--no-hosts", "--rank-table", "/etc/hostname"),
            ("no-such-command",),
            ("explain", "no-such-check"),
        ],
    )
    def test_usage_is_2(self, arguments: tuple[str, ...]) -> None:
        done = doctor(*arguments)
        assert done.returncode == 2
        assert b"Traceback" not in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "output"),
        [
            (("check", "node[1-"), "node[1-"),
            (("check", ""), ""),
            (("check", "a,a"), "a"),
            (("check", "$(reboot)"), "$(reboot)"),
            (("check", "--hostfile", "/nowhere/at/all"), "/nowhere/at/all"),
            (("check", "--rank-table", "/nowhere/at/all"), "/nowhere/at/all"),
            (("check", "--no-hosts"), "--rank-table FILE"),
            (("check", "--from", "/nowhere/at/all"), "/nowhere/at/all"),
            (("check", "--from", "/etc/hostname"), "not a saved run"),
            (("check", "--checks", "/nowhere/at/all"), "/nowhere/at/all"),
        ],
    )
    def test_nothing_to_check_or_unreadable_input_is_78_and_one_line(
        self, arguments: tuple[str, ...], output: str
    ) -> None:
        done = doctor(*arguments)
        assert done.returncode == 78
        assert done.stdout == b""
        assert done.stderr.decode().count("\n") == 1
        assert output in done.stderr.decode()

    @pytest.mark.parametrize("command", ["check", "smoke", "preflight", "fix", "rank-table"])
    @pytest.mark.parametrize(
        ("arguments", "option"),
        [
            (("n1", "-F", "/no/such/config"), "-F /no/such/config: No such file"),
            (("n1", "-i", "/no/such/key"), "-i /no/such/key: No such file"),
            (("--rank-table", "/no/such/table"), "/no/such/table: No such file"),
        ],
    )
    def test_a_file_that_the_caller_named_wrongly_is_no_finding_about_the_cluster(
        self, command: str, arguments: tuple[str, ...], option: str
    ) -> None:
        arguments = arguments if command not in ("fix",) or arguments[0] != "n1" else ("-w", *arguments)
        done = doctor(command, *arguments)
        assert done.returncode == 78, done
        assert option in done.stderr.decode()
        assert done.stderr.decode().count("\n") == 1

    @pytest.mark.parametrize(
        "arguments",
        [
            ("check", "--save", "/no/such/folder/run.json"),
            ("check", "-f", "junit=/no/such/folder/x.xml"),
            ("check", "--no-hosts", "--rank-table", "/no/such/table"),
            ("check", "n1", "--rank-table", "/no/such/table"),
            ("smoke", "-f", "json=/proc/1/x"),
            ("node", "--save", "/no/such/folder/x"),
            ("preflight", "--report", "/no/such/folder/x"),
            ("preflight", "n1", "--rank-table", "/no/such/table"),
            ("preflight", "--save", "/"),
        ],
    )
    def test_a_file_that_cannot_be_there_is_found_before_anything_is_done(self, arguments: tuple[str, ...]) -> None:
        done = doctor(*arguments)
        assert done.returncode == 78, done
        assert re.search(r"No such file|is a folder|is not writable", done.stderr.decode())
        assert done.stdout.decode().startswith("doctor preflight: NOTHING " if arguments[0] == "preflight" else "")
        assert arguments[0] == "preflight" or not done.stdout

    def test_our_own_bug_is_70_one_line_and_a_file(self, tmp_path: Path) -> None:
        code = (
            "import doctor.cli.main as cli\n"
            "def broken(): raise KeyError('token=abc')\n"
            "cli.run_fast_path = lambda words: broken()\n"
            "cli.main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={**CLEAN, "TMPDIR": str(tmp_path)}, capture_output=True
        )
        assert done.returncode == 70
        assert done.stderr.decode().count("\n") == 1
        (file,) = tmp_path.iterdir()
        assert str(file) in done.stderr.decode()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "KeyError" in file.read_text()
        assert "abc" not in file.read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_run_with_the_partial_report(site: Any, tmp_path: Path, number: int, code: int) -> None:
    arguments = site(f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    process = subprocess.Popen(
        [sys.executable, "-m", "doctor", "check", "--json", *arguments], cwd=ROOT, env=CLEAN, stdout=-1, stderr=-1
    )
    deadline = time.monotonic() + 50
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=50)
    assert process.returncode == code
    assert json.loads(out)["outcomes"][-1]["status"] == "unknown"
    assert b"Traceback" not in err
    pid = int((tmp_path / "pid").read_text())
    while running(pid):
        assert time.monotonic() < deadline, "the probe is still running"
        time.sleep(0.01)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class TestOutput:
    def test_json_is_one_document_on_stdout_also_on_failure(self, site: Any) -> None:
        done = doctor("check", "--json", *site("echo no"))
        report = json.loads(done.stdout)
        assert report["schema"] == "doctor.report/1"
        assert (report["exit"], done.returncode) == (10, 10)

    def test_a_reader_that_has_gone_changes_no_exit_code(self, site: Any) -> None:
        read, write = os.pipe()
        os.close(read)
        done = doctor("check", *site("echo no"), capture_output=False, stdout=write, stderr=-1)
        os.close(write)
        assert (done.returncode, done.stderr) == (10, b"")

    def test_a_closed_stdout_changes_no_exit_code(self, site: Any) -> None:
        message = " ".join(f"'{word}'" for word in ("check", *site("echo no")))
        done = subprocess.run(
            ["sh", "-c", f"'{sys.executable}' -m doctor {message} >&-"], cwd=ROOT, env=CLEAN, capture_output=True
        )
        assert done.returncode == 10
        assert b"Traceback" not in done.stderr

    def test_a_full_stdout_is_said_and_changes_no_exit_code(self, site: Any) -> None:
        with open("/dev/full", "wb") as full:
            done = doctor("check", *site("echo no"), capture_output=False, stdout=full, stderr=-1)
        assert done.returncode == 10
        assert b"No space left on device" in done.stderr

    @pytest.mark.parametrize(
        "message",
        ["--version", "--help", "check --help", "list", "explain listen-queue-short", "history", "probe --print"],
    )
    def test_no_command_whose_output_is_lost_ends_with_0(self, message: str) -> None:
        with open("/dev/full", "wb") as full:
            done = doctor(*message.split(), capture_output=False, stdout=full, stderr=-1)
        assert (done.returncode, done.stderr) == (78, b"doctor: stdout: No space left on device\n")

    @pytest.mark.parametrize("message", ["--version", "list", "explain listen-queue-short"])
    def test_a_closed_stdout_is_no_success(self, message: str) -> None:
        command = ["sh", "-c", f"'{sys.executable}' -m doctor {message} >&-"]
        done = subprocess.run(command, cwd=ROOT, env=CLEAN, capture_output=True)
        assert (done.returncode, done.stderr) == (78, b"doctor: stdout: Bad file descriptor\n")

    def test_a_healthy_report_that_is_lost_is_no_success(self, site: Any) -> None:
        with open("/dev/full", "wb") as full:
            done = doctor("check", *site("echo yes"), capture_output=False, stdout=full, stderr=-1)
        assert done.returncode == 78

    @pytest.mark.parametrize(("profile", "code"), [("job", 78), ("prolog", 0)])
    def test_a_preflight_whose_line_is_lost(self, profile: str, code: int) -> None:
        arguments = ("preflight", "--scope", "local", "--select", "python3-missing", "--profile", profile)
        with open("/dev/full", "wb") as full:
            done = doctor(*arguments, capture_output=False, stdout=full, stderr=-1)
        assert done.returncode == code

    @pytest.mark.parametrize("encoding", ["ascii", "gbk", "latin-1", "utf-8"])
    def test_any_encoding_of_stdout_will_do(self, site: Any, encoding: str) -> None:
        arguments = site("printf '\\342\\234\\223 \\346\\227\\245 \\033[31mred\\033[0m [bold]x[/bold]'")
        done = doctor("check", *arguments, env={"PYTHONIOENCODING": encoding})
        assert done.returncode == 10
        text = done.stdout.decode(encoding)
        assert "\x1b" not in text
        assert "[bold]x[/bold]" in text

    def test_a_pipe_has_no_colour_and_no_progress(self, site: Any) -> None:
        done = doctor("check", *site("echo no"))
        assert b"\x1b" not in done.stdout + done.stderr

    def test_the_source_of_the_hosts_is_always_said(self, site: Any) -> None:
        assert b"this host alone" in doctor("check", *site("echo yes")).stdout


class TestSavedRuns:
    def test_a_saved_run_is_judged_to_the_same_outcomes(self, site: Any, tmp_path: Path) -> None:
        arguments = site("echo no")
        live = json.loads(doctor("check", "--json", "--save", str(tmp_path / "run"), *arguments).stdout)
        again = doctor("check", "--json", "--from", str(tmp_path / "run"), *arguments)
        assert again.returncode == 10
        assert json.loads(again.stdout)["outcomes"] == live["outcomes"]

    def test_it_is_private_and_holds_no_secret(self, site: Any, tmp_path: Path) -> None:
        doctor("check", "--save", str(tmp_path / "run"), *site("echo password=hunter2"))
        assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o600
        assert "hunter2" not in (tmp_path / "run").read_text()

    def test_a_fact_that_was_not_asked_for_is_unknown(self, site: Any, tmp_path: Path) -> None:
        doctor("check", "--save", str(tmp_path / "run"), "--select", "host-unreachable")
        assert doctor("check", "--from", str(tmp_path / "run"), *site("echo yes")).returncode == 12


def test_a_dead_budget_is_unknown_and_says_so(site: Any) -> None:
    done = doctor("check", "--json", "--budget", "0.8", *site("sleep 1000"))
    assert done.returncode == 12
    assert json.loads(done.stdout)["outcomes"][-1]["status"] == "unknown"


@pytest.mark.parametrize(("arguments", "title"), [([], "Commands:"), (["--lang", "zh"], "命令：")])
def test_without_a_command_the_help_is_the_error(arguments: list[str], title: str) -> None:
    done = preloaded.run([sys.executable, "-m", "doctor", *arguments], capture_output=True, text=True, check=False)
    asked = preloaded.run([sys.executable, "-m", "doctor", "--help", *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", asked.stdout)
    assert title in done.stderr


def test_list_and_explain_speak_of_every_check(site: Any) -> None:
    names = [check["name"] for check in json.loads(doctor("list", "--json").stdout)["checks"]]
    listing = doctor("list").stdout.decode()
    assert all(name in listing for name in names)
    page = doctor("explain", "host-unreachable").stdout.decode()
    assert "Why it matters" in page


def test_explain_shows_every_command_that_runs_on_the_hosts(site: Any) -> None:
    folder = site("echo yes | tr a-z A-Z")[1]
    page = doctor("explain", "our-rule", "--checks", folder).stdout.decode()
    assert "echo yes | tr a-z A-Z" in page


def test_a_signal_after_the_line_of_a_preflight_changes_no_exit_code() -> None:
    """The interpreter takes its handlers down some time before the process is gone."""
    program = """
import atexit, os, signal, sys
sys.argv[1:] = ["preflight", "--help"]
atexit.register(os.kill, os.getpid(), signal.SIGTERM)
from doctor.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, capture_output=True)
    assert done.returncode == 0


def test_a_signal_after_the_line_of_a_preflight_reaches_no_other_thread() -> None:
    """A thread that waits for a host does not block what the main thread blocks."""
    program = """
import os, signal, threading, time
from doctor.engine import interrupts
from doctor.preflight import early_end
early_end.install(["preflight"])
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
interrupts.hold(["preflight"])
for number in interrupts.STOP_SIGNALS:  # as the interpreter does at its end
    if callable(signal.getsignal(number)):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
os._exit(7)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, capture_output=True)
    assert (done.returncode, done.stderr) == (7, b"")


def test_a_signal_in_the_middle_of_an_import_counts_the_hosts() -> None:
    """The interrupted thread holds the lock of a module that whoever reads the list of hosts needs."""
    program = """
import os, signal, sys
from doctor.preflight import early_end
class Strikes:
    def find_spec(self, name, path=None, target=None):
        if name == "doctor.engine.addresses":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Strikes())
early_end.install(["preflight", "n[1-2],n3"])
import doctor.hosts.nodeset
early_end.wait_for_end()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, capture_output=True, text=True)
    assert done.returncode == 143
    assert re.fullmatch(r"doctor preflight: UNKNOWN nodes=0/3 why=interrupted exit=143 t=\S+s\n", done.stdout)


@pytest.mark.parametrize("language", [[], ["--lang", "en"], ["--lang=zh"]])
def test_a_preflight_is_guarded_from_its_first_moment_in_any_language(language: list[str]) -> None:
    """Seen: with ``--lang`` before the command an early signal left no line."""
    program = """
import os, sys
from doctor.preflight import early_end
early_end.install = lambda argv: os._exit(7 if argv == ["preflight", "n1"] else 1)
from doctor.cli.main import main
main()
"""
    words = [sys.executable, "-c", program, *language, "preflight", "n1"]
    assert subprocess.run(words, cwd=ROOT, timeout=60, capture_output=True).returncode == 7


def test_words_behind_the_two_dashes_are_no_options_of_a_preflight_that_is_stopped(tmp_path: Path) -> None:
    """Seen: the file of the training's own ``--report`` was removed as an earlier report."""
    results, report = tmp_path / "results.json", tmp_path / "report.json"
    program = """
import os, signal, sys
from doctor.preflight import early_end
early_end.install(sys.argv[1:])
os.kill(os.getpid(), signal.SIGTERM)
early_end.wait_for_end()
"""
    for file in (results, report):
        file.touch()
    line = ["preflight", "--report", str(report), "--", "python3", "train.py", "--report", str(results)]
    line += ["--fail-exit", "7", "--profile", "prolog"]
    done = subprocess.run([sys.executable, "-c", program, *line], cwd=ROOT, timeout=60, capture_output=True)
    assert (done.returncode, results.exists(), report.exists()) == (143, True, False)


@pytest.mark.parametrize("moment", ["Deadline", "PreflightReporter"])
def test_a_signal_while_a_preflight_prepares_itself_leaves_its_line(moment: str) -> None:
    program = f"""
import os, signal, sys
from doctor.preflight import early_end
sys.argv[1:] = ["preflight", "--scope", "local"]
early_end.install(sys.argv[1:])
from doctor.preflight import run
made = run.{moment}
def strike(*arguments):
    try:
        return made(*arguments)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
run.{moment} = strike
from doctor.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, capture_output=True, text=True)
    assert done.returncode == 130
    assert re.fullmatch(r"doctor preflight: UNKNOWN nodes=0/1 why=interrupted exit=130 t=\S+s\n", done.stdout)


def test_a_signal_ends_it_even_where_something_hangs() -> None:
    """A signal can fall between two moments that belong together, and leave a lock locked for ever."""
    program = """
import os, signal, threading
from doctor.cli import main as cli
from doctor.engine import interrupts
interrupts.SHUTDOWN_SECONDS = 1
interrupts.raise_on_stop()
lock = threading.Lock()
def run():
    lock.acquire()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    except SystemExit:
        lock.acquire()
cli.run_guarded(run)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=30, capture_output=True)
    assert done.returncode == 143


@pytest.mark.parametrize("method", ["finalizer", "weak reference"])
def test_a_signal_that_comes_where_no_exception_can_be_raised_is_not_lost(method: str) -> None:
    """Python prints and forgets an exception in a finalizer or in the callback of a weak reference."""
    program = f"""
import os, signal, time, weakref
from doctor.cli import main as cli
from doctor.engine import interrupts
interrupts.raise_on_stop()
def strike():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):
        pass
class Held:
    def __del__(self):
        if {method!r} == "finalizer":
            strike()
def run():
    held = Held()
    weakref.finalize(held, strike if {method!r} == "weak reference" else int)
    del held
    signal.pause()
cli.run_guarded(run)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (143, "")


@pytest.mark.parametrize("words", ["doctor check --select clock-source-slow --no-history", "doctor.smoke --help"])
def test_a_module_of_the_job_in_the_working_folder_is_none_of_doctors(words: str, tmp_path: Path) -> None:
    """`python -m` looks into the working folder first."""
    for name in ("json", "queue", "typing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not of Python')")
    done = subprocess.run(
        [sys.executable, "-m", *words.split()],
        cwd=tmp_path, env={**CLEAN, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert "not of Python" not in done.stdout + done.stderr
    assert done.returncode in (0, 12, 78), done.stderr


@pytest.mark.parametrize(
    "words", ["preflight --tier quick -- torchrun t.py", "check --save run.json", "rehearse -- torchrun t.py"]
)
def test_a_working_folder_that_was_removed(words: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    doctor = f'{sys.executable} -c "from doctor.cli.main import main; main()" {words}'
    done = subprocess.run(
        ["sh", "-c", f"rmdir ../gone; exec {doctor}"],
        cwd=tmp_path / "gone", env={**CLEAN, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("doctor: the working folder no longer exists") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", ["random", "enum", "typing", "socket", "os", "argparse"])
def test_a_job_that_hides_modules_of_python_hides_none_of_doctors(module: str, tmp_path: Path) -> None:
    """PYTHONPATH of the job: doctor ended with a traceback where its own imports met the file."""
    (tmp_path / f"{module}.py").write_text("raise SystemExit('this is the job')\n")
    (tmp_path / "helpers.py").write_text("")
    folders = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "doctor", "check", "--select", "disk-full", "-f", "oneline"],
        env={**CLEAN, "PYTHONPATH": folders}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.stdout.startswith("doctor check: "), done.stderr
    assert "this is the job" not in done.stderr and "Traceback" not in done.stderr
