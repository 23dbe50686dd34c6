"""What doctor prints and writes goes through one gate: no secret, no control sequence and no command to a CI runner."""

from __future__ import annotations

import ast
import random
import re
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from doctor.engine.fact import Output, Visit
from doctor.engine.record import SCHEMA, HostRecord, Run
from doctor.engine.result import Finding, Reason, Report
from doctor.engine.run_writing import redact_run
from doctor.engine.sanitize import printable, strip_control_chars
from doctor.engine.secrets import HIDDEN, hide_in, hide_secrets, hide_tokens, is_secret_name
from doctor.engine.streams import harmless, print_stderr
from doctor.remote.runtime.streams import last_lines
from doctor.report.formats.jsonl import EventStream
from doctor.report.formats.registry import FORMATS, RenderContext, render
from doctor.report.layout.terminal import Terminal
from doctor.report.redact.report import redacted_report
from tests.attack.secrets import corpus, lines_of
from tests.report.reports import CHECKS, outcome, report, smoke_hang, summary

pytestmark = pytest.mark.every

ROOT = Path(__file__).parents[1]
BEGIN = "-----BEGIN RSA PRIVATE KEY-----"
LETTERS = string.ascii_letters + string.digits
SHAPES: tuple[Callable[[random.Random], str], ...] = (
    lambda source: "hf_" + letters(source, 34),
    lambda source: source.choice(["ghp_", "gho_", "ghs_"]) + letters(source, 36),
    lambda source: "github_pat_" + letters(source, 22) + "_" + letters(source, 59),
    lambda source: source.choice(["sk-", "sk-proj-", "sk-ant-api03-"]) + letters(source, 40) + "7",
    lambda source: "glpat-" + letters(source, 20),
    lambda source: source.choice(["xoxb-", "xoxp-"]) + "1234567890-" + letters(source, 24),
    lambda source: "AKIA" + letters(source, 16, string.ascii_uppercase + string.digits),
    lambda source: f"eyJ{letters(source, 33)}.eyJ{letters(source, 60)}.{letters(source, 43)}",
    lambda source: "npm_" + letters(source, 36),
    lambda source: (
        f"-----BEGIN RSA PRIVATE KEY-----\n{letters(source, 64)}\n{letters(source, 64)}\n-----END RSA PRIVATE KEY-----"
    ),
)
BEFORE = ("cannot log in: ", "argv: t.py --x ", "['t.py', '", "environ: X=", 'RuntimeError("', "(")
ASSIGNMENTS = (
    "WANDB_API_KEY={}", "--wandb_key={}", "--hf-token {}", "password: {}", '"db_pwd": "{}"', "REGISTRY_AUTH={}",
    "client_secret={}", "http://me:{}@proxy:3128/", "Authorization: Bearer {}", "export AWS_SECRET_ACCESS_KEY={}",
)  # fmt: skip


def letters(source: random.Random, count: int, of: str = LETTERS) -> str:
    return "".join(source.choices(of, k=count))


def secrets() -> Iterator[tuple[str, str]]:
    """300 sentences, and the part of each that must not be shown."""
    source = random.Random(30)
    for number in range(200):
        token = SHAPES[number % len(SHAPES)](source)
        before = source.choice(BEFORE)
        yield f"{before}{token}", max(re.split(r"[\s_.-]", token.replace(BEGIN, "")), key=len)
    for number in range(100):
        value = letters(source, 24)
        yield f"train.py: {ASSIGNMENTS[number % len(ASSIGNMENTS)].format(value)} end", value


SECRETS = list(secrets())


def assert_hidden(text: str, where: str) -> None:
    observed_secrets = [secret for _, secret in SECRETS if len(secret) > 7 and secret in text]
    assert not observed_secrets, (where, len(observed_secrets), observed_secrets[:3])


def leaking() -> Report:
    """The secrets in every text of a report that a host or a rank may fill."""
    texts = [sentence for sentence, _ in SECRETS]
    findings = [Finding("{what}: {environ}", hosts=["node001"], what=text, environ={"argv": [text]}) for text in texts]
    named = Finding("{settings}", hosts=["node002"], settings={"HF_TOKEN": SECRETS[-1][1], "lr": "3"})
    apart = Finding("refused {option} {observed}", option="aws_secret_access_key", observed=f"= {SECRETS[-1][1]}")
    hang = smoke_hang().smoke
    assert hang is not None
    failure = msgspec.structs.replace(hang.failures[0], text=texts[0], evidence=tuple(texts), stacks={0: texts[3]})
    return report(
        outcome("ip-forward-off", *findings, named, apart),
        outcome(
            "host-unreachable",
            unknown={f"node{number:03d}": Reason(text) for number, text in enumerate(texts, 1)},
            skipped={f"other{number}": text for number, text in enumerate(texts)},
            crashed={"node003": "\n".join(texts)},
        ),
        notes=tuple(texts),
        smoke=summary(failures=(failure,), notes=tuple(texts)),
    )


