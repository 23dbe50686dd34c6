"""The collector: one program over stdin, one framed answer, nothing left behind. Run by every python3 that is here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.collect.collector_request import COLLECTOR, CollectOptions, RequestTemplate, function_source, parse_response
from doctor.engine.fact import Fact, Output, Probe, ProbeAnswer, ask, read, run
from doctor.engine.record import HostRecord
from doctor.engine.sanitize import strip_control_chars
from doctor.remote.bootstrap import stdin_command
from doctor.remote.request import Request, frame_end
from doctor.transport import CommandResult, TransportError


def pythons() -> list[str]:
    """Every python3 of the versions that hosts may have."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob("3.*/bin/python3")
    names = [shutil.which(f"python3.{minor}") for minor in range(6, 15)]
    return sorted({str(path) for path in kept} or {path for path in names if path} or {sys.executable})


PYTHONS = pythons()


def fact_of(probe: Probe, name: str = "One") -> type[Fact]:
    """A fact with this probe; what it reads is not looked at here."""
    space = {"probe": probe, "__module__": __name__, "__annotations__": {}}
    return type(Fact)(name, (Fact,), space, frozen=True)  # type: ignore[call-arg]


def request(ask: CollectOptions, seconds: float) -> Request:
    return RequestTemplate(ask).request(seconds)


def collect(
    *facts: type[Fact],
    python: str = "",
    seconds: float = 10,
    shell: Sequence[str] = ("sh", "-c"),
    prelude: str = "",
    **options: Any,
) -> HostRecord:
    """What the collector says on this machine. ``prelude``: Python that runs before it, in the same process."""
    arguments = options.pop("given", {})
    sent = request(CollectOptions(tuple(facts), arguments, **options), seconds)
    if prelude:
        program = zlib.compress(prelude.encode() + COLLECTOR.source)
        command = stdin_command(program, len(sent.first) + len(sent.common), packed=True)
        sent = msgspec.structs.replace(sent, command=command, program=program)
    command = sent.command.replace("for p in python3 ", f"for p in {python} python3 ") if python else sent.command
    process = subprocess.Popen([*shell, command], stdin=-1, stdout=-1, stderr=-1)
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(sent.stdin)
    process.stdin.flush()
    out, err = process.stdout.read(), process.stderr.read()
    process.stdin.close()
    code = process.wait()
    process.stdout.close()
    process.stderr.close()
    return parse_response(CommandResult(code, out, err, 0.0, 0.0), sent.marker)


def output_of(record: HostRecord, key: str = "", name: str = "One") -> Output:
    return record.outputs[name][key]


def counts(given: dict[str, Any]) -> Any:
    return {"hosts": len(given["hosts"])}


def breaks(arguments: dict[str, Any]) -> Any:
    raise ValueError("by design")


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_kind_of_probe_answers(python: str) -> None:
    facts = (
        fact_of(run("echo out; echo err >&2; exit 3"), "Run"),
        fact_of(read("/proc/sys/kernel/ostype", "/nowhere"), "Read"),
        fact_of(ask(counts), "Ask"),
    )
    record = collect(*facts, python=python, given={"hosts": ["a", "b"]})
    output = output_of(record, name="Run")
    assert (output.out, output.err, output.code) == ("out\n", "err\n", 3)
    assert output_of(record, "/proc/sys/kernel/ostype", "Read").out == "Linux\n"
    assert output_of(record, "/nowhere", "Read").ended == "absent"
    assert ProbeAnswer(record.outputs["Ask"]).json() == {"hosts": 2}
    assert record.visit.python.startswith("3.")


def test_a_command_that_hangs_ends_at_its_timeout_and_the_others_answer(python: str) -> None:
    facts = fact_of(run("sleep 1000 & sleep 1000", timeout=0.3), "Slow"), fact_of(run("echo here"), "Quick")
    record = collect(*facts, python=python)
    assert output_of(record, name="Slow").ended == "timeout"
    assert output_of(record, name="Quick").out == "here\n"


