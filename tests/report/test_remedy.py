from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.engine.catalog import load_checks
from doctor.engine.result import Finding, Outcome, Report
from doctor.engine.shell_quote import placeholder_names, quote_value
from doctor.report.formats.registry import RenderContext, render
from doctor.report.layout.advice import fill_advice
from doctor.report.layout.failures import filled_fix
from doctor.report.layout.host_names import Fleet
from tests.examples import examples


def test_values_are_filled_in_and_other_braces_stay() -> None:
    template = "On {host}: `awk '{print $1}' {path}`, `docker ps --format '{{.Names}}'`, ${HOME}."
    filled = fill_advice(template, {"host": "node001", "path": "/etc/x", "print": "no"})
    assert "On node001: " in filled
    assert "{path}" not in filled
    assert "'{{.Names}}'`, ${HOME}." in filled
    assert placeholder_names("{a} `{b_2} {{c}} ${d}` {E}") == {"a", "b_2"}


def test_a_shell_variable_is_no_placeholder() -> None:
    assert fill_advice("`echo ${host} {print $1}`", {"host": "x"}) == "`echo ${host} {print $1}`"


def test_what_a_host_printed_stays_one_word_of_a_command() -> None:
    assert fill_advice("`kill {pid}`", {"pid": "1; reboot"}) == "`kill '1; reboot'`"
    assert fill_advice("`kill {pid}`", {"pid": "17"}) == "`kill 17`"


def test_a_whole_command_is_the_checks_own() -> None:
    assert fill_advice("Do `{remedy}`.", {"remedy": "sysctl -w a=1"}) == "Do `sysctl -w a=1`."


WITHIN = {"": "printf %s {}", "'": "printf %s '{}'", '"': 'printf %s "{}"'}


@pytest.mark.parametrize("quote", WITHIN)
@settings(max_examples=examples(25), deadline=None)
@given(value=st.text(st.sampled_from("ab \\\"'`$();&|<>*~#\t!{}"), min_size=1, max_size=12))
def test_no_value_escapes_its_place(quote: str, value: str) -> None:
    command = WITHIN[quote].format(quote_value(value, quote))
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == (value, "")


@pytest.mark.parametrize("template", ["`printf %s {v}`", "`printf %s 'a {v}'`", '`printf %s "it\'s {v}"`'])
def test_the_place_is_seen_in_the_template(template: str) -> None:
    value = "x'\"$(echo pwned);y"
    ended = subprocess.run(
        ["sh", "-c", fill_advice(template, {"v": value})[1:-1]], capture_output=True, text=True, check=True
    )
    assert ended.stdout.endswith(value)


def commands_for(values_by_host: dict[str, dict[str, Any]]) -> str:
    checks = {check.name: check for check in load_checks()}
    check = checks["device-mtu-differs"]
    findings = tuple(
        Finding("the MTU of NPU {npu} is {observed}", hosts=(host,), observed=1500, expected=4096, **values)
        for host, values in values_by_host.items()
    )
    outcome = Outcome(
        check.name, check.severity, check.area, "claim", findings=findings, evaluated_hosts=tuple(values_by_host)
    )
    text = render("human", Report("hosts", tuple(values_by_host), (outcome,)), RenderContext(10, checks))
    return " ".join(text.split())


def test_each_host_has_its_own_command_where_few_differ() -> None:
    text = commands_for({"n1": {"npu": 4}, "n2": {"npu": 5}, "n3": {"npu": 5}})
    commands = re.findall(r"On (n\d): `\S*hccn_tool -i (\d) -mtu -s size 4096`", text)
    assert sorted(commands) == [("n1", "4"), ("n2", "5"), ("n3", "5")] and "likewise for" not in text


def test_many_hosts_have_the_command_of_the_first_and_say_so() -> None:
    text = commands_for({f"n{number}": {"npu": number % 8} for number in range(12)})
    assert text.count("-mtu -s size") == 1 and "likewise for the other 11 hosts" in text


def test_a_sentence_about_a_host_that_nothing_names_says_so() -> None:
    """A log of losses has no host: "on  shows memory errors" was printed."""
    fix = "`nvidia-smi -q` on {host} shows memory errors; `ssh {host} true`."
    (line,) = filled_fix(fix, Finding("x"), (), Fleet((), 400))
    assert line == "`nvidia-smi -q` on its host shows memory errors; `ssh <host> true`."
    (named,) = filled_fix(fix, Finding("x"), ("n1",), Fleet(("n1",), 400))
    assert named == "`nvidia-smi -q` on n1 shows memory errors; `ssh n1 true`."