def test_signed_addresses_are_hidden_in_a_long_text_and_a_rendered_text_is_searched_once() -> None:
    address = "https://x.example/a?SIG=hunter2hunter2", "netloc='me:hunter2hunter2", "hooks.slack.com/services/hunter2"
    for secret in (*address, "?\u212aEY=hunter2hunter2", "https://api.telegram.org/bot77:hunter2hunter2/x"):
        hidden = hide_tokens("innocent line\n" * 6000 + secret)
        assert "hunter2" not in hidden
        assert hide_tokens(hidden) is hidden
        assert "hunter2" not in hide_tokens(hidden + "&sig=hunter2hunter2")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("pseudonyms", [False, True], ids=["as it is", "redacted"])
def test_no_format_of_a_report_shows_a_secret(name: str, pseudonyms: bool) -> None:
    observed_report = redacted_report(leaking(), b"key") if pseudonyms else leaking()
    for width in (60, 200) if name == "human" else (80,):
        terminal = Terminal(tty=name == "human", width=width, colour=False, unicode=True)
        assert_hidden(render(name, observed_report, RenderContext(10, CHECKS, terminal, verbose=True)), name)


def test_no_event_shows_a_secret() -> None:
    lines: list[str] = []
    events = EventStream(lines.append)
    for text, _ in SECRETS:
        events.host("node001", HostRecord(Visit("timeout", text)))
    events.finish(leaking(), 10)
    assert_hidden("".join(lines), "jsonl")


def test_no_saved_run_holds_a_secret() -> None:
    outputs = {"Fact": {str(number): Output(out=text, err=text) for number, (text, _) in enumerate(SECRETS)}}
    outputs["Json"] = {"": Output(out=msgspec.json.encode({"argv": [text for text, _ in SECRETS]}).decode())}
    run = Run(SCHEMA, "1 host", "2026-01-01T00:00:00Z", 1.0, {"a": HostRecord(Visit(python="3.11.2"), outputs)})
    assert_hidden(msgspec.json.encode(redact_run(run)).decode(), "saved run")


def test_what_is_no_secret_stays() -> None:
    for text in (
        "--tokenizer-type Llama2Tokenizer --max-tokens 4096 --moe-token-dispatcher-type alltoall",
        "PWD=/home/me/job OLDPWD=/tmp key: value num_key_value_heads=8 --key-value-cache x",
        "export HF_TOKEN=<token> --password $PASSWORD task-0123456789abcdef0123456789 disk-usage",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 SHA256:uNiVztksCsDhcc0u9e8BrrQXVUpKZIDTMczCvj3tD2s",
    ):
        assert hide_secrets(text) == text
    assert hide_in([{"name": "HF_TOKEN", "value": "x"}]) == [{"name": "HF_TOKEN", "value": HIDDEN}]
    assert hide_in({"HF_TOKEN": "x", "n": [1, None]}) == {"HF_TOKEN": HIDDEN, "n": [1, None]}
    assert is_secret_name("sshKey") and not is_secret_name("monkey")


def test_a_message_that_quotes_part_of_the_command_line_hides_what_the_whole_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["doctor", "check", "--hosts", "echo me:hunter2hunter2 | chpasswd", "sha:1"])
    print_stderr('doctor: the command line: "me:hunter2hunter2": no host, but sha:1')
    assert capsys.readouterr().err == f'doctor: the command line: "{HIDDEN}": no host, but sha:1\n'


def test_no_secret_of_the_campaign_is_shown_and_no_innocent_text_is_changed() -> None:
    for seed in range(3):
        held = list(corpus(random.Random(seed)))
        assert len(held) > 400 and [text for text, hidden in held if hidden in hide_secrets(text)] == []
    assert [text for text in lines_of("innocent_texts.txt") if hide_secrets(text) != text] == []


