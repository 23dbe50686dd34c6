"""``--notify``: real local servers, commands and a fake sendmail; what fails changes nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from doctor.config.file import ConfigError, ConfigFile
from doctor.config.notify_targets import NotifyTarget, parse_notify
from doctor.engine.result import Finding, Outcome, Report, Severity
from doctor.session.notify.message import MAX_FINDINGS, line_message, message_of
from doctor.session.notify.notifier import await_notifications, notify, notify_line, refusal, request_of, shapes
from tests import preloaded
from tests.report import reports

TOKEN = "T0KEN-of-the-hook"
TEXT = "rank 3 on w1 is gone"


class Post(NamedTuple):
    """What a server got."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Server(NamedTuple):
    """A server on a port of its own."""

    url: str
    posts: list[Post]
    answer: list[tuple[int, dict[str, str], bytes]]
    """Status, headers and body of what it answers."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine gives no other line."""
    monkeypatch.setattr("doctor.session.notify.notifier.GRACE_SECONDS", 100.0)


@pytest.fixture
def server() -> Iterator[Server]:
    posts: list[Post] = []
    answer: list[tuple[int, dict[str, str], bytes]] = [(200, {}, b"ok")]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.append(Post(self.path, dict(self.headers), json.loads(body)))
            status, headers, data = answer[0]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Server(f"http://127.0.0.1:{running.server_port}/{TOKEN}", posts, answer)
        running.shutdown()
        thread.join()


def notify_receiver(target: NotifyTarget, code: int = 10) -> None:
    notify([target], reports.smoke_hang(), reports.CHECKS, code, "smoke")
    await_notifications()


def one_check(finding: Finding, name: str = "smoke-rank-blocked") -> Report:
    return reports.report(Outcome(name, Severity.ERROR, "smoke", "", (finding,), ("node001",)))


def settings(text: str) -> ConfigFile:
    return ConfigFile("doctor.toml", text)


class TestMessage:
    def test_ranks_hosts_cause_and_action_are_in_it(self) -> None:
        finding = Finding(
            "ranks {ranks} keep the others waiting",
            hosts=["node001"],
            ranks=[3, 1],
            why="They sleep.",
            remedy="End them.",
        )
        message = message_of(one_check(finding), {}, 10, "watch", "w0")
        assert (message.verdict, message.exit_code, message.machine) == ("failed", 10, "w0")
        assert message.headline.startswith("FAILED: ") and message.hosts == ("node001",)
        told_finding = message.findings[0]
        assert told_finding.ranks == (1, 3) and told_finding.hosts == ("node001",)
        assert told_finding.text == "ranks 3 and 1 keep the others waiting"
        assert (told_finding.cause, told_finding.action) == ("They sleep.", "End them.")
        assert told_finding.text in message.text and "End them." in message.text and message.headline in message.text

    def test_no_secret_is_in_it(self) -> None:
        finding = Finding("{text}", hosts=["node001"], text="HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789 is set")
        message = message_of(one_check(finding), {}, 10, "check", "w0")
        line = line_message("password=hunter2hunter2", "watch", "w0", "train.py --api-key sk-12345678", is_error=True)
        for text in map(str, (message, line)):
            assert not [word for word in ("hf_abc", "hunter2", "sk-1234") if word in text]
        assert message.findings

    def test_it_is_bounded(self) -> None:
        finding = Finding("x" * 5000, hosts=[f"n{host}" for host in range(500)], remedy="y" * 50_000)
        outcomes = [one_check(finding, f"check-{number}").outcomes[0] for number in range(20)]
        message = message_of(reports.report(*outcomes), {}, 10, "check", "w0")
        assert len(message.findings) == MAX_FINDINGS and message.more == 20 - MAX_FINDINGS
        assert len(str(message)) < 80_000 and len(message.text) < 20_000


