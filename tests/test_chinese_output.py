"""What the main commands print in Chinese: how many words of English sentences are left, and that GBK can carry it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from doctor.engine import language
from doctor.engine.catalog import load_checks
from doctor.engine.output_encoding import display_width
from doctor.engine.result import Finding, Outcome, Report
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
CODE = re.compile(r"`[^`]*`|<(script|style)\b.*?</\1>|<code\b.*?</code>|'[^']*'|\"[^\"]*\"", re.DOTALL)
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
    ("watch", "--attach", "--pid", "1", "--interval", "1"): 0,
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
    text = output(arguments, "gbk", tmp_path)
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
REPORT_LIMITS = {"examples": 21}
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


ACTIVITIES = (
    *("sleeps", "computes", "moves", "is not readable", "cannot be read", "waits for a child process", "has ended"),
    *("waits for another of its threads, as in a collective", "waits for bytes from a socket, as of the job's store"),
    *("waits for a signal", "waits for input from stdin", "waits for its data loader", "waits in all_reduce"),
    *("is blocked in read of /data/x", "is blocked in lock", "is in ioctl", "is stopped by a debugger (pid 12)"),
    *("is stopped: kill -CONT 12 continues it", "is frozen (docker pause, the cgroup freezer)", "has no process"),
    "is in an uninterruptible wait of the kernel (nfs_wait), as for a file system or a device",
    "waits in a debugger for a command",
)
"""What `watch --attach` says of a rank, as `rank_activity` writes it."""


@pytest.mark.parametrize("text", ACTIVITIES)
@pytest.mark.usefixtures("chinese")
def test_what_a_rank_does_is_chinese_wherever_it_stands(text: str) -> None:
    for does in (text, f"{text} (train at job.py:10)"):
        process = "" if does.endswith("(pid 12)") else " (pid 7)"
        for sentence in (does, f"it {does}{process}", f"rank 1 (pid 7 on node001) {does}; ranks 0, 2-7 wait."):
            expected_text = language.localized_filled(sentence)
            matches = re.findall(r"[a-z]{2,}", expected_text.replace("kill -CONT", ""))
            names = {"rank", "pid", "job", "py", "train", "read", "lock", "data", "loader", "store", "socket", "stdin"}
            assert set(matches) <= names | {
                "ioctl",
                "all_reduce",
                "all",
                "reduce",
                "docker",
                "pause",
                "cgroup",
                "freezer",
            } | {*("nfs", "wait", "node")}, expected_text
            assert " (" not in expected_text


VALUES = (
    *("one of ranks 0-1", "one of ranks 0, 2", "3 NPUs listed", "4 device files", "a text", "a name", "a process"),
    *("bound; train.py (pid 7, user ann, for 90 s)", "unreachable; no way to it (EINVAL)", ": torch's draws differ"),
    *("line 1 column 25: a comment; JSON has none, remove it", "one of AI_CPU, AIV, HOST", "0 to 3, for 4 devices"),
    *("stopped: kill -CONT 12 continues it (main at train.py:7) (pid 12)", "broadcast (main at train.py:5)"),
    "products of float32 are off by 4e-04 there, by 3e-07 on the others (TF32 or the like)",
    "rank 1 exists 2 times: process 7 on w2 and process 101 on w1; no process is rank 2",
    "the world size differs: rank 2 of a world of 5; ranks 0-1, 3 of a world of 4",
    "`docker run --device /dev/davinci2`, or with the runtime that reads the variable: `--runtime=ascend`",
    "`rm a`, `ipcrm -m 3` and `rm b`",
    "HCCL's heartbeat names host 10.0.0.1, device 1: stuck",
    "it is paired with eno7 of w1, whose 10.1.0.1 no route leads to; a program that sends by MPI hangs or ends",
)
"""Phrases of ours that findings hold as values, as the tests of the checks make them."""


@pytest.mark.parametrize("text", VALUES)
@pytest.mark.usefixtures("chinese")
def test_values_of_findings_are_chinese(text: str) -> None:
    expected_text = CODE.sub("", language.localized_filled(text)).replace("kill -CONT", "")
    names = {
        "bound",
        "train",
        "user",
        "py",
        "pid",
        "main",
        "broadcast",
        "rank",
        "world",
        "eno",
        "torch",
        "float",
        "size",
    }
    assert re.search("[\u4e00-\u9fff]", expected_text), expected_text
    assert set(re.findall(r"[a-z]{2,}", expected_text)) <= names | {"ann"}, expected_text
    assert " (" not in expected_text


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


def test_the_report_of_a_hang_says_in_chinese_what_each_rank_did(chinese: None) -> None:
    state = language.localized_filled("in compute for 1.05 s, sleeping in do_wait")
    assert state == "处于 compute 已 1.05 s，睡眠于 do_wait"
    call = language.localized_filled("rank 2: no collective, after all_reduce #7 (8 x float32, group world; step 1)")
    assert call == "rank 2：不在集合通信中，上一个是 all_reduce #7 (8 x float32, group world; step 1)"
    assert language.localized_filled("set-clock: `command -v chronyc` ended with 127").endswith("以 127 结束")
    assert language.localized_filled("5 of 6 pairs both ways, 1 more one way, 2 ports").count("，") == 2
    parts = "TCP ports 29500, 32768-60999 from n1"
    assert "29500, 32768-60999" in language.localized_filled(f"nftables blocks incoming connections to {parts}")


@pytest.mark.parametrize("width", [80, 120])
def test_a_gbk_terminal_has_two_columns_for_each_ideograph(width: int) -> None:
    """A byte of GBK is a column of its terminal."""
    text = "链路断开时 NPU 与其他主机隔绝，HCCL 报 EI0009（网口断开），或其对端一直等到超时；详见《检查项》。" * 4
    for line in wrapped(text, width):
        assert display_width(line) == len(line.encode("gbk")) <= width
