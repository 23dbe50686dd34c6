"""Output of the commands that evaluate hosts: the report, the exit code, the saved run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from doctor.engine.bounded_read import open_bounded
from doctor.engine.errors import InputError, UsageError, require_one_of
from doctor.engine.exit_code import Exit, exit_code, signal_exit_code
from doctor.engine.interrupts import remove_old
from doctor.engine.record import MAX_RUN_BYTES, BadRun, Run
from doctor.engine.streams import write_stdout
from doctor.engine.texts import filled
from doctor.report.formats.registry import FormatTarget, RenderContext, render
from doctor.report.layout.terminal import detect_terminal
from doctor.session.output_files import (
    EventStreams,
    combine_callbacks,
    open_event_streams,
    output_conflict,
    print_warning,
    requested_targets,
    write_files,
)
from doctor.session.policy import apply_policy, validate_settings
from doctor.session.replay import Examination, load_file, replay

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.result import Report
    from doctor.environment.inventory import Inventory
    from doctor.report.diff.values import RunValues
    from doctor.session.examine_options import ExamineOptions
    from doctor.session.live_hosts import LiveHosts
    from doctor.session.run_history import HistoryOptions


LEAST_HOSTS = 16
"""Of a run whose first errors are shown before its report."""
CLOSING_SECONDS = 5.0
"""Seconds that the process waits, after its report, for the end of connections to hosts that hang."""


class ReportOptions(Protocol):
    """What is put out, and what makes a run fail: `doctor.cli.shared_options.OutputOptions`."""

    @property
    def as_json(self) -> bool: ...
    @property
    def formats(self) -> Sequence[str]: ...
    @property
    def quiet(self) -> bool: ...
    @property
    def redact(self) -> bool: ...
    @property
    def save(self) -> Path | None: ...
    @property
    def config(self) -> Path | None: ...
    @property
    def strict(self) -> bool: ...
    @property
    def fail_on(self) -> str: ...
    @property
    def on_unknown(self) -> str: ...
    @property
    def color(self) -> str: ...
    @property
    def verbose(self) -> bool: ...
    @property
    def brief(self) -> bool: ...
    @property
    def notify(self) -> Sequence[str]: ...


def validate_output(output: ReportOptions, folders: Sequence[Path] = ()) -> None:
    """Raises: CommandError for options that cannot be followed. ``folders`` are those of ``--checks``."""
    require_one_of("--fail-on", output.fail_on, ("error", "warning"))
    require_one_of("--on-unknown", output.on_unknown, ("fail", "warn", "ok"))
    require_one_of("--color", output.color, ("auto", "always", "never"))
    if output.brief and output.verbose:
        raise UsageError("--brief and --verbose exclude each other; expected one of them")
    targets = requested_targets(output.formats, output.as_json)
    outputs = [("--save", str(output.save or "")), *((f"-f {target.name}", target.path) for target in targets)]
    if why := output_conflict(outputs):
        raise UsageError(why)
    if files := [(option, path) for option, path in outputs if path]:
        from doctor.session.named_files import require_writable

        for option, path in files:
            require_writable(option, path)
    validate_settings(output.config, folders)
    if output.notify:
        from doctor.session.notify.notifier import notify_targets

        notify_targets(output.notify, output.config)


def load_saved_run(path: Path, option: str = "--from") -> Run:
    """The run that ``option`` names. Raises: CommandError."""
    try:
        with open_bounded(path, MAX_RUN_BYTES) as file:
            return load_file(file, MAX_RUN_BYTES, str(path))
    except OSError as error:
        raise InputError(filled("{0} {1}: {2}; expected a saved run", option, path, error.strerror)) from None
    except BadRun as error:
        raise InputError(filled("{0} {1}", option, error)) from None


def replay_and_report(
    run: Run,
    selected: list[Check],
    catalog: list[Check],
    output: ReportOptions,
    *,
    named: bool = True,
    command: str = "check",
    connection: tuple[str, ...] = (),
) -> int:
    """Judges a saved run, and reports. Returns the exit code.

    ``named``: the user asks for these very checks; else those that are newer than the run are left out, with a note.
    ``connection``: the options by which another command reaches its hosts.
    """
    judged = selected
    if not named:
        from doctor.session.select_checks import checks_of_run, with_note

        judged = checks_of_run(run, selected)
    report = msgspec.structs.replace(replay(run, judged), connection_words=connection)
    if not named:
        report = with_note(report, run, [check for check in selected if check not in judged])
    return save_and_report(Examination(run, report), catalog, output, command=command)


def examine_and_report(
    inventory: Inventory,
    selected: list[Check],
    options: ExamineOptions,
    environ: Mapping[str, str],
    rank_table: str,
    catalog: list[Check],
    output: ReportOptions,
    history: HistoryOptions | None = None,
    command: str = "check",
    live: bool = False,
) -> int:
    """Visits the hosts, with a progress line or a live view on stderr, and reports. Returns the exit code."""
    from doctor.report.layout.progress_line import ProgressLine
    from doctor.session.examine import examine

    view = _live_hosts(command, inventory) if live else None
    progress = view or ProgressLine(len(inventory.hosts), sys.stderr)
    events = start_events(output, inventory.hosts, selected, inventory.source)
    callbacks = [progress.step, events.host]
    shows = progress.live and (live or len(inventory.hosts) >= LEAST_HOSTS)
    if shows and not output.redact and not options.after_reboot:
        from doctor.session.early_findings import EarlyFindings

        callbacks.append(EarlyFindings(selected, output.config, progress.note).step)
    try:
        examination = examine(
            inventory,
            selected,
            options,
            environ,
            rank_table=rank_table,
            progress=combine_callbacks(*callbacks),
            stage=combine_callbacks(progress.stage, events.stage),
        )
    finally:
        progress.close()
    return save_and_report(examination, catalog, output, events, history, command)


def _live_hosts(command: str, inventory: Inventory) -> LiveHosts | None:
    from doctor.session.live_hosts import open_live_hosts

    return open_live_hosts(command, inventory.source, inventory.hosts)


def start_events(
    output: ReportOptions, hosts: Sequence[str], checks: Sequence[Check] = (), source: str = ""
) -> EventStreams:
    """Tells of the run while it goes on, where ``-f jsonl`` asks for it; for `save_and_report`, too."""
    targets = requested_targets(output.formats, output.as_json)
    for target in targets:
        if target.path:
            remove_old(target.path)  # an earlier report must not be read as that of this run, however it ends
    return open_event_streams(targets, hosts, [check.name for check in checks], source, output.redact)


def save_and_report(
    examination: Examination,
    catalog: list[Check],
    output: ReportOptions,
    events: EventStreams | None = None,
    history: HistoryOptions | None = None,
    command: str = "check",
) -> int:
    """Saves and reports. Returns the exit code. ``events`` have told of the run so far, if any have.

    ``history``: how the run is kept in the history; None keeps it not.
    """
    stopped = examination.stopped
    saved = save_run(output.save, examination) if output.save else True
    report = apply_policy(examination.report, output.config, catalog)
    code = report_exit_code(report, output)
    if stopped is not None:
        code = signal_exit_code(stopped)
    if history is not None:
        from doctor.session.run_history import remember

        history = msgspec.structs.replace(history, code=int(code))
        report = remember(report, catalog, history, values=read_settings(examination, report))
    aliases = [record.visit.name for record in examination.run.hosts.values()] if output.redact else []
    if not saved and code == Exit.HEALTHY:
        code = Exit.NOTHING
    command = "watch" if examination.run.watch else command
    code = write_report(report, catalog, int(code), output, events, aliases, command=command)
    if examination.closing is not None:
        examination.closing.join(CLOSING_SECONDS)
    return code


def read_settings(examination: Examination, report: Report) -> RunValues | None:
    """The settings that the run has read; None where it did not look at all of them."""
    if not any("HostSnapshot" in record.outputs for record in examination.run.hosts.values()):
        return None
    from doctor.report.diff.values import values_of_run

    return values_of_run(examination.run, report, examination.code)


def report_exit_code(report: Report, output: ReportOptions) -> int:
    """The exit code that the options give to a report."""
    return exit_code(report, strict=output.strict, on_unknown=output.on_unknown, fail_on=output.fail_on)  # type: ignore[arg-type]


def save_run(path: Path, examination: Examination) -> bool:
    """Writes the run atomically, readable only by its owner. False, with a line on stderr, when it was not written."""
    from doctor.config.atomic_write import write_pieces
    from doctor.engine.run_writing import run_lines

    made_for = tuple(outcome.check for outcome in examination.report.outcomes)
    run = msgspec.structs.replace(examination.run, checks=made_for)
    try:
        write_pieces(path, lambda: run_lines(run))
    except OSError as error:
        print_warning(filled("--save {0}: {1}; the run was not saved", path, error.strerror))
        return False
    return True


def write_report(
    report: Report,
    catalog: Sequence[Check],
    code: int,
    output: ReportOptions,
    events: EventStreams | None = None,
    aliases: Sequence[str] = (),
    views: Mapping[str, Callable[[RenderContext], str]] = {},
    command: str = "check",
) -> int:
    """The report in every requested format: files first, then stdout. ``views``, ``command``: see `RenderContext`.

    Returns the exit code: ``code``, or 78 where it would be 0 and a file that was asked for could not be written.
    """
    if output.redact:
        from doctor.session.redact import with_pseudonyms

        report = with_pseudonyms(report, aliases)
    targets = requested_targets(output.formats, output.as_json)
    prints_text = not output.quiet and all(target.path for target in targets)
    for_people = prints_text or any(target.name not in ("json", "jsonl") for target in targets)
    checks_by_name = {check.name: check for check in catalog}
    if events is not None:
        events.finish(report, code, checks_by_name)
        targets = tuple(target for target in targets if target.name != "jsonl")
    context = RenderContext(
        code,
        checks_by_name,
        verbose=output.verbose,
        brief=output.brief,
        fixable_checks=_fixable_checks(report) if for_people else (),
        command=command,
        views=views,
    )
    code = _write_files(targets, report, context, has_failed=bool(events and events.failures))
    _print(targets, report, msgspec.structs.replace(context, code=code), output.color, prints_text)
    _notify(report, checks_by_name, code, output, command)
    return code


def _notify(
    report: Report, checks_by_name: Mapping[str, Check], code: int, output: ReportOptions, command: str
) -> None:
    if not output.notify:
        return
    from doctor.session.notify.notifier import notify, notify_targets

    targets = notify_targets(output.notify, output.config)
    notify(targets, report, checks_by_name, code, command, redact=output.redact)


def _print(
    targets: Sequence[FormatTarget], report: Report, context: RenderContext, color: str, prints_text: bool
) -> None:
    """The formats that have no file, and the text where it is wanted."""
    terminal = detect_terminal(sys.stdout, color, os.environ)
    context = msgspec.structs.replace(context, terminal=terminal)
    text_format = ["human" if terminal.tty else "plain"] if prints_text else []
    for name in [*(target.name for target in targets if not target.path), *text_format]:
        write_stdout(render(name, report, context))


def _write_files(targets: Sequence[FormatTarget], report: Report, context: RenderContext, *, has_failed: bool) -> int:
    """Returns the exit code: 78 in place of 0 where a file could not be written. ``has_failed``: one of the events'."""
    failed = write_files(targets, report, context)
    if context.code != Exit.HEALTHY or not (failed or has_failed):
        return context.code
    nothing = int(Exit.NOTHING)
    if failed:  # the files that were written say the same
        written = [target for target in targets if target not in failed]
        write_files(written, report, msgspec.structs.replace(context, code=nothing))
    return nothing


def _fixable_checks(report: Report) -> frozenset[str]:
    """The checks that `doctor fix` could fix; reads nothing if there are no findings."""
    checks = {outcome.check for outcome in report.outcomes if outcome.findings}
    if not checks:
        return frozenset()
    from doctor.remedy.fixable import fixable_checks

    return fixable_checks(checks)
