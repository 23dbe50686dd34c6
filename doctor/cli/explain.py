"""`doctor explain`: one check, one playbook, or one page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from doctor.cli.explain_search import explain_text
from doctor.cli.fast_explain import explanation
from doctor.cli.shared_options import ChecksOption, PlaybooksOption
from doctor.engine.catalog import check_files, load_check
from doctor.engine.check_files import AREAS
from doctor.engine.errors import CommandError, UsageError, did_you_mean
from doctor.engine.sanitize import printable
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled
from doctor.remedy.catalog import playbooks_for
from doctor.report.explain.checks import check_page
from doctor.report.explain.examples import read_examples
from doctor.report.explain.playbooks import playbook_page
from doctor.report.explain.topics import title, topics
from doctor.report.layout.terminal import page_width
from doctor.session.select_checks import load_errors_as_input_errors, load_playbook_catalog

TOPICS = topics()
NAME_HELP = "A check, a playbook or a topic; an error code, such as EI0006 or Xid 79; or lines of a log."
TOPIC_LINES = "\b\nTopics:\n" + "".join(f"  {name:<12} {title(path)}\n" for name, path in TOPICS.items())


def command(
    name: Annotated[list[str], typer.Argument(metavar="NAME...", help=NAME_HELP)],
    checks: ChecksOption = [],  # noqa: B006
    playbooks: PlaybooksOption = [],  # noqa: B006
) -> None:
    """Explain a check, a playbook, a topic or an error code."""
    _explain(" ".join(name).strip(), checks, playbooks)


def _explain(name: str, checks: Sequence[Path], playbooks: Sequence[Path]) -> None:
    page = None
    with load_errors_as_input_errors(checks):
        paths = {path.stem.replace("_", "-"): path for path, _ in check_files(checks)}
        remedies = load_playbook_catalog(playbooks, checks)
        if name in paths:
            example = read_examples().get(name)
            page = check_page(load_check(paths[name]), playbooks_for(remedies, name), example, page_width())
        elif name not in TOPICS:
            page = next((playbook_page(book, page_width()) for book in remedies if book.name == name), None)
    page = page or explanation(name)
    if page is None:
        error = _unknown_name(name, (*paths, *(playbook.name for playbook in remedies)))
        is_name = re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name)
        is_misspelt = re.fullmatch(r"[a-z]+", name) and ("did you mean" in str(error) or name in AREAS)
        page = explain_text(name) if name and not (is_name or is_misspelt) else ""
        if not page:
            raise error
    write_stdout(page)


command.__doc__ = f"{command.__doc__}\n\n{TOPIC_LINES}"


def _unknown_name(name: str, names: Iterable[str]) -> CommandError:
    if name in AREAS:
        return UsageError(filled("{0} is an area; `doctor list --select {1}` names its checks", name, name))
    topics = ", ".join(TOPICS)
    lists = filled(
        "; `doctor list` names the checks, `doctor list --playbooks` the playbooks, and the topics are {0}", topics
    )
    hint = did_you_mean(name, [*names, *TOPICS]) or lists
    return UsageError(filled("no check, playbook or topic is named '{0}'{1}", printable(name, 100), hint))
