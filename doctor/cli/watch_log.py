"""One run of `doctor watch --log`, and how a loss is read."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from doctor.cli.shared_options import OutputOptions
from doctor.cli.watch_options import ChoiceOptions, LogOptions, live_notifier
from doctor.engine.errors import InputError, UsageError
from doctor.engine.exit_code import Exit
from doctor.engine.loss_rules import LOSS_CHECKS, is_warning
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.engine.watch_summary import LossVerdict, WatchResult
from doctor.session.finish import report_exit_code, save_and_report, validate_output
from doctor.session.output_files import print_warning
from doctor.session.policy import apply_policy
from doctor.session.replay import Examination
from doctor.session.select_checks import load_catalog
from doctor.watch.data_outcomes import evaluate_watch
from doctor.watch.loss.follow_logs import Follower, follow, read_once
from doctor.watch.loss.followed_file import FollowedFile
from doctor.watch.loss.heartbeat_lines import CHECK, heartbeat_run
from doctor.watch.loss.log_watch import (
    LogWatch,
    LossOptions,
    PatternRefusedError,
    compile_pattern,
    headline,
    verdict_line,
)
from doctor.watch.outcome import output_only_run


def loss_options(options: LogOptions, choice: ChoiceOptions) -> LossOptions:
    """How losses are read and judged. Raises: CommandError."""
    try:
        pattern = compile_pattern(options.loss_regex) if options.loss_regex else None
    except PatternRefusedError as error:
        raise UsageError(filled("--loss-regex {0}: {1}", f"{printable(options.loss_regex, 60)!r}", error)) from None
    return LossOptions(pattern, options.same_loss, options.silent, choice.ignored())


def run_log(
    options: LogOptions,
    paths: Sequence[str],
    choice: ChoiceOptions,
    output: OutputOptions,
    *,
    stop_on_error: bool = False,
) -> int:
    """Raises: CommandError. Returns: the exit code."""
    validate_output(output)
    _validate_paths(paths)
    watch = LogWatch(paths, loss_options(options, choice))
    files = [FollowedFile(path) for path in paths]
    stopped: SystemExit | None = None
    began = time.monotonic()
    try:
        if options.once:
            failed = read_once(files, watch)
            if failed:
                path, reason = next(iter(failed.items()))
                raise InputError(filled("{0}: {1}; expected a log file", _display_name(path), reason))
        else:
            follow(
                files,
                watch,
                _follower(watch, output, ", ".join(map(_display_name, paths[:3]))),
                stop_on_error=stop_on_error,
            )
    except SystemExit as stop:  # a signal: what was seen until then is reported
        stopped = stop
    finally:
        for file in files:
            file.close()
    if not watch.losses and not watch.heartbeats and stopped is None:
        raise InputError("found no loss in the log; describe its format with --loss-regex")
    now = time.monotonic()
    # A wait counts as long as the logs were followed, also where a signal ended that.
    verdicts = watch.verdicts(now if not options.once and not all(file.ended for file in files) else None)
    return _report(watch, verdicts, files, choice, output, now - began, stopped)


def _validate_paths(paths: Sequence[str]) -> None:
    """Raises: UsageError."""
    if not paths:
        raise UsageError("--log without a file: expected doctor watch --log FILE..., -: stdin")
    if list(paths).count("-") > 1:
        raise UsageError("- is named twice: expected stdin once")


def _follower(watch: LogWatch, output: OutputOptions, source: str) -> Follower:
    quiet, tell = output.quiet, live_notifier(output.notify, output.config, source, redact=output.redact)

    def on_verdict(verdict: LossVerdict) -> None:
        if not quiet:
            print_warning(verdict_line(verdict))
        tell(verdict_line(verdict), not is_warning(verdict))

    return Follower(
        on_verdict=on_verdict,
        on_status=lambda now: _status(watch),
        on_heartbeat=lambda: None if quiet else print_warning("HCCL's heartbeat names a device"),
        on_waiting=lambda path, reason: print_warning(filled("{0}: {1}; waiting for it", _display_name(path), reason)),
    )


def _report(
    watch: LogWatch,
    verdicts: Sequence[LossVerdict],
    files: Sequence[FollowedFile],
    choice: ChoiceOptions,
    output: OutputOptions,
    seconds: float,
    stopped: SystemExit | None,
) -> int:
    notes = [
        *watch.notes,
        *(filled("{0}: {1}", _display_name(file.path), note) for file in files for note in file.notes),
    ]
    first = ", ".join(_display_name(file.path) for file in files[:3])
    source = joined("", (first, filled(" and {0} more logs", len(files) - 3) if len(files) > 3 else ""))
    result = WatchResult(watch.curves(), tuple(verdicts), "logs", compared=watch.compared)
    ranks = max((rank for rank in watch.series if rank is not None), default=0) + 1
    run = msgspec.structs.replace(
        output_only_run(source, seconds, notes),
        watch=msgspec.to_builtins(result, str_keys=True),
        smoke=heartbeat_run(watch.heartbeats, [file.path for file in files], ranks),
    )
    catalog = load_catalog([])
    names = {*LOSS_CHECKS, *([CHECK] if run.smoke else [])}
    selected = [check for check in choice.chosen(catalog) if check.name in names]
    if not selected:
        raise InputError("--select and --ignore leave no check of the loss")
    report = evaluate_watch(run, selected, catalog)
    # What was found says more than how the following ended.
    is_failed = report_exit_code(apply_policy(report, output.config, catalog), output) == Exit.FAILED
    return save_and_report(Examination(run, report, None if is_failed else stopped), catalog, output)


def _display_name(path: str) -> str:
    return "stdin" if path == "-" else printable(path, 200)


def _status(watch: LogWatch) -> None:
    steps = [entry.last_step for entry in watch.series.values() if entry.last_step is not None]
    last = filled(" Last step {0}.", max(steps)) if steps else ""
    print_warning(f"{headline(watch, watch.verdicts(time.monotonic(), is_over=False))}{last}")
