"""The third part of a preflight: its one line, its report, the lists of hosts, advice."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from doctor.config.atomic_write import write_atomic
from doctor.engine.exit_code import Exit
from doctor.engine.interrupts import remove_old
from doctor.engine.language import localized_filled
from doctor.engine.streams import print_stderr, write_stdout
from doctor.engine.texts import filled
from doctor.preflight.early_end import claim_line
from doctor.report.formats import oneline
from doctor.report.formats.oneline import join_within, percent_escape
from doctor.report.formats.registry import RenderContext, render_bytes
from doctor.report.layout.fold import fold
from doctor.report.layout.summary_lines import fix_command, fix_offer
from doctor.session.output_files import STDOUT, EventStreams, requested_targets, write_files, write_output

if TYPE_CHECKING:
    from doctor.preflight.deadline import TimeBudget
    from doctor.preflight.decide import PreflightVerdict
    from doctor.preflight.host_leader import LeaderVerdict
    from doctor.preflight.options import PreflightOptions
    from doctor.preflight.spares import SpareSelection

TERMINATION_LOG = "/dev/termination-log"
"""Kubernetes shows what is in it as the container's last message; 4096 bytes of it."""


MAX_CONFLICTS = 2
"""Contradictions that stderr names; the report has all."""
PLUGIN_CHARS = 80
"""``max_output_length`` of node-problem-detector, as it is without a setting (custompluginmonitor/types/config.go)."""


class PreflightReporter:
    """Reports a verdict: files, and exactly one line on stdout, from the thread that comes first."""

    def __init__(self, options: PreflightOptions, environ: Mapping[str, str], budget: TimeBudget) -> None:
        self.options, self.environ, self.budget = options, environ, budget
        self.format_targets = requested_targets(options.formats)
        self.line = ""
        """The line that was printed."""
        self.exit_code = 70
        """The exit code in the line."""
        self._written_paths: set[str] = set()
        self._print_lock = threading.Lock()

    def remove_old_files(self) -> None:
        """What an earlier run has reported is not read as this run's, however this one ends."""
        for path in (self.options.report, *(target.path for target in self.format_targets)):
            if path and path != STDOUT:
                remove_old(path)

    def write_files(self, verdict: PreflightVerdict, events: EventStreams) -> None:
        """Writes all requested files; one that cannot be written is reported and changes no verdict."""
        for option, path, data in _files(verdict, self.options):
            try:
                write_output(path, data)
                self._written_paths.add(path)
            except OSError as error:
                if path != STDOUT:
                    remove_old(path)
                print_stderr(filled("doctor: {0} {1}: {2}; it was not written", option, path, error.strerror or error))
        if self.format_targets:
            checks_by_name = {check.name: check for check in verdict.gathered.catalog}
            events.finish(verdict.report, verdict.code, checks_by_name)
            unwritten = [target for target in self.format_targets if target.name != "jsonl" or not events.streams]
            write_files(unwritten, verdict.report, RenderContext(verdict.code, checks_by_name, command="preflight"))

    def print_line(self, verdict: PreflightVerdict) -> None:
        """The one line on stdout, if none was printed yet."""
        if not self.line:
            report_path = self.options.report if self.options.report in self._written_paths else ""
            line = status_line(verdict, self.options, report_path, self.budget.elapsed_seconds())
            if self.options.exit_code_policy.style == "npd":
                line = plugin_line(verdict, self.options)
            self._print_once(line, verdict.exit_code)

    def print_line_of(self, leader: LeaderVerdict) -> None:
        self._print_once(leader.line, leader.code)

    def _print_once(self, line: str, exit_code: int) -> None:
        with self._print_lock:
            if self.line or not claim_line():
                return
            self.line, self.exit_code = line, exit_code
            if STDOUT in (self.options.write_nodes, self.options.write_bad, self.options.report, self.options.save):
                print_stderr(line)  # stdout holds what was directed there, and nothing else
            else:
                write_stdout(line)
            write_termination_log(line, self.environ)


def status_line(verdict: PreflightVerdict, options: PreflightOptions, report_path: str, seconds: float) -> str:
    """The one line. ``report_path``: of the report that was written; ``seconds``: since the start of the process."""
    from doctor.engine.report_secrets import without_secrets

    gathered, selection = verdict.gathered, verdict.selection
    is_met = selection is not None and options.need and verdict.code == 0
    return oneline.line(
        without_secrets(verdict.report),
        verdict.exit_code,
        command="preflight",
        where=gathered.context.tag if gathered.context else "",
        tier=gathered.tier,
        skipped=gathered.skipped,
        left_out=gathered.excluded,
        need=options.need,
        path=report_path,
        seconds=seconds,
        scope="this-host" if gathered.is_alone else "",
        cause=verdict.cause or verdict.reason,
        word=verdict_word(verdict, options),
        sound=(*selection.hosts, *selection.spares) if selection is not None and is_met else (),
    )


