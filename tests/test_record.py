"""A saved run: it comes back as it was, without secrets, and a broken file is one clear line."""

from __future__ import annotations

import gzip
import io
import json
import re
import time
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine import language
from doctor.engine.fact import Output, ProbeArguments, Visit
from doctor.engine.record import SCHEMA, BadRun, HostRecord, ProbeInputs, Run, SharedOutputs, load_run, load_run_file
from doctor.engine.run_writing import redact_run, run_lines
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import filled


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        ("export AWS_SECRET_ACCESS_KEY=abc/def", "export AWS_SECRET_ACCESS_KEY=[hidden]"),
        ("train.py --api-key sk-1 --lr 3", "train.py --api-key [hidden] --lr 3"),
        ("train.py --password=hunter2 --lr 3", "train.py --password=[hidden] --lr 3"),
        ('{"token": "t0p", "lr": 3}', '{"token": [hidden], "lr": 3}'),
        ("https://me:pw@example.org/x", "https://me:[hidden]@example.org/x"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [hidden]"),
        ("mysql --password hunter2", "mysql --password [hidden]"),
        ("x.--auth-token abc.def;ls", "x.--auth-token [hidden];ls"),
        ("9http://me:pw@example.org/x", "9http://me:[hidden]@example.org/x"),
        ('"aws.secret_key" : "a b" c', '"aws.secret_key" : [hidden] c'),
        ("Server=db;Uid=me;Pwd=q9;Port=1", "Server=db;Uid=me;Pwd=[hidden];Port=1"),
        ("sftp://u:p!$&'()*@h/x", "sftp://u:[hidden]@h/x"),
        ("Passwort=q9", "Passwort=[hidden]"),
        ("パスワード: q9", "パスワード: [hidden]"),
        ("mot_de_passe=q9", "mot_de_passe=[hidden]"),
        ("mysql -u root -pq9x db", "mysql -u root -p[hidden] db"),
        ("docker login -u a -p q9x r.io", "docker login -u a -p [hidden] r.io"),
        ("openssl rsa -passin pass:q9 -in k", "openssl rsa -passin pass:[hidden] -in k"),
        ("os.environ['HF_TOKEN'] = 'q9'", "os.environ['HF_TOKEN'] = [hidden]"),
        ("setenv HF_TOKEN q9", "setenv HF_TOKEN [hidden]"),
        ("<a><password>q9</password></a>", "<a><password>[hidden]</password></a>"),
        ("sent Bearer abcdefgh12345678 to x", "sent Bearer [hidden] to x"),
        ("the password is s3cretWord", "the password is [hidden]"),
        ("echo q9 | sudo -S ls", "echo [hidden] | sudo -S ls"),
        ("ak=HPUA12345 sk=q9", "ak=HPUA12345 sk=[hidden]"),
        (
            "10:01 [r3] -----BEGIN RSA PRIVATE KEY-----\n10:01 [r3] MIIE\n10:01 [r3] -----END RSA PRIVATE KEY-----",
            "10:01 [r3] [hidden]",
        ),
    ],
)
def test_what_looks_like_a_secret_is_hidden(output: str, kept: str) -> None:
    assert hide_secrets(output) == kept


@pytest.mark.parametrize(
    "output",
    [
        "ipaddr:29.1.112.213\nnetmask:255.255.0.0\n",
        "tls switch[0](0:disable, 1:enable), tls preconfigured[1](0:non-preset, 1:preset)",
        "sudo: a password is required",
        "the token is expired and the password was not given",
        "basic understanding of bearer protocols",
        "mkdir -p /tmp/x; docker run -p 8080:80 x; mysqld ready",
        "PWD=/root/a USER=me",
        "hosts at http://h1:8000', 'me@example.org",
        "permission denied: pls check this cmd run permission.",
        "net.ipv4.ip_local_reserved_ports = 60000-60031",
    ],
)
def test_what_the_checks_read_is_left_alone(output: str) -> None:
    assert hide_secrets(output) == output