class TestWebhook:
    def test_json_is_posted(self, server: Server) -> None:
        notify_receiver(NotifyTarget("hook", url=server.url, http=True))
        assert [post.path for post in server.posts] == [f"/{TOKEN}"]
        body = server.posts[0].body
        assert body["format"] == "doctor.notify/1" and body["findings"] and body["exit_code"] == 10

    @pytest.mark.parametrize(
        ("shape", "answer", "place"),
        [
            ("slack", b"ok", lambda body: body["text"]),
            ("feishu", b'{"code":0,"msg":"success"}', lambda body: body["content"]["text"]),
            ("dingtalk", b'{"errcode":0,"errmsg":"ok"}', lambda body: body["text"]["content"]),
        ],
    )
    def test_shapes(
        self, server: Server, shape: str, answer: bytes, place: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answer[0] = (200, {}, answer)
        notify_receiver(NotifyTarget("chat", url=server.url, shape=shape, http=True))
        assert place(server.posts[0].body).startswith("doctor smoke on ")
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize(
        ("shape", "status", "headers", "answer", "why"),
        [
            ("json", 404, {}, b"", "HTTP status 404"),
            ("json", 307, {"Location": "http://127.0.0.1:1/else"}, b"", "HTTP status 307; redirects are not followed"),
            ("feishu", 200, {}, b'{"code":19024,"msg":"Key Words Not Found"}', "19024 Key Words Not Found"),
            ("dingtalk", 200, {}, b'{"errcode":310000,"errmsg":"\x1b[31msign"}'.replace(b"\x1b", b"\\u001b"), "310000"),
            ("feishu", 200, {}, b"[" * 50_000, "not the service's JSON"),
            ("feishu", 200, {}, b'{"code":false}', "the service answered False"),
        ],
    )
    def test_a_refusal_is_one_line_without_the_url(
        self,
        server: Server,
        shape: str,
        status: int,
        headers: dict[str, str],
        answer: bytes,
        why: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        server.answer[0] = (status, headers, answer)
        notify_receiver(NotifyTarget("chat", url=server.url, shape=shape, http=True))
        error = capsys.readouterr().err
        assert error.startswith("doctor: --notify chat: not sent: ") and why in error
        assert error.count("\n") == 1 and TOKEN not in error and "\x1b" not in error
        assert len(server.posts) == 1

    def test_a_server_that_does_not_answer(self, capsys: pytest.CaptureFixture[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            notify_receiver(
                NotifyTarget("hook", url=f"http://127.0.0.1:{silent.getsockname()[1]}/{TOKEN}", http=True, seconds=1)
            )
        error = capsys.readouterr().err
        assert error == "doctor: --notify hook: not sent: no answer in time\n"

    def test_nobody_listens(self, capsys: pytest.CaptureFixture[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        notify_receiver(NotifyTarget("hook", url=f"http://127.0.0.1:{port}/{TOKEN}", http=True))
        assert capsys.readouterr().err == "doctor: --notify hook: not sent: Connection refused\n"

    def test_redact_holds_for_the_name_of_this_machine(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        name = "trainer-17"
        monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", name, "6", "1", "x86_64")))
        target = NotifyTarget("hook", url=server.url, http=True)
        for redact in (False, True):
            notify([target], one_check(Finding("x", hosts=["n"])), {}, 10, "check", redact=redact)
            line, source = f"rank 3 on {name} is gone", "train.py"
            notify_line([target], line, "watch", source, is_error=True, redact=redact)
            await_notifications()
        hits = [name in json.dumps(post.body) for post in server.posts]
        assert hits == [True, True, False, False]

    def test_a_healthy_run_is_told_where_that_was_asked_for(self, server: Server) -> None:
        for when in ("fault", "always"):
            target = NotifyTarget("hook", url=server.url, http=True, when=when)
            notify([target], reports.healthy(), reports.CHECKS, 0, "check")
            await_notifications()
        assert [post.body["verdict"] for post in server.posts] == ["healthy"]


class TestShapes:
    def test_signatures(self) -> None:
        """As the vendors' documents compute them."""
        _, body = request_of(shapes()["feishu"], "https://x/", "s3cret", TEXT, 1599360473.7)
        expected = hmac.new(b"1599360473\ns3cret", b"", hashlib.sha256).digest()
        assert body["timestamp"] == "1599360473" and base64.b64decode(body["sign"]) == expected
        url, _ = request_of(shapes()["dingtalk"], "https://x/send?access_token=a", "s3cret", TEXT, 1.5)
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
        assert query["access_token"] == ["a"] and query["timestamp"] == ["1500"]
        assert base64.b64decode(query["sign"][0]) == hmac.new(b"s3cret", b"1500\ns3cret", hashlib.sha256).digest()

    def test_markup_of_a_host_is_text(self) -> None:
        _, body = request_of(shapes()["slack"], "https://x/", "", "<!channel> & <https://bad|good>", 0)
        assert body["text"] == "&lt;!channel&gt; &amp; &lt;https://bad|good&gt;"
        _, body = request_of(shapes()["feishu"], "https://x/", "", '<at user_id="all">', 0)
        assert "<" not in body["content"]["text"]

    def test_each_has_a_source_and_a_bound(self) -> None:
        for shape in shapes().values():
            assert shape.source.startswith("https://")
            _, body = request_of(shape, "https://x/", "", "中" * 100_000, 0)
            assert len(json.dumps(body, ensure_ascii=False).encode()) < 20_000
        assert refusal(shapes()["slack"], b"") == ""


class TestCommandAndMail:
    def test_a_command_gets_json_without_a_shell(self, tmp_path: Path) -> None:
        out = tmp_path / "got $(id)"
        code = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"
        notify_receiver(NotifyTarget("pager", command=(sys.executable, "-c", code, str(out))))
        assert json.loads(out.read_text())["command"] == "smoke"

    @pytest.mark.parametrize(
        ("argv", "why"),
        [
            (("/no/such/pager",), "No such file or directory"),
            (("sh", "-c", "exit 3"), "exit code 3"),
            (("sh", "-c", "sleep 60 & sleep 60"), "no end within 1 s"),
        ],
    )
    def test_its_failure_is_one_line(self, argv: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
        notify_receiver(NotifyTarget("pager", command=argv, seconds=1))
        assert capsys.readouterr().err == f"doctor: --notify pager: not sent: {why}\n"

    def test_mail_goes_through_sendmail(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = tmp_path / "sendmail"
        program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/argv\ncat >{tmp_path}/mail\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        notify_receiver(NotifyTarget("team", mail=("ops@example.org", "b@example.org")))
        assert (tmp_path / "argv").read_text() == "-i -t\n"
        head, _, body = (tmp_path / "mail").read_text().partition("\n\n")
        assert "To: ops@example.org, b@example.org" in head and "Subject: doctor smoke: FAILED" in head
        assert "Auto-Submitted: auto-generated" in head and body

    def test_no_sendmail(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        monkeypatch.setattr("doctor.session.notify.notifier.SENDMAIL", ())
        notify_receiver(NotifyTarget("team", mail=("ops@example.org",)))
        assert capsys.readouterr().err == "doctor: --notify team: not sent: this machine has no sendmail\n"


class TestWords:
    def test_tables_and_words(self, tmp_path: Path) -> None:
        hook = tmp_path / "hook"
        hook.write_text("https://chat.example/secret\n")
        text = f'[notify.oncall]\nurl_file = "{hook}"\nshape = "feishu"\nwhen = "always"\nseconds = 5\n'
        receivers = ["oncall", f"slack:@{hook}", "https://a.example/b", "mailto:a@b.example", "command:/bin/page 'x y'"]
        oncall, slack, plain_url, mail, command = parse_notify(receivers, settings(text))
        assert (oncall.url, oncall.shape, oncall.when) == ("https://chat.example/secret", "feishu", "always")
        assert slack.url == oncall.url and plain_url.shape == "json" and mail.mail == ("a@b.example",)
        assert command.command == ("/bin/page", "x y")

    @pytest.mark.parametrize(
        ("word", "text"),
        [
            ("oncal", "[notify.oncall]\nurl = 'https://x.example/S3CRET'"),
            ("oncall", "[notify.oncall]\nurl = 'http://x.example/S3CRET'"),
            ("oncall", "[notify.oncall]\nurl = 'file:///etc/S3CRET'"),
            ("oncall", "[notify.oncall]\nurl = 'https://u:S3CRET@x.example/'"),
            ("oncall", "[notify.oncall]\nurl = 'https://x.example:99999/S3CRET'"),
            ("oncall", "[notify.oncall]\nurl = 'https://x.example/S3CRET'\nmail = ['a@b']"),
            ("oncall", "[notify.oncall]\nurl = 'https://x.example/S3CRET'\nshape = 'S'"),
            ("oncall", "[notify.oncall]\nurl = 'https://x.example/S3CRET'\nseconds = 0"),
            ("oncall", "[notify.oncall]\nurl = 'https://x.example/S3CRET'\nretries = 1"),
            ("oncall", "[notify.oncall]\nmail = ['-oQ/tmp@x']"),
            ("oncall", "[notify.oncall]\nmail = ['a@b.example\\nBcc: c@d.example']".replace("'", '"')),
            ("oncall", "[notify]\noncall = 'https://x.example/S3CRET'"),
            ("oncall", "notify = 1"),
            ("slack:http://x.example/S3CRET", ""),
            ("slack:@/no/such/file", ""),
            ("ftp://x.example/S3CRET", ""),
            ("command:'", ""),
            ("command:", ""),
        ],
    )
    def test_mistakes_are_one_line_without_the_url(self, word: str, text: str) -> None:
        with pytest.raises(ConfigError) as raised:
            parse_notify([word], settings(text))
        assert "\n" not in str(raised.value) and "S3CRET" not in str(raised.value)


LOG = "[rank3]: torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB\n"


class TestCommands:
    def test_diagnose_tells_and_its_exit_code_stays(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "rank_3.log").write_text("Traceback (most recent call last):\n" + LOG)
        config = tmp_path / "doctor.toml"
        config.write_text(f'[notify.a]\nurl = "{server.url}"\nhttp = true\n[notify.b]\ncommand = ["/no/pager"]\n')
        argv = ["diagnose", str(tmp_path / "rank_3.log"), "--config", str(config), "--no-history"]
        command = [sys.executable, "-m", "doctor", *argv]
        quiet = preloaded.run(command, capture_output=True, text=True)
        loud = preloaded.run([*command, "--notify", "a", "--notify", "b"], capture_output=True, text=True)
        assert loud.returncode == quiet.returncode == 10
        assert loud.stderr == "doctor: --notify b: not sent: No such file or directory\n"
        assert server.posts[0].body["command"] == "diagnose" and server.posts[0].body["findings"][0]["ranks"] == [3]

    @pytest.mark.parametrize(
        ("word", "code"),
        [("nobody", 2), ("bla:x", 2), ("slack:http://x.example/", 2), ("slack:@/no/such/file", 78), ("broken", 78)],
    )
    def test_a_receiver_that_is_not_known_stops_before_anything_is_done(
        self, word: str, code: int, tmp_path: Path
    ) -> None:
        """A wrong word is a wrong option; a file that is wrong or cannot be read is not."""
        (tmp_path / "doctor.toml").write_text('[notify.broken]\nurl = "gopher://x.example/"\n')
        options = ["--notify", word, "--config", str(tmp_path / "doctor.toml")]
        argv = [sys.executable, "-m", "doctor", "watch", *options, "--", "touch", str(tmp_path / "ran")]
        ended = preloaded.run(argv, capture_output=True, text=True)
        assert ended.returncode == code and ended.stderr.count("\n") == 1 and not (tmp_path / "ran").exists()

    def test_watch_tells_while_the_job_goes_on(self, tmp_path: Path) -> None:
        """The job itself ends when the message has come: it would go on for ever otherwise."""
        pager = tmp_path / "pager"
        pager.write_text(f"#!/bin/sh\ncat >{tmp_path}/part && mv {tmp_path}/part {tmp_path}/message\n")
        pager.chmod(0o755)
        job = (
            f'for i in $(seq 1 40); do echo "step $i loss: nan"; done; '
            f"for i in $(seq 1 1200); do [ -e {tmp_path}/message ] && exit 0; sleep 0.05; done; exit 9"
        )
        argv = [sys.executable, "-m", "doctor", "watch", "--notify", f"command:{pager}", "--", "sh", "-c", job]
        ended = preloaded.run(argv, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 10, ended.stderr
        assert json.loads((tmp_path / "message").read_text())["verdict"] == "failed"


def test_a_thread_that_hangs_is_left_behind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that does not answer takes no limit of ours."""
    ended = threading.Event()
    monkeypatch.setattr("doctor.session.notify.notifier.send", lambda *_: ended.wait(60))
    monkeypatch.setattr("doctor.session.notify.notifier.GRACE_SECONDS", -0.9)
    notify_receiver(NotifyTarget("hook", url="https://x.example/", seconds=1))
    assert capsys.readouterr().err == "doctor: --notify hook: not sent: no answer within 1 s\n"
    ended.set()
