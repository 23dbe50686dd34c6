"""What the reports of `reports` look like, kept as text. ``python -m tests.report.golden`` writes the files anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from doctor.engine import language
from doctor.engine.catalog import load_checks
from doctor.engine.check import Check
from doctor.engine.exit_code import exit_code
from doctor.engine.result import Report
from doctor.remedy.fixable import fixable_checks
from doctor.report.formats import oneline
from doctor.report.layout.next_step import advice
from doctor.report.layout.terminal import Terminal
from tests.report import recorded_fleets, rendering, reports

FOLDER = Path(__file__).with_name("golden")
Render = Callable[[Report], str]


def _terminal(width: int, *, verbose: bool = False, unicode: bool = True, colour: bool = False) -> Render:
    look = Terminal(tty=True, colour=colour, unicode=unicode, width=width)
    return lambda report: rendering.text(report, reports.PAGES, terminal=look, verbose=verbose)


def _plain_text(*, verbose: bool = False, unicode: bool = True) -> Render:
    look = Terminal(unicode=unicode)
    return lambda report: rendering.plain(report, reports.PAGES, terminal=look, verbose=verbose)


EVERY: dict[str, Render] = {"tty80": _terminal(80), "tty120": _terminal(120), "plain": _plain_text()}
VERBOSE: dict[str, Render] = {"tty80-v": _terminal(80, verbose=True), "plain-v": _plain_text(verbose=True)}
ASCII: dict[str, Render] = {"ascii80": _terminal(80, unicode=False), "plain-ascii": _plain_text(unicode=False)}
COLOUR: dict[str, Render] = {"colour80": _terminal(80, colour=True)}
MORE = {
    "healthy": VERBOSE,
    "folded": {**VERBOSE, **COLOUR},
    "unknown": {**VERBOSE, **ASCII},
    "dead_host": VERBOSE,
    "crashed": {**VERBOSE, **COLOUR},
    "hostile": ASCII,
    "waived": {**VERBOSE, **ASCII, **COLOUR},
    "smoke_fine": VERBOSE,
    "smoke_hang": {**VERBOSE, **COLOUR},
    "smoke_hostile": ASCII,
}


def _pages() -> dict[str, Check]:
    return {check.name: check for check in load_checks()}


def _recorded(width: int = 0, **options: bool) -> Render:
    """A recorded report with its real pages: in a terminal of ``width``, or in a pipe; no colour, as with NO_COLOR."""
    look = Terminal(tty=bool(width), colour=options.pop("colour", False), width=width or 80)
    show = rendering.text if width else rendering.plain
    return lambda report: show(
        report, _pages(), terminal=look, fixable_checks=fixable_checks(), code=_code(report), **options
    )


def _code(report: Report) -> int:
    return int(exit_code(report))


def _preflight(report: Report) -> str:
    """What `doctor preflight` prints in a job's log."""
    line = oneline.line(report, _code(report), command="preflight")
    return "\n".join([line, *(f"  {step}" for step in advice(report, _pages()))]) + "\n"


RECORDED: dict[str, Render] = {
    "tty80": _recorded(80),
    "tty120": _recorded(120),
    "colour80": _recorded(80, colour=True),
    "brief80": _recorded(80, brief=True),
    "plain": _recorded(),
    "plain-brief": _recorded(brief=True),
    "preflight": _preflight,
}


def _in_chinese(render: Render) -> Render:
    """The same in Chinese."""

    def rendered(report: Report) -> str:
        language.select("zh", {})
        try:
            return render(report)
        finally:
            language.select("en", {})

    return rendered


CHINESE: dict[str, Render] = {
    "zh80": _in_chinese(_recorded(80)),
    "zh120": _in_chinese(_recorded(120)),
    "zh80-brief": _in_chinese(_recorded(80, brief=True)),
    "zh-plain": _in_chinese(_recorded()),
    "zh-preflight": _in_chinese(_preflight),
}
CHINESE_SMOKE: dict[str, Render] = {"zh80": _in_chinese(_terminal(80)), "zh-plain": _in_chinese(_plain_text())}


def files() -> Iterator[tuple[str, Callable[[], str]]]:
    """Every golden file's name, and what it should hold."""
    for name, make in reports.ALL.items():
        chinese = CHINESE_SMOKE if name in ("smoke_hang", "hostile") else {}
        for variant, render in {**EVERY, **MORE.get(name, {}), **chinese}.items():
            yield f"{name}.{variant}.txt", lambda render=render, make=make: render(make())  # type: ignore[misc]
    for name in recorded_fleets.RECORDED:
        for variant, render in {**RECORDED, **CHINESE}.items():
            yield (
                f"{name}.{variant}.txt",
                lambda render=render, name=name: render(recorded_fleets.report(name)),  # type: ignore[misc]
            )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    contents = {name: displayed() for name, displayed in files()}
    for file in FOLDER.glob("*.txt"):
        file.unlink()
    for name, content in contents.items():
        (FOLDER / name).write_text(content, "utf-8")
