"""Sends messages beside the run: each in a thread of its own, which is left behind where it does not end in time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from doctor.config.file import ConfigError, find_config
from doctor.config.notify_targets import NotifyTarget, WordError, parse_notify
from doctor.engine.check import Check
from doctor.engine.errors import InputError, UsageError
from doctor.engine.exit_code import Exit
from doctor.engine.result import Report
from doctor.engine.texts import filled
from doctor.session.notify.message import Message, line_message, message_of
from doctor.session.notify.node_status import NodeVerdict
from doctor.session.notify.send import NotSent, send
from doctor.session.output_files import print_warning
from doctor.session.redact import text_redactor

GRACE_SECONDS = 2.0
"""Beyond its own limit, for a thread that is in a call that takes no limit, such as looking up a name."""

MAX_SENDINGS = 256
"""Messages of one process: a bound, for a job whose loss is wrong again and again."""


def notify_targets(words: Sequence[str], config: Path | None) -> tuple[NotifyTarget, ...]:
    """Raises: UsageError for a word, InputError for a file that cannot be followed, before anything is done."""
    try:
        return parse_notify(words, find_config(config, os.environ))
    except WordError as error:
        raise UsageError(str(error)) from None
    except ConfigError as error:
        raise InputError(str(error)) from None


def notify(
    targets: Sequence[NotifyTarget],
    report: Report,
    checks: Mapping[str, Check],
    code: int,
    command: str,
    *,
    redact: bool = False,
) -> None:
    """Begins to tell a verdict to all receivers; `await_notifications` waits for them.

    ``redact``: the report has pseudonyms, and this machine gets one as well.
    """
    chosen = [target for target in targets if target.when == "always" or code not in (Exit.HEALTHY, Exit.NOTHING)]
    if chosen:
        try:
            machine = os.uname().nodename
            message = message_of(report, checks, code, command, _redactor(redact)(machine))
            verdicts = _node_verdicts(chosen, report, code, command, message, redact)
        except Exception as error:  # noqa: BLE001 - a verdict does not depend on its message
            print_warning(filled("--notify: not sent: {0}", type(error).__name__))
        else:
            _start(chosen, message, verdicts)


def _node_verdicts(
    targets: Sequence[NotifyTarget], report: Report, code: int, command: str, message: Message, redact: bool
) -> Sequence[NodeVerdict]:
    """The verdicts for the nodes of Kubernetes, where a receiver is these; else nothing."""
    if not any(target.node_parts for target in targets):
        return ()
    from doctor.session.notify.node_status import COMMANDS, node_verdicts

    if code > Exit.NOTHING:
        return ()  # interrupted: the verdict that the nodes have stands until it is too old
    if redact:
        print_warning("--notify kubernetes: not sent: --redact hides the names of the nodes")
        return ()
    if command not in COMMANDS:
        print_warning(filled("--notify kubernetes: not sent: expected {0}", " or ".join(COMMANDS)))
        return ()
    return node_verdicts(report, code, command, message)


def notify_line(
    targets: Sequence[NotifyTarget],
    headline: str,
    command: str,
    source: str,
    *,
    is_error: bool,
    redact: bool = False,
) -> None:
    """Begins to tell one line about a run that goes on, such as a loss that is NaN."""
    chosen = [target for target in targets if (is_error or target.when == "always") and not target.node_parts]
    if chosen:
        hide = _redactor(redact)
        texts = hide(headline), command, hide(os.uname().nodename), hide(source)
        _start(chosen, line_message(*texts, is_error=is_error))


def _redactor(redact: bool) -> Callable[[str], str]:
    """What replaces the name of this machine, addresses and users by pseudonyms; nothing without ``--redact``."""
    if not redact:
        return str
    name = os.uname().nodename
    return text_redactor({name, name.partition(".")[0]})


def await_notifications() -> None:
    """Waits for what is on its way, each up to its own limit."""
    for sending in _started:
        sending.join()
    _started.clear()


_started: list[_Sending] = []
"""Of this process."""


def _start(targets: Sequence[NotifyTarget], message: Message, verdicts: Sequence[NodeVerdict] = ()) -> None:
    for target in targets:
        if len(_started) < MAX_SENDINGS and (verdicts or not target.node_parts):
            _started.append(_Sending(target, message, verdicts))


class _Sending:
    """One message on its way to one receiver. Says on stderr, in one line, that it was not sent."""

    def __init__(self, target: NotifyTarget, message: Message, verdicts: Sequence[NodeVerdict]) -> None:
        self.target, self.message, self.verdicts = target, message, verdicts
        self.limit = time.monotonic() + target.seconds + GRACE_SECONDS
        self.told = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        problem = ""
        try:
            send(self.target, self.message, self.verdicts)
        except NotSent as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - its text may hold the URL
            problem = type(error).__name__
        if problem:
            self._tell(problem)

    def _tell(self, problem: str) -> None:
        """Once: a thread that was given up may still come to its end."""
        if self.told:
            return
        self.told = True
        print_warning(filled("--notify {0}: not sent: {1}", self.target.name, problem))

    def join(self) -> None:
        self.thread.join(max(self.limit - time.monotonic(), 0))
        if self.thread.is_alive():
            self._tell(filled("no answer within {0} s", self.target.seconds))
