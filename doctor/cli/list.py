"""`doctor list`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from doctor.cli.fast_list import format_check_list, format_matches, read_list_entry, read_search_text
from doctor.cli.search import SearchText, search
from doctor.cli.shared_options import ChecksOption, IgnoreOption, SelectOption
from doctor.engine.catalog import check_files
from doctor.engine.errors import UsageError
from doctor.engine.language import localized
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled
from doctor.report.layout.terminal import terminal_columns
from doctor.session.select_checks import choose_checks, load_catalog, load_errors_as_input_errors, load_playbook_catalog

if TYPE_CHECKING:
    from doctor.diagnose.signature import Signature

WORDS_HELP = "Only what has all these words; with --playbooks also folders of your own, as in ./ours."


def command(
    words: Annotated[list[str], typer.Argument(metavar="[WORD]...", help=WORDS_HELP)] = [],  # noqa: B006
    select: SelectOption = [],  # noqa: B006
    ignore: IgnoreOption = [],  # noqa: B006
    checks: ChecksOption = [],  # noqa: B006
    playbooks: Annotated[bool, typer.Option("--playbooks", help="List the playbooks instead.")] = False,
    signatures: Annotated[bool, typer.Option("--signatures", help="List the log signatures instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List the checks, the playbooks or the log signatures.

    With WORDs: those that have all of them in the name, the claim, the area or the page, best matches first. Letter
    case does not matter. A WORD with a slash is a folder of playbooks.

    Exit codes: 0 something is listed, 1 nothing has all the WORDs, 2 usage, 78 unreadable input.
    """
    if signatures:
        return _list_signatures(words, as_json)
    folders = [Path(word) for word in words if "/" in word]
    search_words = [word for word in words if "/" not in word]
    if playbooks:
        return _list_playbooks(folders, search_words, select, ignore, checks, as_json)
    if folders:
        raise UsageError(filled("{0}: unexpected; expected --playbooks before a folder", folders[0]))
    with load_errors_as_input_errors(checks):
        entries = choose_checks(
            [read_list_entry(path) for path, _ in check_files(checks)], select, ignore, listing=True
        )
        if search_words:
            names = {entry.name for entry in entries}
            texts = [read_search_text(path) for path, _ in check_files(checks)]
            entries = search(search_words, [text for text in texts if text.name in names], "check")
    if as_json:
        from doctor.report.explain.checks import listing_json

        names = {entry.name for entry in entries}
        return write_stdout(listing_json(check for check in load_catalog(checks) if check.name in names))
    columns = terminal_columns()
    return write_stdout(format_matches(entries, columns) if search_words else format_check_list(entries, columns))


def _list_signatures(terms: list[str], as_json: bool) -> None:
    """The log signatures that have all the words."""
    from doctor.diagnose.render.page import signature_list
    from doctor.diagnose.signature import load_signatures

    catalog = load_signatures()
    matches = [catalog[name] for name in sorted(catalog)]
    if terms:
        matches = search(terms, map(_signature_text, matches), "signature")
    if as_json:
        import json

        return write_stdout(json.dumps([msgspec.to_builtins(signature) for signature in matches], indent=1))
    return write_stdout(signature_list(matches, terminal_columns()))


def _signature_text(signature: Signature) -> SearchText[Signature]:
    claim = " ".join((signature.title, localized(signature.title), *signature.codes))
    page = " ".join((signature.note, *signature.components, *signature.causes))
    return SearchText(signature, signature.id, claim, page)


def _list_playbooks(
    folders: list[Path], terms: list[str], select: list[str], ignore: list[str], checks: list[Path], as_json: bool
) -> None:
    """Those that treat at least one of the checks that are chosen."""
    from doctor.report.explain.playbooks import playbook_list, playbook_list_json, playbook_page, playbook_rows

    with load_errors_as_input_errors(checks):
        entries = [read_list_entry(path) for path, _ in check_files(checks)]
    names = {entry.name for entry in choose_checks(entries, select, ignore, listing=True)}
    playbooks = [playbook for playbook in load_playbook_catalog(folders, checks) if names.intersection(playbook.treats)]
    if terms:
        playbooks = search(
            terms, [SearchText(book, book.name, book.title, playbook_page(book)) for book in playbooks], "playbook"
        )
    columns = terminal_columns()
    if as_json:
        return write_stdout(playbook_list_json(playbooks))
    if terms:
        return write_stdout(playbook_rows(playbooks, columns))
    return write_stdout(playbook_list(playbooks, columns) or "no playbook treats these checks\n")
