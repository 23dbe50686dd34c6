"""What the main commands print in Chinese: how many words of English sentences are left, and that GBK can carry it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from doctor.engine import language
from doctor.engine.catalog import load_checks
from doctor.engine.evaluate import FactCache
from doctor.engine.output_encoding import display_width
from doctor.engine.result import Finding, Outcome, Report
from doctor.facts.disk import DiskSpace
from doctor.report.explain.checks import check_page
from doctor.report.explain.examples import read_examples
from doctor.report.formats.registry import RenderContext, render
from doctor.report.layout.formatting import wrapped
from tests import preloaded
from tests.report import recorded_fleets, reports

CHECKS = {check.name: check for check in load_checks()}

LOGS = Path(__file__).parent / "diagnose" / "logs"
SENTENCE = re.compile(
    r"(?<![\w./=-])(?:the|of|is|are|was|were|not|with|which|that|than|by|and|or|has|have|does|this|it)(?![\w./=-])"
)
"""Words that only an English sentence has, and no name or value."""
CODE = re.compile(
    r"`[^`]*`|<(script|style)\b.*?</\1>|<code\b.*?</code>|(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\n?[^\"\n]*\"", re.DOTALL
)
QUOTED = re.compile(r"^ *(?:证据|doctor: 警告).*$", re.MULTILINE)
"""Lines that quote a log."""
LIMITS: dict[tuple[str, ...], int] = {
    ("--help",): 0,
    ("check", "--help"): 0,
    ("fix", "--help"): 0,
    ("diagnose", "--help"): 0,
    ("watch", "--help"): 0,
    ("net", "--help"): 0,
    ("list", "--help"): 0,
    ("check",): 0,
    ("check", "--checks", "/nosuch"): 0,
    ("check", "--timeout", "abc"): 0,
    ("check", "--timeout"): 0,
    ("check", "--format", "nosuch"): 0,
    ("check", "--hosts", "a[1"): 0,
    ("check", "-F", "/nosuch"): 0,
    ("check", "--no-hosts", "--rank-table", "/nosuch"): 0,
    ("preflight",): 0,
    ("preflight", "--tier", "nosuch"): 0,
    ("smoke", "--layout", "nosuch"): 0,
    ("net", "--nosuch"): 0,
    ("explain", "gpu-lost"): 18,
    ("explain", "preflight"): 0,
    ("explain", "watch"): 0,
    ("explain", "nosuchthing"): 0,
    ("explain", "raise-listen-queues"): 0,
    ("list", "nosuch"): 0,
    ("lint", "--", "torchrun", "--nproc-per-node", "8", "train.py"): 0,
    ("lint", "/nosuch"): 0,
    ("history",): 0,
    ("report", "/nosuch"): 0,
    ("merge", "/nosuch"): 0,
    ("rank-table",): 0,
    ("watch",): 0,
    ("watch", "--attach", "--pid", "999999"): 0,
    ("watch", "--", sys.executable, "-c", "print(1)"): 0,
    ("fix", "--plan"): 0,
    ("fix", "nosuch"): 0,
    ("nosuch",): 0,
    ("probe",): 0,
    ("diagnose", "/nosuch"): 0,
    ("diagnose", "LOGS/hccl_ei0004_ranktable_path.log"): 0,
    ("diagnose", "LOGS/hccl_ei0004_ranktable_path.log", "-f", "md"): 0,
    ("diagnose", "LOGS/hccl_ei0004_ranktable_path.log", "-f", "html"): 0,
    ("explain", "EI0006"): 13,  # a line of a log
    ("explain", "Xid 79"): 0,
    ("explain", "shared memory docker"): 0,
    ("explain", "DrvMngGetConsoleLogLevel failed. (ret=4)"): 1,  # a line of a log
    ("watch", "--attach", "--pid", "PROCESS", "--interval", "1"): 0,  # of no job
}
"""Commands, and how many such words each may still print: lower it when more is translated."""


def output(arguments: tuple[str, ...], encoding: str, folder: Path) -> str:
    """stdout and stderr of ``doctor WORDS`` in Chinese."""
    real = [word.replace("LOGS", str(LOGS)) for word in arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "zh_CN", "PYTHONIOENCODING": encoding}
    argv = [sys.executable, "-m", "doctor", *real]
    done = preloaded.run(argv, own_server=True, env=environment, cwd=folder, capture_output=True, timeout=60)
    text: str = (done.stdout + done.stderr).decode(encoding)
    assert "Traceback" not in text
    return text


def english_words(text: str) -> list[str]:
    return SENTENCE.findall(CODE.sub("", QUOTED.sub("", text)))


def test_an_english_sentence_is_noticed() -> None:
    assert english_words("错误：no check is named") == ["is"]
    assert english_words("`this is code`，rank-table 与 /etc/of") == []


@pytest.mark.parametrize("arguments", LIMITS, ids=" ".join)
def test_no_more_english_than_before_on_a_gbk_terminal(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        text = output(tuple(word.replace("PROCESS", str(process.pid)) for word in arguments), "gbk", tmp_path)
        process.kill()
    assert re.search("[\u4e00-\u9fff]", text)
    remaining = english_words(text)
    assert len(remaining) <= LIMITS[arguments], remaining


@pytest.fixture
def chinese() -> Iterator[None]:
    language.select("zh", {})
    yield
    language.select("en", {})


def one_finding_of_each() -> Report:
    """The example finding of each check, as if one run had found all of them."""
    outcomes = []
    for name, row in read_examples().items():
        check, finding = CHECKS[name], Finding(row.template, hosts=("node001",), **row.values)
        outcomes.append(Outcome(name, check.severity, check.area, check.claim, (finding,), ("node001", "node002")))
    return msgspec.structs.replace(reports.report(*outcomes, hosts=("node001", "node002")), source="")


REPORTS = {name: partial(recorded_fleets.report, name) for name in recorded_fleets.RECORDED}
REPORT_LIMITS = {"examples": 18}
"""How many words of English sentences a report may still have, beyond what stands between quotation marks.

