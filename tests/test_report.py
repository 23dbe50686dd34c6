"""`doctor report`, and -f, --redact and --quiet of every command that judges, as a person and a script meet them."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from junitparser import JUnitXml
from prometheus_client.parser import text_string_to_metric_families

from doctor.cli.app import application
from doctor.config.user_key import load_or_create_key
from doctor.engine.errors import CommandError
from doctor.engine.exit_code import exit_code
from doctor.engine.result import Finding, Report
from doctor.report.formats.json import encode
from tests.report import reports

ROOT = Path(__file__).resolve().parents[1]
LOCAL = ("check", "--select", "host-unreachable")
CommandOutput = tuple[int, str, str]


@pytest.fixture
def doctor(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., CommandOutput]:
    """Runs a command in this process, in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in [name for name in os.environ if name.startswith(("DOCTOR_", "SLURM_", "RANK_", "MASTER_"))]:
        monkeypatch.delenv(name)

    def run(*arguments: str) -> CommandOutput:
        try:
            with pytest.raises(SystemExit) as ended:
                application(arguments)([*arguments])
            code = int(ended.value.code or 0)
        except CommandError as refusal:
            print(f"doctor: {refusal}", file=sys.stderr)
            code = refusal.exit_code
        out, err = capfd.readouterr()
        return code, out, err

    return run


def keep(path: Path, report: Report) -> str:
    path.write_bytes(encode(report, exit_code(report)))
    return str(path)


