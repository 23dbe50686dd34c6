"""The options of `doctor watch`: which ranks it looks at, which logs it follows, and which checks it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from doctor.cli.shared_options import IgnoreOption, SelectOption
from doctor.engine.check import Check
from doctor.engine.loss_rules import LOSS_CHECKS
from doctor.session.select_checks import choose_checks, load_catalog


class AttachOptions(NamedTuple):
    """Which ranks of a job that runs already."""

    attach: Annotated[
        bool, typer.Option("--attach", help="Look at the ranks of a job that runs, on this host or HOSTS.")
    ] = False
    pid: Annotated[
        list[int], typer.Option("--pid", metavar="N", min=1, help="With --attach: only this process; repeatable.")
    ] = []
    job: Annotated[
        str,
        typer.Option(
            "--job", metavar="KIND:ID", help="With --attach: of slurm:ID, ray:ADDRESS/ID, k8s:NAMESPACE/NAME."
        ),
    ] = ""
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", min=1, max=120, help="With --attach: seconds of looking.")
    ] = 4.0
    py_spy: Annotated[
        str, typer.Option("--py-spy", metavar="PATH|off", help="With --attach: py-spy on the hosts; off: no stacks.")
    ] = ""
    stack_signal: Annotated[
        str,
        typer.Option("--stack-signal", metavar="USR1", help="With --attach: ranks with a handler for it dump stacks."),
    ] = ""

    @property
    def requested(self) -> bool:
        return self.attach


class ChoiceOptions(NamedTuple):
    """Which checks are made of what is watched."""

    select: SelectOption = []
    ignore: IgnoreOption = []

    def chosen(self, catalog: Sequence[Check]) -> list[Check]:
        return choose_checks(list(catalog), self.select, self.ignore)

    def ignored(self) -> frozenset[str]:
        """Names of checks of the loss that are not made. Raises: CommandError."""
        if not self.select and not self.ignore:
            return frozenset()

        chosen_names = {check.name for check in self.chosen(load_catalog([]))}
        return frozenset(name for name in LOSS_CHECKS if name not in chosen_names)


LiveOption = Annotated[
    bool, typer.Option("--live", help="Show the ranks on the terminal while the command runs; q closes the view.")
]


class LogOptions(NamedTuple):
    """The logs that are followed, and the pattern of a loss in them and in the output of a command."""

    log: Annotated[
        bool, typer.Option("--log", help="Follow the logs FILE..., -: stdin, for a job that cannot be touched.")
    ] = False
    once: Annotated[bool, typer.Option("--once", help="With --log: read to the end of the logs, and report.")] = False
    loss_regex: Annotated[
        str, typer.Option("--loss-regex", metavar="REGEX", help="What tells a loss in the output, as 'cost=([0-9.]+)'.")
    ] = ""
    same_loss: Annotated[bool, typer.Option("--same-loss", help="All ranks must print the same loss at each step.")] = (
        False
    )
    silent: Annotated[
        float, typer.Option("--silent", metavar="S", min=1, help="Seconds without a loss that may pass.")
    ] = 600.0

    @property
    def requested(self) -> bool:
        return self.log


def live_notifier(
    words: Sequence[str], config: Path | None, source: str, *, redact: bool = False
) -> Callable[[str, bool], None]:
    """What takes a line and whether it is an error. Raises: InputError for receivers that cannot be used.

    ``words``: those of ``--notify``. ``config``: the settings file that was named.
    """
    if not words:
        return lambda _line, _is_error: None
    from doctor.session.notify.notifier import notify_line, notify_targets

    targets = notify_targets(words, config)
    return lambda line, is_error: notify_line(targets, line, "watch", source, is_error=is_error, redact=redact)