OTHERS = (
    "AccountName=x;AccountKey={};Suffix", "DB_PASS={}", '{{\\"password\\": \\"{}\\"}}', '"password": "ab\\"{}"',
    "machine x login y password {}", "sshpass -p {} ssh h", "口令: {}", "数据库密码：{} x",
    "curl -s -u me:{} http://h/", "https://me:a@{}@host/x",
    "https://0123456789{}0123456789@github.com/x", "Authorization: token {}",
    "{{'Authorization': 'Bearer {}'}}", "Cookie: {}",
    "nvapi-{}{}", "https://hooks.slack.com/services/T0/B0/{}",
    "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={}",
    "https://open.feishu.cn/open-apis/bot/v2/hook/{}", "OBS_SK={}", "password=b'{}'", "LTAI{}", "redis://:{}@h:6379/0",
    "AZURE_SAS={}", "hvs.{}{}", "glrt-{}0123456789", "pk_live_{}0000", "xapp-1-{}", "dckr_pat_{}0000000",
    "gsk_{}0000000", r"'0\n\nsshpass -p {} x'", r"'0\nhf_{}{}'", "psql:/me:{}@h/x",
    r"- name: API_KEY\n  value: {}",
)  # fmt: skip


@pytest.mark.parametrize("text", OTHERS)
def test_other_shapes_and_other_ways_to_assign(text: str) -> None:
    assert "hunter2hunter2" not in hide_secrets(text.format(*["hunter2hunter2"] * 2)), text


@pytest.mark.parametrize(
    "text",
    ["http://10.0.0.1:8080/a@b tcp://10.0.0.1:29500",
     "forward_pass=12 bypass: yes", "see http://a:80/x and mail me@x.org",
     "sk-learn task_sk", "ssh://root@node7:22", "http://h:80/a?monkey=1", "rank 3 user 1000 password file /etc/passwd"],
)  # fmt: skip
def test_what_looks_a_little_like_one_stays(text: str) -> None:
    assert hide_secrets(text) == text


@pytest.mark.parametrize("text", ["://a:", "curl ", "login x ", 'password="\\', '\\"', "a", "-", "://u:x"])
def test_a_run_of_megabytes_is_read_in_linear_time(text: str) -> None:
    def seconds(count: int) -> float:
        began = time.process_time()
        hide_secrets(text * count)
        return time.process_time() - began

    small = max(min(seconds(20_000) for _ in range(3)), 0.005)
    assert seconds(80_000) < 12 * small


@pytest.mark.parametrize("start", ["curl", "/http", "mysql", "name: DB_PASSWORD", "token:", "password: '"])
@pytest.mark.parametrize("run", [" ", "\t", "a", "\\"])
def test_a_run_behind_a_word_is_read_in_linear_time(start: str, run: str) -> None:
    """A command's name and 2,000 blanks took minutes once."""
    hide_secrets(f"{start} value")
    began = time.process_time()
    hide_secrets(start + run * 4000 + "s pw@h value")
    assert time.process_time() - began < 1


def test_a_password_that_was_cut_is_hidden_by_the_rule_of_its_whole() -> None:
    for text in (
        "db_password => 'mD82U7470n",
        "db_password= => 'mD82U7470n",
        'password := "B1eHNBw7',
        "password = r'frJjHWa7",
        "Invalid API key: cSaY1cZ7Q",
        "['t.py', 'sk-MWNSbjBOn7QNcDoditllc",
        "(A3-WTOH8I-TKGSZDETFVN7",
        "curl -x me:U3Ktr747BSd",
        "conda config --add channels https://conda.corp/t/giSzZIh7XX1",
        "AK/SK: AKABC/bZeruIM7dqD",
        strip_control_chars("password: |\n  JKBzBKZ7uoAGAqX and more words"),
        "RuntimeError('401 for password: |\\n 9Vb8wz07JMdMQqX')",  # as Python shows the end of a line
        "password: | / JKBzBKZ7uoAGAqX and more words",  # the lines of an answer, joined
    ):
        assert "7" not in hide_secrets(text), text
    for text in ("['t.py', 'sk-MWNSbjBOnQNcDodi", "sm_pat_vLfrvdDUqGdp"):  # without a digit, as it happens
        assert HIDDEN in hide_secrets(text)
    for text in (
        *("key=0x7f12345678", "session_id=train-20261125", "PASS TestAllReduce8Gpus", "the host's key: '"),
        *("curl -x http://proxy:3128", "curl http://h/path/Abc123xyzde", "hf_TransformersTrainerHub", "sk-model-Large"),
        *("cat password: | sort", "pip install sk-learn-Extra", "curl -O http://h/v1.2.3/file8abcdefgh"),
    ):
        assert hide_secrets(text) == text


