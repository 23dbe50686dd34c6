"""`doctor explain NAME` for a built-in check or a topic, without the weight of a command line."""

from __future__ import annotations

from pathlib import Path

from doctor.engine.check_files import bundled_path
from doctor.report.layout.terminal import page_width, topic_width


def explanation(name: str) -> str | None:
    """The page of a built-in check, playbook or topic, or of what an error code or a line of a log means.

    None for any other name: the complete command line answers it.
    """
    path = Path(bundled_path("checks"), f"{name.replace('-', '_')}.py")
    if name.replace("-", "").isalnum() and path.is_file():
        return check_page(name, path)
    from doctor.report.explain.topics import localized_page, render, topics

    topic = topics().get(name)
    if topic:
        return render(localized_page(topic).read_text("utf-8"), topic_width())
    playbook = Path(bundled_path("playbooks"), f"{name}.toml")
    if name.replace("-", "").isalnum() and playbook.is_file():
        from doctor.remedy.playbook import built_in_playbook
        from doctor.report.explain.playbooks import playbook_page

        return playbook_page(built_in_playbook(playbook), page_width())
    return _signature_pages(name)


def _signature_pages(name: str) -> str | None:
    """The pages of the log signatures that a code or a pasted line leads to; None where there is none for certain."""
    from doctor.diagnose.lookup import find

    if not any(match.is_exact for match in find(name)):
        return None
    from doctor.cli.explain_search import explain_text

    return explain_text(name)


def check_page(name: str, path: Path) -> str:
    """A check's page with its playbooks; of the playbook files only those that mention the check are parsed."""
    from doctor.engine.catalog import load_check
    from doctor.remedy.playbook import built_in_playbook
    from doctor.report.explain.checks import check_page
    from doctor.report.explain.examples import read_examples

    files = [file for file in sorted(Path(bundled_path("playbooks")).glob("*.toml")) if name in file.read_text("utf-8")]
    playbooks = [built_in_playbook(file) for file in files]
    remedies = [playbook for playbook in playbooks if name in playbook.treats]
    return check_page(load_check(path), remedies, read_examples().get(name), page_width())
