"""The saved help of every command in Chinese: ``python -m tests.regen`` writes it to ``doctor/locale/zh/help/``.

The command line parser folds lines at spaces, and takes an ideograph for one column; so these pages are laid out here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from doctor.cli.app import COMMAND_GROUP, COMMANDS, application, example_lines, grouped_options
from doctor.engine.output_encoding import display_width, padded
from doctor.report.explain.topics import localized_page, title, topics
from doctor.report.layout.formatting import wrapped
from tests.translations import SOURCES, english_texts, translated

FOLDER = SOURCES / "help"
README = FOLDER.parents[2] / "docs" / "zh" / "README.md"
WIDTH = 80
HELP_ROW = ("-h, --help", "显示本帮助并退出。")


def pages() -> Iterator[tuple[Path, str]]:
    """Every saved page and what it should hold."""
    texts = _texts()
    yield FOLDER / "doctor.txt", _page("", texts)
    for name in COMMANDS:
        yield FOLDER / f"{name}.txt", _page(name, texts)
        if any("--help-all" in option.opts for option in _command(name).params):
            yield FOLDER / f"{name}-all.txt", _page(name, texts, every=True)


def with_report(report: str) -> str:
    """The Chinese README with a report in its example."""
    return re.sub(
        r"(--brief\n).*?(```\n<!-- /report)",
        lambda match: f"{match[1]}{report}{match[2]}",
        README.read_text("utf-8"),
        flags=re.S,
    )


def _texts() -> dict[str, str]:
    english = english_texts("help")
    return {english[key]: text for key, text in translated("help").items()}


def _command(name: str) -> Any:
    group: Any = get_command(application([name] if name else []))
    return group.commands[name] if name else group


def _page(name: str, texts: dict[str, str], *, every: bool = False) -> str:
    command = _command(name)
    usage = " ".join(_metavars(command)) if name else "[OPTIONS] COMMAND [ARGS]..."
    lines = [f"用法：doctor {name} {usage}" if name else f"用法：doctor {usage}", ""]
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            lines += ["  主题：", *_topics(), ""]
        else:
            text = " ".join(paragraph.split())
            lines += [f"  {line}" for line in wrapped(texts.get(text, text), WIDTH - 2)] + [""]
    arguments = [
        (_metavar(argument), texts.get(argument.help, argument.help))
        for argument in _arguments(command)
        if argument.help
    ]
    if arguments:
        lines += ["参数：", *_rows(arguments), ""]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    for group, members in grouped_options(options, every) if name else [(COMMAND_GROUP, options)]:
        rows = [(_option(member), _explained(member, texts)) for member in members]
        lines += [f"{texts.get(group, group)}：", *_rows([*rows, *([HELP_ROW] if group == COMMAND_GROUP else [])]), ""]
    lines[-1:] = (
        ["", f"{texts.get('Examples', 'Examples')}：", *examples] if (examples := example_lines(name, texts)) else []
    )
    if not name:
        lines += ["", "命令：", *_rows([(word, texts.get(text, text)) for word, text in COMMANDS.items()])]
    return "\n".join(lines) + "\n"


def _topics() -> Iterator[str]:
    for name, path in topics().items():
        chinese = path.parent / "zh" / path.name
        yield f"  {name:<12} {title(chinese if chinese.is_file() else localized_page(path))}"


def _arguments(command: Any) -> list[Any]:
    return [parameter for parameter in command.params if parameter.param_type_name == "argument"]


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _metavars(command: Any) -> list[str]:
    return ["[OPTIONS]", *map(_metavar, _arguments(command))]


def _option(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    kind = "" if option.is_flag else str(option.metavar or option.type.name).upper()
    return f"{names} {option.metavar or kind}".rstrip() if kind else names


def _explained(option: Any, texts: dict[str, str]) -> str:
    text = texts.get(option.help or "", option.help or "")
    displayed = option.show_default and not option.is_flag and option.default not in (None, "", [], ())
    return f"{text.removesuffix('。')}；默认：{option.default}。" if displayed else text


def _rows(rows: list[tuple[str, str]]) -> Iterator[str]:
    width = min(max(display_width(head) for head, _ in rows), 26)
    for head, text in rows:
        lines = wrapped(text, WIDTH - width - 4)
        if display_width(head) > width:
            yield f"  {head}"
            head = ""
        for number, line in enumerate(lines or [""]):
            yield f"  {padded('' if number else head, width)}  {line}".rstrip()