@pytest.mark.sample
@pytest.mark.parametrize("word", ["token", "a", "a.", "token=", "--token ", "://a:", "http:", '"', 'token"', "'x': "])
def test_the_time_to_redact_grows_with_the_text_alone(word: str) -> None:
    """Four times the text takes four times as long, and not sixteen times; the machine may be busy."""
    seconds = [0.0, 0.0]
    for size, number in ((1 << 14, 0), (1 << 16, 1)):
        for tail in ("", "=", "=x", '="', "\0"):
            began = time.thread_time()
            hide_secrets(word * (size // len(word)) + tail)
            seconds[number] += time.thread_time() - began
    assert seconds[1] < 8 * seconds[0] + 0.1


def test_json_too_deep_to_redact_by_value_is_redacted_as_text() -> None:
    text = "[" * 3000 + '"token=abc"' + "]" * 3000
    assert "abc" not in redact_run(run_of(One=Output(out=text))).hosts["a"].outputs["One"][""].out


def run_of(**outputs: Output) -> Run:
    record = HostRecord(Visit(python="3.11.2"), {name: {"": output} for name, output in outputs.items()})
    return Run(SCHEMA, "the saved hosts", "2026-01-01T00:00:00Z", 1.0, {"a": record})


@pytest.mark.parametrize(
    ("data", "problem"),
    [(gzip.compress(b"{}", mtime=0), "compressed by gzip"), (b"BZh9x", "compressed by bzip2"),
     ("{}".encode("utf-16"), "UTF-16"), (b'{"hosts": {', "it ends too early"),
     (b'{"a" 1}', "JSON is malformed: expected ':' (byte 5)")],
)  # fmt: skip
def test_a_file_in_another_form_is_named_in_both_languages(data: bytes, problem: str) -> None:
    with pytest.raises(BadRun, match=re.escape(problem)) as raised:
        load_run(data, "run.json")
    language.select("zh", {})
    try:
        chinese = language.localized_filled(str(raised.value))
    finally:
        language.select("en", {})
    assert re.findall(r"[A-Za-z]{4,}", chinese.removeprefix("run.json")) in ([], ["gzip"], ["bzip"], ["JSON"])


def test_a_saved_run_comes_back_as_it_was() -> None:
    run = run_of(One=Output(out="x\n", code=3), Two=Output("timeout", seconds=10))
    assert load_run(msgspec.json.encode(run), "f") == run
    assert load_run(b"\xef\xbb\xbf" + msgspec.json.encode(run), "f") == run


def test_a_redacted_run_keeps_its_shape() -> None:
    run = redact_run(run_of(One=Output(out="SECRET=abc\n")))
    assert run.hosts["a"].outputs["One"][""].out == "SECRET=[hidden]\n"


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"schema": "doctor.run/1"}'])
def test_a_file_that_is_no_run_is_one_line(data: bytes) -> None:
    with pytest.raises(BadRun, match=r"^f: not a saved run: [^\n]*$"):
        load_run(data, "f")


def test_another_schema_is_named() -> None:
    data = msgspec.json.encode(msgspec.structs.replace(run_of(), schema="doctor.run/9"))
    with pytest.raises(BadRun, match=r"schema 'doctor.run/9', expected 'doctor.run/5'"):
        load_run(data, "f")


@given(st.binary())
def test_any_bytes_are_a_run_or_one_line(data: bytes) -> None:
    with pytest.raises(BadRun):
        load_run(data, "f")


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = hide_secrets(text)
    assert hide_secrets(once) == once


def test_json_stays_json_without_its_secrets() -> None:
    responses = {"events": [{"text": 'Invalid token: "abc"', "trace": ["a.py:3 read"], "api_key": "k-1", "loss": 1.5}]}
    run = redact_run(run_of(One=Output(out=msgspec.json.encode(responses).decode())))
    (event,) = msgspec.json.decode(run.hosts["a"].outputs["One"][""].out)["events"]
    assert event == {"text": "Invalid token: [hidden]", "trace": ["a.py:3 read"], "api_key": "[hidden]", "loss": 1.5}


def test_a_question_gets_the_given_values_by_their_names() -> None:
    assert set(ProbeArguments.__annotations__) == {
        "asked",
        "by_login",
        "counts_gpus",
        "environ",
        "files",
        "inputs",
        "is_started",
        "likely",
        "login",
        "module",
        "output",
        "program",
        "results",
        "services",
        *ProbeInputs.__struct_fields__,
    }


def lines_of(run: Run) -> bytes:
    return b"".join(run_lines(run))


def of_file(data: bytes, limit: int = 1 << 20) -> Run:
    return load_run_file(io.BytesIO(data), limit, "f")


def two_hosts() -> Run:
    run = run_of(One=Output(out="a\n", seconds=0.25), Two=Output("timeout", seconds=10.0))
    (record,) = run.hosts.values()
    return msgspec.structs.replace(run, hosts={"a": record, "b": record})


def test_each_host_has_a_line_of_its_own_in_a_file_that_is_json() -> None:
    data = lines_of(two_hosts())
    assert len(data.splitlines()) == 4
    assert load_run(data, "f") == load_run(msgspec.json.encode(redact_run(two_hosts())), "f")
    for count in range(3):
        some = msgspec.structs.replace(two_hosts(), hosts=dict(list(two_hosts().hosts.items())[:count]))
        assert of_file(lines_of(some)) == load_run(lines_of(some), "f")


def test_texts_of_a_host_that_doctor_filled_are_in_the_table() -> None:
    text = filled("no {0} on {1}", "link", "host b")
    run = msgspec.structs.replace(run_of(One=Output("error", err=text)), notes=(filled("{0} hosts", 3),))
    saved = msgspec.json.decode(lines_of(run))
    assert saved["texts"] == {"no {0} on {1}": [["link", "host b"]], "{0} hosts": [["3"]]}
    assert saved["texts"] == msgspec.to_builtins(redact_run(run).texts)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"},\n", b"}\n", 1),  # no comma between two hosts
        lambda data: data.replace(b"}\n}", b"},\n}", 1),  # one behind the last
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b'"visit"', b'"visits"', 1),
        lambda data: data.replace(b'"out":"a', b'"out":"\n', 1),
        lambda data: data + b"{}",
    ],
)
def test_lines_that_are_no_json_are_no_run(change: Callable[[bytes], bytes]) -> None:
    data = change(lines_of(two_hosts()))
    with pytest.raises(BadRun) as line_wise:
        of_file(data)
    with pytest.raises(BadRun) as whole:
        load_run(data, "f")
    assert str(line_wise.value) == str(whole.value)


