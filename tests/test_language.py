"""The language of a command: which one it takes, what stays English in it, and that any terminal can show it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from doctor.engine import language
from doctor.engine.errors import UsageError
from doctor.engine.output_encoding import display_width
from doctor.engine.result import fill_template
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled
from doctor.report.formats.registry import FORMATS, REPORT_FORMATS, RenderContext, render
from doctor.report.layout.formatting import sentences, wrapped
from tests.report import recorded_fleets

pytestmark = pytest.mark.every

ROOT = Path(__file__).resolve().parents[1]
CHINESE = re.compile("[\u4e00-\u9fff]")
CHECK = ("check", "--select", "memory", "--on-unknown", "ok")


@pytest.fixture
def chinese() -> Iterator[None]:
    language.select("zh", {})
    yield
    language.select("en", {})


def test_an_english_finding_has_the_name_as_it_is() -> None:
    assert fill_template("no {path}", {"path": "训练 一.sh"}) == "no 训练 一.sh"


def test_the_spaces_of_a_name_stay_where_those_between_chinese_words_go(chinese: None) -> None:
    source = filled("{0} from {1}", count_noun(2, "host"), "hostfile 主机 列表")
    assert language.localized_filled(source) == "2 台主机，来自 hostfile 主机 列表"
    assert language.localized_filled("训练 一.sh") == "训练 一.sh"
    assert language.phrase("examine {who} as below before the job runs again", who="节点 三").count("节点 三") == 1
    assert fill_template("主机 {host} 上 的", {"host": "节点 三"}) == "主机节点 三上的"


def doctor(*arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    bare = {name: value for name, value in os.environ.items() if not re.match(r"LC_|LANG|DOCTOR_|COLUMNS", name)}
    argv = [sys.executable, "-m", "doctor", *arguments]
    return subprocess.run(argv, cwd=ROOT, env=bare | environ, capture_output=True, timeout=300)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.GBK"}, "zh"),
        ({"LANG": "zh"}, "zh"),
        ({"LANG": "zh-CN"}, "zh"),
        ({"LANG": "zh_TW@stroke"}, "zh"),
        ({"LANG": "zha_XX"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN"}, "zh"),
        ({"LANG": "zh_CN", "LC_MESSAGES": "zh_CN", "LC_ALL": "C"}, "en"),
        ({"LANG": "zh_CN", "LC_ALL": ""}, "zh"),
    ],
)
def test_the_locale_decides_as_posix_orders_its_variables(environ: dict[str, str], expected: str) -> None:
    assert language.preferred(environ) == expected


@pytest.mark.parametrize(
    ("argv", "environ", "expected"),
    [
        (["check", "--lang", "zh", "-v"], {}, "zh"),
        (["--lang=zh", "check", "-v"], {"DOCTOR_LANG": "en"}, "zh"),
        (["check", "-v"], {"DOCTOR_LANG": "zh"}, "zh"),
        (["check", "-v"], {"DOCTOR_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        (["check", "-v", "--lang", "auto"], {"DOCTOR_LANG": "en", "LANG": "zh_CN"}, "zh"),
    ],
)
def test_an_option_comes_before_the_variable(argv: list[str], environ: dict[str, str], expected: str) -> None:
    try:
        assert language.take_option(argv, environ) == ["check", "-v"]
        assert language.language() == expected
    finally:
        language.select("en", {})


def test_what_follows_two_dashes_is_another_programs() -> None:
    assert language.take_option(["check", "--", "srun", "--lang", "zh"], {}) == ["check", "--", "srun", "--lang", "zh"]
    assert language.language() == "en"


@pytest.mark.parametrize("argv", [["--lang", "fr"], ["--lang"], ["--lang="], ["--lang=\x1b[31m"]])
def test_a_language_that_there_is_none_of_is_a_usage_error(argv: list[str]) -> None:
    with pytest.raises(UsageError, match=r"--lang '.*': expected en, zh or auto\Z"):
        language.take_option(argv, {})


def test_a_terminal_that_cannot_show_chinese_gets_english() -> None:
    try:
        language.select("auto", {"LANG": "zh_CN"}, "iso8859-1")
        assert language.language() == "en"
        language.select("auto", {"LANG": "zh_CN"}, "gbk")
        assert language.language() == "zh"
    finally:
        language.select("en", {})


@pytest.mark.parametrize("name", [name for name in FORMATS if not REPORT_FORMATS[name].is_localized])
def test_what_programs_read_stays_english(name: str, chinese: None) -> None:
    report = recorded_fleets.report("npu_fleet")
    context = RenderContext(10)
    text = render(name, report, context)
    assert not CHINESE.search(text)
    language.select("en", {})
    assert text == render(name, report, context)


@pytest.mark.parametrize("name", [name for name in FORMATS if REPORT_FORMATS[name].is_localized])
def test_what_people_read_is_chinese(name: str, chinese: None) -> None:
    assert CHINESE.search(render(name, recorded_fleets.report("npu_fleet"), RenderContext(10)))


def page_elements(page: str) -> set[str]:
    """The texts of a page that stand alone in their element."""
    return {unescape(text.strip()) for text in re.findall(r">([^<>]+)<", page)}


@pytest.mark.parametrize("fleet", ["npu_fleet", "cpu_fleet"])
def test_the_html_page_says_nothing_in_english_that_has_chinese(fleet: str, chinese: None) -> None:
    page = render("html", recorded_fleets.report(fleet), RenderContext(10))
    assert [text for text in page_elements(page) if language.localized(text) != text] == []
    assert '<html lang="zh-CN">' in page
    assert '"Nothing matches.":' in page  # the words of its script


def test_the_english_page_carries_no_catalogue() -> None:
    page = render("html", recorded_fleets.report("npu_fleet"), RenderContext(10))
    assert '<html lang="en">' in page
    assert not CHINESE.search(page)
    assert '"words"' not in page


def test_a_gbk_terminal_shows_the_report() -> None:
    done = doctor(*CHECK, LANG="zh_CN.GBK", PYTHONIOENCODING="gbk")
    assert b"Traceback" not in done.stderr
    assert CHINESE.search(done.stdout.decode("gbk"))


def test_what_a_terminal_cannot_show_is_replaced() -> None:
    done = doctor(*CHECK, "--lang", "zh", PYTHONIOENCODING="ascii")
    assert done.stdout.isascii()
    assert b"Traceback" not in done.stderr


def test_json_is_the_same_in_both_languages() -> None:
    documents = [json.loads(doctor(*CHECK, "--json", "--lang", name).stdout) for name in ("en", "zh")]
    keys = [sorted(document) for document in documents]
    assert keys[0] == keys[1]
    assert not CHINESE.search(json.dumps(documents[1], ensure_ascii=False))


def test_the_one_line_of_preflight_is_english() -> None:
    done = doctor("preflight", "--tier", "quick", "--select", "memory", "--quiet", "--lang", "zh")
    assert re.match(r"doctor preflight: [A-Z]+ nodes=", done.stdout.decode())
    assert not CHINESE.search(done.stdout.decode())


@pytest.mark.parametrize(
    ("arguments", "code", "chinese"),
    [
        (("check", "--nix"), 2, "错误：没有选项 --nix"),
        (("nix",), 2, "没有命令"),
        (("check", "--since"), 2, "没有选项"),
        (("check", "node[1-"), 78, "应为范围"),
        (("check", "--checks", "/nix"), 78, "不是目录"),
    ],
)
def test_errors_are_one_line_with_the_same_exit_code(arguments: tuple[str, ...], code: int, chinese: str) -> None:
    done = doctor(*arguments, LANG="zh_CN.UTF-8", PYTHONIOENCODING="utf-8")
    assert (done.returncode, doctor(*arguments).returncode) == (code, code)
    assert chinese in done.stderr.decode()
    assert not done.stdout


@pytest.mark.parametrize(
    "arguments", [("--help",), ("check", "-h"), ("list",), ("explain", "preflight"), ("explain", "gpu-lost")]
)
def test_help_and_pages_are_chinese(arguments: tuple[str, ...]) -> None:
    text = doctor(*arguments, DOCTOR_LANG="zh", PYTHONIOENCODING="utf-8").stdout.decode()
    assert len(CHINESE.findall(text)) > 50
    if "-h" in arguments or "--help" in arguments:
        assert max(map(display_width, text.splitlines())) <= 80


def test_english_loads_no_catalogue() -> None:
    done = doctor("list", LANG="C", PYTHONPROFILEIMPORTTIME="1")
    assert " json" not in done.stderr.decode()


def test_a_line_ends_between_ideographs_and_not_before_a_full_stop() -> None:
    text = "链路断开时 NPU 与其他主机隔绝，HCCL 报 `The network port is down`（EI0009），或其对端一直等到超时。" * 3
    for width in range(20, 90):
        lines = wrapped(text, width)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        for line in lines:
            assert line[0] not in "，。、；：！？）》"
            assert line[-1] not in "（《"
            assert display_width(line) <= width or "`" in line


def test_chinese_sentences_end_at_their_full_stop() -> None:
    assert sentences("先执行 `a。b`。再检查 2.5 s。") == ["先执行 `a。b`。", "再检查 2.5 s。"]