def test_a_name_begins_behind_an_end_of_line_that_is_shown_as_two_characters() -> None:
    for name in ("pw=", "PASS=", "pwd = ", "password: "):
        assert hide_secrets(rf"'4096\n\n{name}hunter2hunter2'") == rf"'4096\n\n{name}{HIDDEN}'"
    assert hide_secrets(r"C:\new\path=abc \nrpath=/usr/lib64") == r"C:\new\path=abc \nrpath=/usr/lib64"


def test_of_a_text_whose_beginning_was_cut_off_no_part_of_a_secret_is_left() -> None:
    """On the host the line that was cut is not told; of a private key the lines before its end are hidden."""
    printed = b"RuntimeError: cannot log in with hf_" + b"Ab1" * 12 + b"\nTraceback\n"
    for limit in range(1, len(printed)):
        assert "Ab1" not in last_lines(printed, limit)
    assert last_lines(printed, len(printed)) == printed.decode()
    body = "\n".join(f"{number:02}" + "kQ7+" * 15 for number in range(20))
    for prefix in ("", "[rank3] 10:00:00 "):
        text = prefix + f"{body}\n-----END RSA PRIVATE KEY-----\nbye".replace("\n", f"\n{prefix}")
        assert "kQ7+" not in hide_secrets(text) and hide_secrets(text).endswith(f"{HIDDEN}\n{prefix}bye")


@pytest.mark.parametrize(
    "command",
    ["::error file=x::pwned", "::add-mask::x", "##[error]pwned", "##vso[task.setvariable variable=x]y", "::group::z"],
)
@pytest.mark.parametrize("name", FORMATS)
def test_no_line_is_a_command_to_a_ci_runner(name: str, command: str) -> None:
    """Word-wrap may put any word of a host's text at the begin of a line."""
    findings = [Finding("{what}", hosts=["node001"], what="x " * count + command) for count in range(40)]
    for width in (40, 80) if name == "human" else (80,):
        terminal = Terminal(tty=name == "human", width=width, colour=False, unicode=True)
        output = harmless(
            render(name, report(outcome("ip-forward-off", *findings)), RenderContext(10, CHECKS, terminal))
        )
        for line in output.splitlines():
            assert not re.match(r"\s*::[A-Za-z][\w-]*.*?::", line) and not re.search(r"##(vso)?\[", line), line


def test_no_control_sequence_but_colours() -> None:
    text = "\x1b[31mred\x1b[0m \x1b[2J\x1b]52;c;aGk=\x07\x9b31m\x08\x1bc\r\u202egpj.exe\tend\n"
    assert harmless(text) == "\x1b[31mred\x1b[0m 31mgpj.exe\tend\n"


WRITERS = {"print", "typer.echo", "click.echo", "sys.stdout.write", "sys.stderr.write"}
WRITERS |= {"sys.stdout.buffer.write", "self.stream.write", "os.write(1)", "os.write(2)"}
SENT_TO_HOSTS = (
    "collect/collector/", "smoke/programs/", "net/prober/", "fix/executor/", "diagnose/excerpter/",
    "diagnose/bundler/", "remote/",
    "watch/hook/", "watch/attach/inspector/", "transport/launcher/carrier/",
    "transport/launcher/relay/", "facts/",
)  # fmt: skip
NO_FOREIGN_TEXT = {
    "engine/streams.py": "the gate",
    "preflight/early_end.py": "a line of fixed words, within a signal handler",
    "config/atomic_write.py": "a pipe of the user: what the callers below have made",
    "report/layout/progress_line.py": "counts, on a terminal",
    "preflight/deadline.py": "counts",
    "cli/complete.py": "words for the shell",
    "cli/node.py": "a saved run, which `redact_run` has made",
    "cli/app.py": "the version",
    "cli/probe.py": "our own program",
    "watch/rehearsal/stub.py": "answers of a rank, which the controller reads",
    "watch/output_pump.py": "the job's own output, carried on as it is",
}
FILES = {
    "session/output_files.py": "reports of `render_bytes`; what `write_output` gets",
    "session/finish.py": "`run_lines`, which redacts",
    "cli/node.py": "`redact_run`",
    "cli/report.py": "differences of reports without secrets",
    "cli/rank_table.py": "a rank table of checked addresses and numbers",
    "diagnose/fetch/saved_logs.py": "`hide_secrets`",
    "cli/bundle_logs.py": "`hide_secrets` and `hide_in`: an archive of `Packing`",
    "preflight/report.py": "the one line",
    "fix/store.py": "plans, whose commands must stay as they are, in the applier's own folder",
    "smoke/speed/baseline.py": "numbers",
    "watch/live_metrics.py": "numbers",
}


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            name = ast.unparse(node.func)
            yield f"{name}({ast.unparse(node.args[0])})" if name == "os.write" and node.args else name