def test_what_a_command_leaves_running_is_ended_with_it() -> None:
    record = collect(fact_of(run("sleep 1000 & echo $!")))
    pid = int(output_of(record).out)
    deadline = time.monotonic() + 10
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_that_floods_is_cut_at_the_limit() -> None:
    output = output_of(collect(fact_of(run("yes", limit=5000))))
    assert (output.cut, len(output.out)) == (True, 5000)


def test_a_tool_that_is_missing_is_absent() -> None:
    output = output_of(collect(fact_of(run("no-such-tool -x", requires="no-such-tool"))))
    assert (output.ended, output.err) == ("absent", "no-such-tool is not installed")


def test_a_device_command_runs_once_a_device_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        (tmp_path / f"davinci{number}").touch()
    (tmp_path / "davinci_manager").touch()
    record = collect(fact_of(run('echo "$1"', each=f"{tmp_path}/davinci[0-9]*")))
    answer = ProbeAnswer(record.outputs["One"])
    assert [(number, output.out) for number, output in answer.devices()] == [(0, "0\n"), (2, "2\n"), (10, "10\n")]


def test_commands_of_one_lane_never_overlap(tmp_path: Path) -> None:
    command = f"mkdir {tmp_path}/lock && sleep 0.05 && rmdir {tmp_path}/lock"
    for number in range(4):
        (tmp_path / f"d{number}").touch()
    record = collect(fact_of(run(command, each=f"{tmp_path}/d[0-9]*", lane="tool")))
    assert [output.code for output in record.outputs["One"].values()] == [0, 0, 0, 0]


def test_a_device_that_hung_once_is_not_waited_for_again(tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"d{number}").touch()
    command = 'echo "$1" >>PLACE/calls; [ "$1" = 1 ] || sleep 1000'.replace("PLACE", str(tmp_path))
    facts = [
        fact_of(run(command, each=f"{tmp_path}/d[0-9]*", lane="tool", timeout=0.3), f"Fact{number}")
        for number in range(3)
    ]
    record = collect(*facts)
    assert [record.outputs[f"Fact{number}"]["1"].ended for number in range(3)] == ["exited"] * 3
    assert sorted(record.outputs[f"Fact{number}"]["0"].ended for number in range(3)) == ["error", "error", "timeout"]
    assert (tmp_path / "calls").read_text().split().count("0") == 1


def test_a_question_is_sent_without_its_annotations() -> None:
    assert function_source(counts).startswith("def counts(given):")


def text_of_several_lines(arguments: dict) -> str:  # type: ignore[type-arg]
    """With a line that begins at the margin."""

    def inner(*names: str, last: int = 0) -> str:
        import json as notation

        return """
def no_function(given: int):
""" + notation.dumps([*names, last])

    return inner(arguments["a"])


def test_a_question_is_sent_whole() -> None:
    source, namespace = function_source(text_of_several_lines), dict[str, Any]()
    assert "With a line" not in source and ": str" not in source
    exec(source, namespace)
    assert namespace["text_of_several_lines"]({"a": "b"}) == text_of_several_lines({"a": "b"})


SEPARATOR = "; "


def joined(parts: list[str]) -> str:
    return SEPARATOR.join(parts)


def with_helpers(arguments: dict[str, Any]) -> str:
    return joined([os.path.basename(arguments["a"]), os.path.dirname(arguments["a"])])


def test_a_question_is_sent_with_what_it_names_of_its_module() -> None:
    source, namespace = function_source(with_helpers), dict[str, Any]()
    assert source.startswith("SEPARATOR = '; '\nimport os as os\n") and "SOURCE" not in source
    exec(source, namespace)
    assert namespace["with_helpers"]({"a": "/b/c"}) == "c; /b"


def hangs(arguments: dict[str, Any]) -> Any:
    import time

    time.sleep(1000)


