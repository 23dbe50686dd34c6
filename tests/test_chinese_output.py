"""What the main commands print in Chinese: how many words of English sentences are left, and that GBK can carry it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.report.layout.formatting import display_width, wrapped

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
}
"""Commands, and how many such words each may still print: lower it when more is translated."""


def output(words: tuple[str, ...], encoding: str, folder: Path) -> str:
    """stdout and stderr of ``doctor WORDS`` in Chinese."""
    real = [word.replace("LOGS", str(LOGS)) for word in words]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "zh_CN", "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-m", "doctor", *real], env=environment, cwd=folder, capture_output=True, timeout=60
    )
    text = (done.stdout + done.stderr).decode(encoding)
    assert "Traceback" not in text
    return text


def english_words(text: str) -> list[str]:
    return SENTENCE.findall(CODE.sub("", QUOTED.sub("", text)))


def test_an_english_sentence_is_noticed() -> None:
    assert english_words("错误：no check is named") == ["is"]
    assert english_words("`this is code`，rank-table 与 /etc/of") == []


@pytest.mark.parametrize("words", LIMITS, ids=" ".join)
def test_no_more_english_than_before_on_a_gbk_terminal(words: tuple[str, ...], tmp_path: Path) -> None:
    text = output(words, "gbk", tmp_path)
    assert re.search("[\u4e00-\u9fff]", text)
    left = english_words(text)
    assert len(left) <= LIMITS[words], left


@pytest.mark.parametrize("width", [80, 120])
def test_a_gbk_terminal_has_two_columns_for_each_ideograph(width: int) -> None:
    """A byte of GBK is a column of its terminal."""
    text = "链路断开时 NPU 与其他主机隔绝，HCCL 报 EI0009（网口断开），或其对端一直等到超时；详见《检查项》。" * 4
    for line in wrapped(text, width):
        assert display_width(line) == len(line.encode("gbk")) <= width