def callers(names: set[str]) -> set[str]:
    paths = {str(path.relative_to(ROOT / "doctor")): path for path in (ROOT / "doctor").rglob("*.py")}
    return {
        name for name, path in paths.items() if not name.startswith(SENT_TO_HOSTS) and not names.isdisjoint(calls(path))
    }


@pytest.mark.every
def test_nothing_is_printed_or_written_on_another_way() -> None:
    assert callers(WRITERS) - {"engine/streams.py"} <= NO_FOREIGN_TEXT.keys(), "expected doctor.engine.streams"
    ways = callers({"write_atomic", "write_pieces", "GrowingFile"}) - {"config/atomic_write.py"}
    assert ways <= FILES.keys(), "expected doctor.session.output_files"


SENTENCES = {"filled", "joined", "phrase", "Unreadable", "Reason", "ValueError", "InputError", "strip_control_chars"}
NO_HOSTS_TEXT = {
    "config/atomic_write.py": "a name of doctor's own file",
    "fix/render_plan.py": "base64 of a file that a playbook writes",
    "environment/gang_place.py": "one of a table's words",
    "facts/firewall/boot_rules.py": "on the host, where no gate is: its sentences pass `beginning` on the controller",
    "smoke/rendezvous/relay.py": "a digest",
}


def cuts(node: ast.AST, is_shown: bool = False) -> Iterator[int]:
    """The lines in which the beginning or the end of a text, from 20 characters on, is cut out for a sentence."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        is_shown = name not in ("len", "sorted", "enumerate") and (is_shown or name in SENTENCES)
    is_shown = is_shown or isinstance(node, ast.FormattedValue)
    if is_shown and isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        limit = ast.unparse(node.slice.upper or node.slice.lower or node.slice)
        if re.fullmatch(r"-?[0-9]{2,}|[A-Z_]*(?:CHARS|TEXT)", limit) and limit not in ("10", "11", "12", "16", "19"):
            yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from cuts(child, is_shown and not isinstance(node, ast.comprehension))


@pytest.mark.every
def test_a_text_is_cut_for_a_sentence_only_behind_the_gate() -> None:
    """Behind a cut no gate knows a secret: `doctor.engine.texts.beginning` and `ending` hide first."""
    assert [*cuts(ast.parse("filled('{0}', text[:40])"))] == [*cuts(ast.parse("f'{err[-400:]!r}'"))] == [1]
    paths = {str(path.relative_to(ROOT / "doctor")): path for path in (ROOT / "doctor").rglob("*.py")}
    sent = tuple(name for name in SENT_TO_HOSTS if name != "facts/")
    found = {
        name: lines
        for name, path in paths.items()
        if not name.startswith(sent) and (lines := [*cuts(ast.parse(path.read_text("utf-8")))])
    }
    assert {name: lines for name, lines in found.items() if name not in NO_HOSTS_TEXT} == {}
    assert NO_HOSTS_TEXT.keys() <= found.keys(), "what needs no exception has none"


def test_an_error_line_and_the_output_of_a_command_are_clean(tmp_path: Path) -> None:
    """The names of files and options are foreign text, too."""
    token = SHAPES[0](random.Random(1))
    arguments = [sys.executable, "-m", "doctor", "check", "--from", f"{tmp_path}/{token}\n::error::x"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and token not in done.stderr
    assert not re.search(r"(?m)^\s*::error", done.stdout + done.stderr)


def test_what_the_parser_of_the_command_line_refuses_is_clean() -> None:
    token = f"--{SHAPES[0](random.Random(2))}"
    done = subprocess.run([sys.executable, "-m", "doctor", "list", token], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and token not in done.stderr and "No such option" in done.stderr


def test_a_secret_that_is_cut_in_the_middle_is_not_shown() -> None:
    for text, hidden in (
        ("git clone https://oauth2:lBBPGfL7RhbwnqX@h/a", "lBBPGf"),
        ("A3-AU322L-EX11L6K070W-ZK9DS-BJV2W-WGG76", "EX11L6"),
    ):
        for limit in range(text.index(hidden) + len(hidden), len(text)):
            assert hidden not in printable(text, limit) and hidden not in strip_control_chars(text, limit)