def plugin_line(verdict: PreflightVerdict, options: PreflightOptions) -> str:
    """The message of the condition in node-problem-detector, which keeps 80 characters: word and causes."""
    causes = [name for name, _ in oneline.causes(verdict.report, verdict.code)]
    names = [percent_escape(name) for name in [verdict.cause or verdict.reason, *causes] if name]
    word = verdict_word(verdict, options)
    reasons = join_within(names, PLUGIN_CHARS - len(word) - 5) if word not in ("OK", "SKIP") else ""
    return f"{word}: {reasons}" if reasons else word


def verdict_word(verdict: PreflightVerdict, options: PreflightOptions) -> str:
    """What the verdict's code means, independent of the exit code that the user's policy makes of it."""
    code = verdict.code
    if verdict.gathered.skipped == ("all",):
        return "SKIP"
    if code == Exit.HEALTHY and verdict.selection is not None and options.need:
        return "OK"
    if code not in tuple(Exit):
        return "UNKNOWN"
    words_by_code = {Exit.FAILED: "FAIL", Exit.UNKNOWN: "UNKNOWN", Exit.NOTHING: "NOTHING"}
    return words_by_code.get(Exit(code), oneline.verdict_word(verdict.report, code))


def print_advice(verdict: PreflightVerdict) -> None:
    """Up to five lines on stderr: what is wrong, warnings too, and how to fix it."""
    from doctor.remedy.fixable import fixable_checks

    report = verdict.report
    for text in _scope_lines(verdict):
        print_stderr(filled("doctor: {0}", localized_filled(text)))
    if not report.outcomes or (verdict.code == 0 and oneline.verdict_word(report, 0) != "WARN"):
        return
    checks_by_name = {check.name: check for check in verdict.gathered.catalog}
    for text in [note for note in report.notes if note.startswith("--need ")]:
        print_stderr(filled("doctor: {0}", localized_filled(text)))
    folded, fixable = fold(report), fixable_checks({outcome.check for outcome in report.outcomes if outcome.findings})
    command = fix_command(report, folded, fixable)
    for text in oneline.advice(report, checks_by_name, 4 if command else 5):
        print_stderr(text)
    if command:
        print_stderr(f"{fix_offer(folded, fixable)} {command}")


def _scope_lines(verdict: PreflightVerdict) -> Iterator[str]:
    """Contradictions in the environment, and what a verdict on this host alone, or on too few hosts, is not about."""
    gathered = verdict.gathered
    findings = (finding for outcome in verdict.report.outcomes for finding in outcome.findings)
    is_told = any(finding.values.get("variable") == "RANK" and "other" in finding.values for finding in findings)
    for conflict in gathered.context.conflicts[:MAX_CONFLICTS] if gathered.context else ():
        if not (is_told and conflict.startswith("RANK is ")):
            yield filled("contradiction: {0}", conflict)
    if gathered.hosts_unknown:
        expected = "expected HOSTS, --hostfile FILE or DOCTOR_HOSTS; --scope local checks this host alone"
        yield filled("{0}; {1}", gathered.hosts_unknown, expected)
    elif gathered.is_alone:
        where = gathered.context.description if gathered.context else ""
        if where in ("", "this host alone"):
            yield "this host alone was checked"
        else:
            yield filled("this host alone was checked ({0})", where)


def write_node_files(selection: SpareSelection, options: PreflightOptions) -> list[str]:
    """The lists of hosts. Returns a line for each that could not be written."""
    from doctor.preflight.node_lists import write_node_lists

    lines = write_node_lists(selection, options)
    for text in lines:
        print_stderr(filled("doctor: {0}", text))
    return lines


def write_termination_log(text: str, environ: Mapping[str, str]) -> None:
    """In a pod, writes the line where `kubectl describe` shows it; does nothing where that cannot be written."""
    if not environ.get("KUBERNETES_SERVICE_HOST") or not os.access(TERMINATION_LOG, os.W_OK):
        return
    with suppress(OSError):
        write_atomic(TERMINATION_LOG, text.encode("utf-8", "backslashreplace")[:4000] + b"\n", 0o644)


def _files(verdict: PreflightVerdict, options: PreflightOptions) -> Iterator[tuple[str, str, bytes]]:
    if options.report:
        context = RenderContext(verdict.code, {check.name: check for check in verdict.gathered.catalog})
        yield "--report", options.report, render_bytes("json", verdict.report, context)
    if options.save and verdict.examination is not None:
        from doctor.engine.run_writing import run_lines

        made_for = tuple(outcome.check for outcome in verdict.report.outcomes)
        run = msgspec.structs.replace(verdict.examination.run, checks=made_for)
        yield "--save", options.save, b"".join(run_lines(run))