def test_a_second_line_of_a_host_does_not_replace_the_first() -> None:
    with pytest.raises(BadRun, match="host a twice"):
        of_file(lines_of(two_hosts()).replace(b'\n"b"', b'\n"a"'))


def test_lines_of_another_tool_are_read_as_json() -> None:
    data = lines_of(two_hosts())
    document = json.loads(data)
    assert of_file(json.dumps(document, indent=1).encode()) == load_run(data, "f")
    twice = data.replace(b'"notes":', b'"hosts":{"c":{"visit":{}}},"notes":', 1)
    for read in (of_file, lambda saved: load_run(saved, "f")):
        with pytest.raises(BadRun, match="two records"):
            read(twice)


def test_a_file_that_grows_over_its_limit_while_it_is_read_is_refused() -> None:
    data = lines_of(two_hosts())
    for limit in (1, 40, len(data) - 2):
        with pytest.raises((OSError, BadRun)):
            of_file(data, limit)
    assert of_file(data, len(data)) == load_run(data, "f")


def test_what_hosts_answered_alike_is_one_object_whatever_the_time_that_it_took() -> None:
    shared = SharedOutputs()
    raw = [msgspec.Raw(b'{"":{"out":"long","seconds":0.%d}}' % number) for number in range(1, 5)]
    read = [shared.decode(one) for one in raw]
    assert read[1] is read[2] is read[3]
    assert {output[""].seconds for output in read} == {0.0}
    timed = [shared.decode_timed(one)[""] for one in raw]
    assert [output.seconds for output in timed] == [0.1, 0.2, 0.3, 0.4]
    assert all(output.out is read[1][""].out for output in timed)


def test_the_time_of_a_command_that_did_not_end_is_kept() -> None:
    (record,) = load_run(lines_of(run_of(One=Output("timeout", seconds=10.0))), "f").hosts.values()
    assert record.outputs["One"][""].seconds == 10.0