def dies(arguments: dict[str, Any]) -> Any:
    import os

    os.kill(os.getpid(), 9)


def prints(arguments: dict[str, Any]) -> Any:
    import subprocess

    print("noise", flush=True)
    return subprocess.call(["sh", "-c", "echo more; cat"])


def floods(arguments: dict[str, Any]) -> Any:
    return "x" * (2 << 20)


def appends(arguments: dict[str, Any]) -> Any:
    with open(arguments["path"], "a") as file:
        return file.write("x")


def test_a_question_costs_no_other_its_answer(python: str) -> None:
    """All are answered by one child, but for those that hang, die, break or flood."""
    facts = [fact_of(ask(counts), "A"), fact_of(ask(hangs, timeout=0.5), "B"), fact_of(ask(dies), "C")]
    facts += [fact_of(ask(breaks), "D"), fact_of(ask(prints), "E"), fact_of(ask(floods), "F")]
    record = collect(*facts, fact_of(ask(counts, timeout=9), "G"), python=python, given={"hosts": []})
    assert output_of(record, name="B").ended == "timeout"
    assert output_of(record, name="C").code == -signal.SIGKILL
    assert output_of(record, name="D").err == "ValueError: by design\n"
    assert (output_of(record, name="F").cut, len(output_of(record, name="F").out)) == (True, 1 << 20)
    answers = [ProbeAnswer(record.outputs[name]).json() for name in "AEG"]
    assert answers == [{"hosts": 0}, 0, {"hosts": 0}]


def writes_a_line(arguments: dict[str, Any]) -> Any:
    import os
    import time

    for fd in range(3, 20):
        try:
            os.write(fd, arguments["line"].encode())
        except OSError:
            continue
    time.sleep(30)


@pytest.mark.parametrize("line", ["999 0 0 0\n", "0 -9 0\n", "x\n", "9" * 200, "1 0 0 99999999999\n", "1 0 0 -5\n"])
def test_a_question_that_writes_among_the_answers_costs_its_own_alone(line: str) -> None:
    facts = [fact_of(ask(writes_a_line, timeout=20), "A"), fact_of(ask(counts), "B")]
    began = time.monotonic()
    record = collect(*facts, given={"line": line, "hosts": []})
    assert time.monotonic() - began < 10
    assert output_of(record, name="A").err == "a question wrote among the answers of its child"
    assert ProbeAnswer(record.outputs["B"]).json() == {"hosts": 0}


@pytest.mark.parametrize("step", [-7200, 7200])
def test_a_clock_that_is_set_meanwhile_changes_no_time_limit(step: int) -> None:
    """`time.time` of the collector and its questions, after their first look at it."""
    facts = [fact_of(ask(hangs, timeout=0.5), "A"), fact_of(run("sleep 60", timeout=0.5), "B")]
    facts += [fact_of(run("sleep 1; echo late", timeout=9), "C")]
    jump = f"time.time = lambda read=time.time, first=[1]: read() + (0 if first and first.pop() else {step})"
    began = time.monotonic()
    record = collect(*facts, prelude=f"import time\n{jump}\n")
    assert time.monotonic() - began < 9
    assert [output_of(record, name=name).ended for name in "ABC"] == ["timeout", "timeout", "exited"]
    assert output_of(record, name="C").out == "late\n"


def test_when_its_time_is_up_questions_that_were_not_begun_say_so() -> None:
    facts = [fact_of(ask(hangs), f"Hang{number:02}") for number in range(3)]
    record = collect(*facts, fact_of(run("sleep 1000", timeout=600), "Slow"), seconds=0.5)
    assert {outputs[""].ended for outputs in record.outputs.values()} == {"timeout"}


def test_what_two_facts_ask_alike_is_answered_once(tmp_path: Path) -> None:
    facts = [fact_of(ask(appends), name) for name in ("A", "B")]
    record = collect(*facts, given={"path": str(tmp_path / "answers")})
    assert record.outputs["A"] == record.outputs["B"]
    assert (tmp_path / "answers").read_text() == "x"


