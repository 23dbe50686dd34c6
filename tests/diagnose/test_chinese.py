"""A diagnosis in Chinese: what failed, why, how to confirm it and what to do; documents for others stay English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.diagnose.diagnosis import Cause, Culprit
from doctor.diagnose.render.action import _text as action_text
from doctor.diagnose.render.log_values import fill_advice, with_commands
from doctor.diagnose.render.page import signature_page
from doctor.diagnose.signature import load_signatures
from doctor.engine import language
from tests import translations
from tests.diagnose.test_command import LOGS, run

CHINESE = re.compile("[\u4e00-\u9fff]")
SIGNATURES = load_signatures()
MISSING_FILE = """\
[rank2]: Traceback (most recent call last):
[rank2]:   File "/job/train.py", line 17, in <module>
[rank2]:     files = sorted(os.listdir(d))
[rank2]: FileNotFoundError: [Errno 2] No such file or directory: '/data/shards: 00002'
"""
CASES = ["hccl_ei0015", "hccl_ei0013", "afd_error_cqe", "ms_hbm", "afd_socket_p2p"]


@pytest.fixture
def chinese() -> Iterator[None]:
    language.select("zh", {})
    yield
    language.select("en", {})


def logs(name: str) -> list[str]:
    return [str(path) for path in sorted(LOGS.glob(f"{name}*.log"))]


def read_aloud(name: str) -> list[str]:
    """The texts of a signature that people read, and that are more than a command."""
    signature = SIGNATURES[name]
    texts = [signature.title, signature.note, *signature.causes, *signature.confirm, *signature.fix]
    return [text for text in texts if text and translations.has_words(text)]


def without_breaks(text: str) -> str:
    return "".join(text.split())


def test_every_page_of_a_signature_has_the_chinese_of_all_that_people_read(chinese: None) -> None:
    lacking = []
    for signature in SIGNATURES.values():
        page = without_breaks(signature_page(signature, (), 100))
        for text in read_aloud(signature.id):
            output = with_commands(language.localized(text))
            is_prose = text in (signature.note, *signature.causes, *signature.fix)
            is_sentence = is_prose and len(re.findall("[a-z]{3,}", text)) > 2
            if without_breaks(output) not in page or (is_sentence and not CHINESE.search(output)):
                lacking.append(f"{signature.id}: {text}")
    assert lacking == []


def test_the_first_line_is_chinese_beside_an_exception_whose_message_has_colons(tmp_path: Path, chinese: None) -> None:
    """The title stands there with the exception, its place and its message, each behind a colon."""
    (tmp_path / "run.log").write_text(MISSING_FILE)
    first, *_ = run(str(tmp_path / "run.log")).stdout.splitlines()
    assert "某 rank 需要的文件或目录不存在" in first and "A file or folder" not in first, first


@pytest.mark.parametrize("name", CASES)
def test_the_report_says_why_and_what_to_do_in_chinese(name: str, chinese: None) -> None:
    report = run(*logs(name)).stdout
    cause = next(name for name in re.findall(r"（([a-z0-9-]+)[,）]", report) if name in SIGNATURES)
    assert CHINESE.search(report.partition("\n")[0])
    output = without_breaks(report)
    for text in (SIGNATURES[cause].causes[0], SIGNATURES[cause].fix[0]):
        assert without_breaks(fill_advice(language.localized(text), {})) in output
        assert CHINESE.search(language.localized(text))
        assert without_breaks(text) not in output


@pytest.mark.parametrize("name", CASES)
def test_json_is_the_same_in_both_languages(name: str) -> None:
    in_english = run(*logs(name), "-f", "json").stdout
    language.select("zh", {})
    try:
        in_chinese = run(*logs(name), "-f", "json").stdout
    finally:
        language.select("en", {})
    assert in_english and in_chinese == in_english


@pytest.mark.parametrize("name", ["hccl_ei0012_sdma", "ms_hbm_occupied", "hccl_ei0001_ifname_absent"])
def test_the_first_line_has_the_chinese_title(name: str, chinese: None) -> None:
    first, *rest = run(*logs(name)).stdout.splitlines()
    title = next(re.search(r"(\S.*)（[a-z0-9-]+[,）]", line) for line in rest if "（" in line)
    assert title and without_breaks(title[1]).partition("根因")[2] in without_breaks(first)
    assert CHINESE.search(first)


def test_a_first_line_that_is_a_sentence_is_chinese_as_a_whole(chinese: None) -> None:
    assert "HCCL 心跳指出" in run(*logs("hccl_heartbeat_lost")).stdout.splitlines()[0]


def test_the_action_names_the_culprit_in_chinese(chinese: None) -> None:
    cause = Cause("xid-79", "a device's fault", "certain", (Culprit(device=0), Culprit(rank=3, host="n1")), "", ())
    text = action_text("drain-host", cause, ())
    assert "设备 0" in text and "device" not in text and "n1" in text