Those of the examples are all quotations: of kernels, drivers, DCGM and HCCL."""


@pytest.mark.parametrize("name", [*REPORTS, "examples"])
@pytest.mark.parametrize("form", ["human", "plain", "md"])
@pytest.mark.usefixtures("chinese")
def test_reports_have_no_english_sentence(name: str, form: str) -> None:
    """Those of real fleets, and one finding of each check."""
    report = REPORTS.get(name, one_finding_of_each)()
    remaining = english_words(render(form, report, RenderContext(10, CHECKS)))
    assert len(remaining) <= REPORT_LIMITS.get(name, 0), remaining


def test_each_part_of_a_fact_that_is_not_known_is_chinese(chinese: None) -> None:
    reason = "its control group is not shown: it is not mounted"
    fact = DiskSpace(file_systems=(), unread={"cpu": reason, "pids": reason})
    assert language.localized_filled(FactCache({}).why_unread(fact).text) == (
        "cpu：看不到其控制组：控制组没有挂载；pids：看不到其控制组：控制组没有挂载"
    )


def test_no_space_stands_between_chinese_words(chinese: None) -> None:
    finding = Finding("{manager} blocks {what} TCP ports {ports} {way} {peers}", manager="nft", what="inbound")
    finding.values.update(ports="29500", way="from", peers="every other host")
    check = CHECKS["firewall-blocks-job"]
    outcome = Outcome(check.name, check.severity, check.area, check.claim, (finding,), ("node001",))
    text = render("plain", reports.report(outcome, hosts=("node001",)), RenderContext(10, CHECKS))
    assert "阻断了来自其他所有主机的" in text


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize("name", [*REPORTS, "examples"])
def test_values_leave_no_space_between_chinese_words(name: str) -> None:
    text = render("plain", REPORTS.get(name, one_finding_of_each)(), RenderContext(10, CHECKS))
    lines = [line.partition("  ")[2] or line for line in CODE.sub("X", text).splitlines()]
    assert not [line for line in lines if re.search("[\u4e00-\u9fff，。；：] [\u4e00-\u9fff]", line.strip())]


def test_the_advice_of_every_page_is_chinese_with_the_values_of_its_example(chinese: None) -> None:
    examples = read_examples()
    english = []
    for check in CHECKS.values():
        advice = check_page(check, example=examples[check.name], width=10000).partition("\n处理方法\n")[2]
        for line in re.split("\n(?:依据|在主机上执行的内容)\n", advice)[0].splitlines():
            if not re.search("[\u4e00-\u9fff]", line) and len(re.findall(r"\b[a-z]{2,}\b", CODE.sub("", line))) > 3:
                english.append(f"{check.name}: {line}")
    assert english == []


@pytest.mark.parametrize("width", [80, 120])
def test_a_gbk_terminal_has_two_columns_for_each_ideograph(width: int) -> None:
    """A byte of GBK is a column of its terminal."""
    text = "链路断开时 NPU 与其他主机隔绝，HCCL 报 EI0009（网口断开），或其对端一直等到超时；详见《检查项》。" * 4
    for line in wrapped(text, width):
        assert display_width(line) == len(line.encode("gbk")) <= width