def test_a_collector_that_waits_answers_a_further_request(python: str) -> None:
    first = request(CollectOptions((fact_of(ask(counts)),), {"hosts": ["a"]}, more=True), 10)
    second = request(CollectOptions((fact_of(run("echo again")),), {}), 10)
    command = first.command.replace("for p in python3 ", f"for p in {python} python3 ")
    with subprocess.Popen(["sh", "-c", command], stdin=-1, stdout=-1) as process:
        assert process.stdin and process.stdout
        answers = []
        for data, marker in ((first.stdin, first.marker), (second.follow_up, second.marker)):
            process.stdin.write(data)
            process.stdin.flush()
            out = b""
            while not out.endswith(frame_end(marker)):
                out += os.read(process.stdout.fileno(), 65536)
            answers.append(output_of(parse_response(CommandResult(0, out, b"", 0.0, 0.0), marker)).out)
        assert process.wait(timeout=20) == 0
    assert answers == ['{"hosts": 1}', "again\n"]
    assert (first.end, second.end) == (frame_end(first.marker), b"")


def test_a_collector_that_waits_ends_with_its_controller() -> None:
    sent = request(CollectOptions((fact_of(ask(counts)),), {"hosts": []}, more=True), 10)
    with subprocess.Popen(["sh", "-c", sent.command], stdin=-1, stdout=-1) as process:
        assert process.stdin and process.stdout
        process.stdin.write(sent.stdin)
        process.stdin.flush()
        out = b""
        while not out.endswith(sent.end):
            out += os.read(process.stdout.fileno(), 65536)
        process.stdin.close()
        assert process.wait(timeout=20) == 0


def test_a_question_that_breaks_says_how() -> None:
    output = output_of(collect(fact_of(ask(breaks)), given={}))
    assert (output.code, output.err) == (1, "ValueError: by design\n")


def test_given_values_reach_commands_as_environment() -> None:
    assert output_of(collect(fact_of(run('echo "$DOCTOR_PYTHON"')), given={"python": "/opt/$(x)"})).out == "/opt/$(x)\n"


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert output_of(collect(fact_of(run(r"printf '\377\000a'")))).out == "\ufffd\x00a"


def test_a_probe_for_the_job_runs_behind_the_prefix(python: str) -> None:
    fact = fact_of(run('echo "$INSIDE"', job=True))
    record = collect(fact, python=python, within=("env", "INSIDE=yes"))
    assert output_of(record).out == "yes\n"


def test_a_prefix_that_fails_is_an_error_not_an_absence() -> None:
    inner, outer = fact_of(run("echo x", job=True), "Inner"), fact_of(run("echo y"), "Outer")
    record = collect(inner, outer, within=("sh", "-c", "echo no such container >&2; exit 1"))
    assert output_of(record, name="Inner").ended == "error"
    assert "no such container" in output_of(record, name="Inner").err
    assert output_of(record, name="Outer").out == "y\n"


@pytest.mark.parametrize("record", ["5", "[]", '{"outputs": 5}', '{"outputs": {"Other": {}}}', '{"outputs": '])
def test_a_container_that_answers_otherwise_is_an_error_of_its_own_facts(tmp_path: Path, record: str) -> None:
    forger = tmp_path / "docker"
    read_marker = "import os,re,time; time.sleep(0.3); text = os.read(0, 1 << 20); "
    read_marker += "marker = re.findall(rb'doctor-[0-9a-f]{16}', text)[0].decode(); "
    forger.write_text(f"#!{sys.executable}\n{read_marker}print('\\n%s\\n%s\\n%s end' % (marker, {record!r}, marker))\n")
    forger.chmod(0o755)
    facts = fact_of(run("echo in", job=True), "In"), fact_of(run("echo out"), "Out")
    answer = collect(*facts, within=(str(forger),))
    assert (output_of(answer, name="Out").out, set(answer.outputs)) == ("out\n", {"In", "Out"})
    assert output_of(answer, name="In").err.endswith("its answer cannot be read")


