"""`doctor watch --log`: its options, and the way of one run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from doctor.engine.errors import InputError, UsageError, require_one_of
from doctor.engine.exit_code import Exit
from doctor.engine.language import localized_filled

if TYPE_CHECKING:
    from doctor.cli.output_options import OutputOptions
    from doctor.watch.loss.followed_file import FollowedFile
    from doctor.watch.loss.log_watch import LogWatch
    from doctor.watch.loss.loss_verdicts import LossVerdict

FORMATS = ("human", "plain", "json")


class LogOptions(NamedTuple):
    """Which logs are followed, and how a loss is told in them."""

    log: Annotated[
        bool, typer.Option("--log", help="Follow the logs FILE..., -: stdin, for a job that cannot be touched.")
    ] = False
    once: Annotated[bool, typer.Option("--once", help="With --log: read to the end of the logs, and report.")] = False
    loss_regex: Annotated[
        str,
        typer.Option("--loss-regex", metavar="REGEX", help="With --log: what tells a loss, as 'cost=([0-9.]+)'."),
    ] = ""
    same_loss: Annotated[
        bool, typer.Option("--same-loss", help="With --log: all ranks must print the same loss at each step.")
    ] = False
    silent: Annotated[
        float, typer.Option("--silent", metavar="S", min=1, help="With --log: seconds without a loss that may pass.")
    ] = 600.0
    ignore: Annotated[
        list[str], typer.Option("--ignore", metavar="VERDICT", help="With --log: do not tell it, as stalled; repeat.")
    ] = []

    @property
    def requested(self) -> bool:
        """Whether the command line asks for this mode."""
        return self.log

    def run(self, paths: Sequence[str], output: OutputOptions, *, stop_on_error: bool = False) -> int:
        """Raises: CommandError. Returns: the exit code."""
        from doctor.watch.loss.follow_logs import Follower, follow, read_once
        from doctor.watch.loss.followed_file import FollowedFile
        from doctor.watch.loss.loss_report import exit_code

        chosen = _format(output)
        watch = self._watch(paths)
        files = [FollowedFile(path) for path in paths]
        stopped: int | None = None
        try:
            if self.once:
                failed = read_once(files, watch)
                if failed:
                    path, reason = next(iter(failed.items()))
                    raise InputError(f"{_display_name(path)}: {reason}; expected a log file")
            else:
                follower = Follower(
                    on_verdict=lambda verdict: None if output.quiet else _print_verdict(verdict),
                    on_status=lambda now: _status(watch),
                    on_waiting=lambda path, reason: _print_line(f"{_display_name(path)}: {reason}; waiting for it"),
                )
                follow(files, watch, follower, stop_on_error=stop_on_error)
        except SystemExit as stop:  # a signal: what was seen until then is reported
            stopped = stop.code if isinstance(stop.code, int) else 130
        finally:
            for file in files:
                file.close()
        verdicts = watch.verdicts(time.monotonic() if stopped is not None and not self.once else None)
        code = exit_code(watch, verdicts, strict=output.strict)
        if stopped is not None and code != Exit.FAILED:
            code = stopped
        _print(chosen, watch, verdicts, files, code, output)
        return code

    def _watch(self, paths: Sequence[str]) -> LogWatch:
        from doctor.engine.sanitize import printable
        from doctor.watch.loss.log_watch import LogWatch
        from doctor.watch.loss.loss_pattern import PatternRefusedError, compile_pattern
        from doctor.watch.loss.loss_verdicts import KINDS

        if not paths:
            raise UsageError("--log without a file: expected doctor watch --log FILE..., -: stdin")
        if list(paths).count("-") > 1:
            raise UsageError("- is named twice: expected stdin once")
        for kind in self.ignore:
            require_one_of("--ignore", kind, KINDS)
        try:
            pattern = compile_pattern(self.loss_regex) if self.loss_regex else None
        except PatternRefusedError as error:
            raise UsageError(f"--loss-regex {printable(self.loss_regex, 60)!r}: {error}") from None
        return LogWatch(
            paths, pattern, same_loss=self.same_loss, silent_after=self.silent, ignored=frozenset(self.ignore)
        )


def _format(output: OutputOptions) -> str:
    if output.save or output.from_file:
        raise UsageError("--save and --from are for hosts: expected --log without them")
    name = "json" if output.as_json else next(iter(output.formats), "")
    require_one_of("-f", name, ("", *FORMATS))
    require_one_of("--color", output.color, ("auto", "always", "never"))
    return name or ("human" if sys.stdout.isatty() else "plain")


def _print(
    chosen: str,
    watch: LogWatch,
    verdicts: Sequence[LossVerdict],
    files: Sequence[FollowedFile],
    code: int,
    output: OutputOptions,
) -> None:
    from doctor.report.layout.terminal import detect_terminal
    from doctor.session.console import write
    from doctor.watch.loss.loss_report import document, render_text

    notes = [*watch.notes, *(f"{_display_name(file.path)}: {note}" for file in files for note in file.notes)]
    if chosen == "json":
        import json

        write(json.dumps(document(watch, verdicts, notes, code), ensure_ascii=False, indent=2))
        return
    terminal = detect_terminal(sys.stdout, output.color, os.environ)
    bold = terminal.colour and chosen == "human"
    text = render_text(
        watch, verdicts, notes, terminal.width, unicode=terminal.unicode, bold=bold, verbose=output.verbose
    )
    if output.redact:
        from doctor.session.redact import text_redactor

        text = text_redactor(set())(text)
    if not output.quiet:
        write(text)


def _display_name(path: str) -> str:
    from doctor.engine.sanitize import printable

    return "stdin" if path == "-" else printable(path, 200)


def _print_verdict(verdict: LossVerdict) -> None:
    _print_line(f"{'warning' if verdict.is_warning else 'error'}: {verdict.text} ({verdict.kind})")


def _status(watch: LogWatch) -> None:
    from doctor.watch.loss.loss_report import headline

    steps = [entry.last_step for entry in watch.series.values() if entry.last_step is not None]
    last = f" Last step {max(steps)}." if steps else ""
    _print_line(f"{headline(watch, watch.verdicts(time.monotonic()))}{last}")


def _print_line(text: str) -> None:
    print(f"doctor: {localized_filled(text)}", file=sys.stderr, flush=True)
