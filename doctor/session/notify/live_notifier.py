"""Tells verdicts of `doctor watch` that fall while the job goes on; loads nothing where no receiver is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path


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