def test_when_its_time_is_up_it_says_what_it_has() -> None:
    facts = [fact_of(run("sleep 1000", timeout=600), f"Slow{n}") for n in range(12)]
    record = collect(*facts, fact_of(run("echo here"), "Quick"), seconds=1)
    assert {output_of(record, name=fact.__name__).ended for fact in facts} == {"timeout"}
    assert output_of(record, name="Quick").out == "here\n"


def test_when_the_controller_goes_so_does_everything_it_started(tmp_path: Path) -> None:
    sent = request(CollectOptions((fact_of(run(f"echo $$ > {tmp_path}/pid; exec sleep 1000", timeout=600)),), {}), 600)
    process = subprocess.Popen(["sh", "-c", sent.command], stdin=-1, stdout=-1)
    assert process.stdin and process.stdout
    process.stdin.write(sent.stdin)
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pid = int((tmp_path / "pid").read_text())
    process.stdin.close()
    assert process.wait(timeout=20) == 3
    process.stdout.close()
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def shells() -> Iterator[Any]:
    for name in ("sh", "bash", "csh", "tcsh", "fish", "zsh", "dash"):
        yield pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not installed"))


@pytest.mark.parametrize("shell", list(shells()))
def test_every_login_shell_starts_it(shell: str) -> None:
    assert output_of(collect(fact_of(run("echo here")), shell=(shell, "-c"))).out == "here\n"


READ_ONLY = """
import os, sys
def refuse(event, arguments):
    if event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and arguments[0] != os.devnull:
        raise SystemError("it opens %r for writing" % (arguments[0],))
sys.addaudithook(refuse)
"""


def test_the_collector_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens none for writing, and what it starts leaves none where files come and go."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert output_of(collect(fact_of(run("echo here")), prelude=READ_ONLY)).out == "here\n"
    assert list(tmp_path.iterdir()) == []


def test_banners_before_and_noise_after_do_no_harm() -> None:
    body = b'{"outputs": {}, "python": "3.6.8", "uid": 0, "name": "x", "began": 1.0, "ended": 2.0}'
    frame = b"\nM\n" + body + b"\nM end\n"
    record = parse_response(CommandResult(0, b"Welcome to M!\nM\x00" + frame + b"bye M\n", b"", 0.0, 3.0), "M")
    assert record.visit.python == "3.6.8"


@pytest.mark.parametrize(
    ("code", "out", "err", "kind", "text"),
    [
        (127, b"", b"doctor-no-python\n", "no-python", "there is no python3 on the host"),
        (1, b"", b"sys.version_info(major=3, minor=4, micro=3)\n", "no-python", "version 3.4; 3.6 or later"),
        (1, b"This account is currently not available.\n", b"", "shell", "This account is currently not available."),
        (0, b"", b"", "shell", "exit status 0.* without output"),
        (0, b'\nM\n{"outp', b"", "lost", "is incomplete"),
        (0, b"\nM\n[]\nM end\n", b"", "error", "cannot be read"),
        (1, b"", b"\x1b[31mevil\x1b[0m \x07", "shell", "evil"),
    ],
)
def test_no_answer_is_one_plain_sentence(code: int, out: bytes, err: bytes, kind: str, text: str) -> None:
    with pytest.raises(TransportError, match=text) as caught:
        parse_response(CommandResult(code, out, err, 0.0, 0.0), "M")
    assert caught.value.kind == kind
    assert "\x1b" not in caught.value.text


@pytest.mark.parametrize(
    ("code", "out", "refuses"),
    [(1, b"This account is currently not available.\n", True), (1, b"", True), (1, b"quota\n", False), (0, b"", False)],
)
def test_a_shell_that_refuses_the_login_has_a_remedy(code: int, out: bytes, refuses: bool) -> None:
    with pytest.raises(TransportError) as caught:
        parse_response(CommandResult(code, out, b"", 0.0, 0.0), "M")
    assert ("`usermod -s /bin/bash <user>`" in caught.value.hint) == refuses


