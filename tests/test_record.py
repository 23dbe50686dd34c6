"""A saved run: it comes back as it was, without secrets, and a broken file is one clear line."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Output, ProbeArguments, Visit
from doctor.engine.record import SCHEMA, BadRun, HostRecord, ProbeInputs, Run, load_run, redact_run
from doctor.engine.secrets import hide_secrets


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
        "permission denied: pls check this cmd run permission.",
        "net.ipv4.ip_local_reserved_ports = 60000-60031",
    ],
)
def test_what_the_checks_read_is_left_alone(output: str) -> None:
    assert hide_secrets(output) == output


@pytest.mark.parametrize("word", ["token", "a", "a.", "token=", "--token ", "://a:", "http:", '"', 'token"', "'x': "])
def test_the_time_to_redact_grows_with_the_text_alone(word: str) -> None:
    began = time.thread_time()
    for tail in ("", "=", "=x", '="', "\0"):
        hide_secrets(word * ((1 << 18) // len(word)) + tail)
    assert time.thread_time() - began < 4


def test_json_too_deep_to_redact_by_value_is_redacted_as_text() -> None:
    text = "[" * 3000 + '"token=abc"' + "]" * 3000
    assert "abc" not in redact_run(run_of(One=Output(out=text))).hosts["a"].outputs["One"][""].out


def run_of(**outputs: Output) -> Run:
    record = HostRecord(Visit(python="3.11.2"), {name: {"": output} for name, output in outputs.items()})
    return Run(SCHEMA, "1 host", "2026-01-01T00:00:00Z", 1.0, {"a": record})


def test_a_saved_run_comes_back_as_it_was() -> None:
    run = run_of(One=Output(out="x\n", code=3), Two=Output("timeout", seconds=10))
    assert load_run(msgspec.json.encode(run), "f") == run


def test_a_redacted_run_keeps_its_shape() -> None:
    run = redact_run(run_of(One=Output(out="SECRET=abc\n")))
    assert run.hosts["a"].outputs["One"][""].out == "SECRET=[hidden]\n"


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"schema": "doctor.run/1"}'])
def test_a_file_that_is_no_run_is_one_line(data: bytes) -> None:
    with pytest.raises(BadRun, match=r"^f: not a saved run: [^\n]*$"):
        load_run(data, "f")


def test_another_schema_is_named() -> None:
    data = msgspec.json.encode(msgspec.structs.replace(run_of(), schema="doctor.run/9"))
    with pytest.raises(BadRun, match=r"schema 'doctor.run/9', expected 'doctor.run/4'"):
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
    assert set(ProbeArguments.__annotations__) == {"asked", *ProbeInputs.__struct_fields__}