class TestFormats:
    def test_several_at_once_and_one_on_stdout(self, doctor: Callable[..., CommandOutput], tmp_path: Path) -> None:
        arguments = [
            f"--format={name}={name}.out" for name in ("json", "md", "junit", "prometheus", "plain", "human", "jsonl")
        ]
        code, out, err = doctor(*LOCAL, *arguments, "-f", "oneline")
        assert (code, err) == (0, "")
        assert re.fullmatch(r"doctor check: OK nodes=1/1 exit=0 t=\d+\.\ds\n", out)
        assert json.loads((tmp_path / "json.out").read_bytes())["exit"] == 0
        assert JUnitXml.fromfile(str(tmp_path / "junit.out")).tests == 2
        assert list(text_string_to_metric_families((tmp_path / "prometheus.out").read_text()))
        events = [json.loads(line)["event"] for line in (tmp_path / "jsonl.out").read_text().splitlines()]
        assert events == ["start", "host", "end"]
        assert (tmp_path / "md.out").read_text().startswith("# doctor: `HEALTHY")
        modes = {name.name: stat.S_IMODE(name.stat().st_mode) for name in tmp_path.glob("*.out")}
        assert {name for name, mode in modes.items() if mode != 0o600} == {"prometheus.out"}

    def test_files_alone_leave_the_usual_report_on_stdout_unless_quiet(
        self, doctor: Callable[..., CommandOutput]
    ) -> None:
        usual = doctor(*LOCAL)[1].splitlines()
        assert doctor(*LOCAL, "-f", "json=x")[1].splitlines()[-1] == usual[-1]
        assert doctor(*LOCAL, "-f", "json=x", "-q")[:2] == (0, "")
        assert doctor(*LOCAL, "-q", "-f", "oneline")[1].startswith("doctor check: OK")

    def test_json_is_short_for_a_format(self, doctor: Callable[..., CommandOutput]) -> None:
        assert json.loads(doctor(*LOCAL, "-f", "json")[1]).keys() == json.loads(doctor(*LOCAL, "--json")[1]).keys()
        code, out, err = doctor(*LOCAL, "--json", "-f", "md")
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert "json and md" in err

    def test_events_on_stdout_and_nothing_else(self, doctor: Callable[..., CommandOutput]) -> None:
        _, out, _ = doctor(*LOCAL, "-f", "jsonl")
        assert [json.loads(line)["event"] for line in out.splitlines()] == ["start", "host", "end"]

    @pytest.mark.parametrize("word", ["md=/nowhere/at/all", "jsonl=/nowhere/at/all"])
    def test_a_file_that_cannot_be_there_is_refused_before_anything_is_done(
        self, doctor: Callable[..., CommandOutput], word: str
    ) -> None:
        code, out, err = doctor(*LOCAL, "-f", word)
        assert (code, out) == (78, "")
        assert err.count("\n") == 1
        assert "/nowhere" in err

    @pytest.mark.parametrize("word", ["jsonl=/dev/full", "md=/dev/full"])
    def test_a_file_that_cannot_be_written_is_said_and_ends_with_78(
        self, doctor: Callable[..., CommandOutput], word: str
    ) -> None:
        code, out, err = doctor(*LOCAL, "-f", word)
        assert code == 78
        assert "HEALTHY" in out
        assert err.startswith(f"doctor: -f {word}: ")
        assert ("follows here" in err.splitlines()[0]) == word.startswith("md")

    def test_what_is_no_format_is_refused_before_anything_is_done(self, doctor: Callable[..., CommandOutput]) -> None:
        code, out, err = doctor("check", "no-such-host", "-f", "xml")
        assert (code, out) == (2, "")
        assert "expected human, plain, oneline" in err

    def test_a_run_that_is_interrupted_still_ends_its_events(self, tmp_path: Path) -> None:
        """SIGTERM while a host is silent: start, and an end with the exit code."""
        site = tmp_path / "site"
        site.mkdir()
        os.mkfifo(tmp_path / "begun")
        (site / "slow.py").write_text(SLOW.format(begun=tmp_path / "begun"))
        arguments = ["check", "--checks", str(site), "--select", "slow", "-f", "jsonl"]
        with subprocess.Popen(
            [sys.executable, "-m", "doctor", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as going:
            assert going.stdout
            (tmp_path / "begun").read_text()
            going.terminate()
            first, *_, last = [json.loads(line) for line in going.stdout]
        assert first["event"] == "start"
        assert (last["event"], last["exit"], going.returncode) == ("end", 143, 143)


SLOW = '''
from collections.abc import Iterator
from doctor import ERROR, Finding, check
from doctor.engine.fact import Fact, ProbeAnswer, run

class Slow(Fact, frozen=True):
    """What never comes."""
    probe = run("echo begun > {begun}; sleep 100", timeout=600)

    @classmethod
    def read(cls, answer: ProbeAnswer) -> "Slow":
        return cls()

@check(severity=ERROR)
def slow(said: Slow) -> Iterator[Finding]:
    """Every host is quick."""
    yield from ()
'''


class TestReport:
    def test_a_saved_run_is_judged_again_by_the_checks_it_was_made_for(
        self, doctor: Callable[..., CommandOutput]
    ) -> None:
        doctor(*LOCAL, "--save", "run")
        code, out, err = doctor("report", "run", "-f", "json")
        document = json.loads(out)
        assert (code, err) == (0, "")
        assert {outcome["check"] for outcome in document["outcomes"]} == {"host-unreachable", "python3-missing"}

    def test_a_run_that_does_not_tell_is_judged_by_what_was_asked(
        self, doctor: Callable[..., CommandOutput], tmp_path: Path
    ) -> None:
        doctor("check", "--select", "listen-queue-short", "--save", "run")
        saved = json.loads((tmp_path / "run").read_bytes())
        del saved["checks"]
        (tmp_path / "run").write_text(json.dumps(saved))
        document = json.loads(doctor("report", "run", "--json")[1])
        status = {outcome["check"]: outcome["status"] for outcome in document["outcomes"]}
        assert status["listen-queue-short"] in ("passed", "failed")
        assert "unknown" not in status.values()

    def test_a_report_is_shown_as_it_was(self, doctor: Callable[..., CommandOutput], tmp_path: Path) -> None:
        path = keep(tmp_path / "r.json", reports.folded())
        code, out, _ = doctor("report", path, "--json")
        assert (code, out.encode()) == (10, (tmp_path / "r.json").read_bytes())
        last = "FAILED: 2 errors of 1 check on 4 of 64 hosts, 21 warnings of 2 checks on 21 of 64 hosts\n"
        assert doctor("report", path)[1].endswith(last)

    def test_the_options_judge_it(self, doctor: Callable[..., CommandOutput], tmp_path: Path) -> None:
        warned = reports.report(reports.outcome("cann-differs", Finding("x", hosts=("node001",))))
        path = keep(tmp_path / "r.json", warned)
        assert doctor("report", path, "-q")[0] == 0
        assert doctor("report", path, "-q", "--strict")[0] == 11
        assert doctor("report", path, "-q", "--fail-on", "warning")[0] == 10

    def test_a_difference_has_the_later_runs_exit_code(
        self, doctor: Callable[..., CommandOutput], tmp_path: Path
    ) -> None:
        old, new = keep(tmp_path / "old", reports.folded()), keep(tmp_path / "new", reports.healthy())
        code, out, _ = doctor("report", new, "--diff", old)
        assert code == 0
        assert "\ngone     FAIL driver-differs on node[003,011-012,040] (4/64): " in f"\n{out}"
        code, out, _ = doctor("report", old, "--diff", new, "-f", "json", "-f", "md=ticket.md")
        assert (code, json.loads(out)["counts"]["appeared"]) == (10, 26)
        assert (tmp_path / "ticket.md").read_text().startswith("# doctor: 26 appeared")

    def test_formats_that_a_difference_has_not(self, doctor: Callable[..., CommandOutput], tmp_path: Path) -> None:
        path = keep(tmp_path / "r", reports.healthy())
        code, out, err = doctor("report", path, "--diff", path, "-f", "junit")
        assert (code, out) == (2, "")
        assert "-f junit with --diff: expected human, plain, json, md" in err

    @pytest.mark.parametrize(
        ("data", "output"),
        [
            (None, "No such file"),
            (b"", "not JSON"),
            (b"\xff\xfe", "not JSON"),
            (b"[]", "expected a JSON object"),
            (b'{"schema": "doctor.run/9"}', "not a report"),
            (b'{"schema": "doctor.run/1"}', "not a saved run"),
            (b'{"schema": "doctor.report/1", "hosts": 3}', "not a report"),
            (b"[" * 100_000, "not JSON"),
        ],
    )
    @pytest.mark.parametrize("place", ["FILE", "OLD"])
    def test_a_foreign_file_is_one_line_and_78(
        self, doctor: Callable[..., CommandOutput], tmp_path: Path, data: bytes | None, output: str, place: str
    ) -> None:
        good = keep(tmp_path / "good", reports.healthy())
        if data is not None:
            (tmp_path / "bad\x1b[31m").write_bytes(data)
        arguments = ["bad\x1b[31m"] if place == "FILE" else [good, "--diff", "bad\x1b[31m"]
        code, out, err = doctor("report", *arguments)
        assert (code, out) == (78, "")
        assert err.count("\n") == 1
        assert "\x1b" not in err
        assert output in err

    def test_from_a_pipe(self, tmp_path: Path) -> None:
        keep(tmp_path / "r", reports.folded())
        argv = [sys.executable, "-m", "doctor", "report", "-", "-f", "oneline"]
        with (tmp_path / "r").open("rb") as source:
            done = subprocess.run(argv, cwd=ROOT, stdin=source, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.startswith("doctor check: FAIL nodes=60/64")) == (10, True)


class TestRedact:
    def test_names_are_gone_and_stay_the_same_from_run_to_run(
        self, doctor: Callable[..., CommandOutput], tmp_path: Path
    ) -> None:
        path = keep(tmp_path / "r", reports.folded())
        code, out, err = doctor("report", path, "--redact")
        assert (code, err) == (10, "")
        assert "node0" not in out
        assert "pseudonyms" in out
        assert doctor("report", path, "--redact")[1] == out
        _, message, _ = doctor("report", path, "--diff", path, "--redact")
        assert "node0" not in message
        assert set(re.findall("host-[a-z]+", message)) <= set(re.findall("host-[a-z]+", out))

    def test_a_run_without_a_place_for_its_key_says_so(
        self, doctor: Callable[..., CommandOutput], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "state").write_text("no folder")
        from doctor.session import redact

        redact._cached_key.cache_clear()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        path = keep(tmp_path / "r", reports.folded())
        _, out, _ = doctor("report", path, "--redact")
        redact._cached_key.cache_clear()
        assert "of this run only: the key could not be saved (Not a directory)" in out
        assert "node0" not in out
        assert str(tmp_path) not in out

    def test_a_local_run_has_no_name_of_this_host(self, doctor: Callable[..., CommandOutput]) -> None:
        _, out, _ = doctor(*LOCAL, "--redact", "-f", "jsonl")
        name = os.uname().nodename
        assert name == "localhost" or name not in out


class TestKey:
    def test_it_is_its_owners_alone_and_the_same_each_time(self, tmp_path: Path) -> None:
        environ = {"XDG_STATE_HOME": str(tmp_path / "s")}
        key, trouble = load_or_create_key(environ)
        path = tmp_path / "s/doctor/redact.key"
        assert (len(key), trouble) == (32, "")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert load_or_create_key(environ) == (key, "")
        assert os.listdir(path.parent) == ["redact.key"]

    def test_without_a_state_folder_of_its_own_it_is_in_home(self, tmp_path: Path) -> None:
        load_or_create_key({"HOME": str(tmp_path), "XDG_STATE_HOME": "relative"})
        assert (tmp_path / ".local/state/doctor/redact.key").exists()

    def test_one_that_others_know_or_that_is_damaged_is_not_used(self, tmp_path: Path) -> None:
        environ = {"XDG_STATE_HOME": str(tmp_path)}
        key, _ = load_or_create_key(environ)
        path = tmp_path / "doctor/redact.key"
        path.chmod(0o644)
        other, trouble = load_or_create_key(environ)
        assert other != key
        assert "0600" in trouble
        path.chmod(0o600)
        path.write_bytes(b"short")
        assert "damaged" in load_or_create_key(environ)[1]
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")
        assert load_or_create_key(environ)[1]
        assert not (tmp_path / "elsewhere").exists()

    def test_without_a_home_there_is_one_for_this_run(self) -> None:
        key, trouble = load_or_create_key({})
        assert (len(key), trouble) == (32, "HOME is not set")


def test_what_is_heavy_is_loaded_when_it_is_asked_for() -> None:
    code = "import sys, doctor.cli.check, doctor.cli.report; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not {"junitparser", "prometheus_client", "rich", "hmac"} & set(loaded.split())


def test_a_struct_is_what_a_saved_run_is() -> None:
    """Runs of the time before they told their checks are still read."""
    from doctor.engine.record import SCHEMA, Run, load_run

    run = Run(SCHEMA, "1 host", "2026-01-01T00:00:00Z", 1.0, {})
    old = {name: value for name, value in msgspec.to_builtins(run).items() if name != "checks"}
    assert load_run(json.dumps(old).encode(), "old") == run