@given(st.binary(), st.binary(), st.integers(-64, 255))
def test_whatever_a_host_says_is_a_record_or_a_sentence(out: bytes, err: bytes, code: int) -> None:
    with pytest.raises(TransportError):
        parse_response(CommandResult(code, out, err, 0.0, 0.0), "doctor-0123456789abcdef")


@given(st.text(max_size=1000))
def test_plain_text_has_no_controls_and_an_end(text: str) -> None:
    output = strip_control_chars(text)
    assert len(output) <= 200
    assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 or letter in "\u202e\u2066" for letter in output)


def test_a_collector_killed_midway_is_no_answer() -> None:
    sent = request(CollectOptions((fact_of(run("kill -9 $PPID")),), {}), 10)
    process = subprocess.Popen(["sh", "-c", sent.command], stdin=-1, stdout=-1)
    assert process.stdin and process.stdout
    process.stdin.write(sent.stdin)
    process.stdin.flush()
    out = process.stdout.read()
    process.stdin.close()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    with pytest.raises(TransportError, match="signal 9"):
        parse_response(CommandResult(-9, out, b"", 0.0, 0.0), sent.marker)


@pytest.mark.parametrize("start", ["posix_spawn", "fork"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_just_behind_the_start_of_a_command_ends_it_as_well(number: signal.Signals, start: str) -> None:
    """Between its start and its entry where the handler looks for it; Python before 3.8 has no posix_spawn."""
    program = f"""
import marshal, os, sys
from doctor.collect.collector import collector
start = os.{start}
def start_and_signal(*arguments, **options):
    pid = start(*arguments, **options)
    if pid:
        print(pid, flush=True)
        os.kill(os.getpid(), {int(number)})
    return pid
del os.posix_spawn
os.{start} = start_and_signal
probe = {{"kind": "run", "text": "exec sleep 1000", "timeout": 900}}
request = {{"marker": "m", "seconds": 900, "boot": "", "parts": [{{"prefix": [], "probes": {{"One": probe}}}}]}}
collector.main(marshal.dumps(request, 2), b"")
"""
    held_open, writer = os.pipe()
    done = subprocess.run([sys.executable, "-c", program], stdin=held_open, stdout=-1, timeout=60, check=False)
    pid, deadline = int(done.stdout), time.monotonic() + 20
    try:
        assert done.returncode == 3
        while runs(pid):
            assert time.monotonic() < deadline, "the command is still running"
            time.sleep(0.01)
    finally:
        os.close(held_open)
        os.close(writer)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_file_stands_in_for_a_tool_that_is_not_there(tmp_path: Path) -> None:
    devices, conf = tmp_path / "dev", tmp_path / "hccn.conf"
    devices.mkdir()
    for number in (0, 1, 11):
        (devices / f"davinci{number}").touch()
    probe = run("no-such-tool", requires="no-such-tool", each=f"{devices}/davinci[0-9]*", stand_in=str(conf))

    def outputs() -> dict[str, Output]:
        return collect(fact_of(probe)).outputs["One"]

    assert list(outputs()) == [""]
    conf.write_text("# address_0=9\n")
    assert list(outputs()) == [""]
    conf.write_text("address_0=29.1.0.1\naddress_1=29.1.0.2\n#address_1=9\naddress_11 = 29.1.0.3\nx\n")
    assert {key: (output.ended, output.out) for key, output in outputs().items()} == {
        "0": ("absent", "address_0=29.1.0.1\n"),
        "1": ("absent", "address_1=29.1.0.2\n"),
        "11": ("absent", "address_11 = 29.1.0.3\n"),
    }
    conf.unlink()
    conf.mkdir()
    assert list(outputs()) == [""]
