"""What an event adds to the title of its signature: the name of its error code, or its exception and where it arose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from doctor.diagnose.events import Event
from doctor.diagnose.exception_actions import is_shown_as
from doctor.diagnose.signature import Signature
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import filled
from doctor.engine.toml_compat import table_beside

MAX_MESSAGE = 120
"""Characters of the message of an exception; the line itself is shown as evidence."""


_names_by_table = table_beside(__file__, dict[str, dict[str, str]])


def code_name(table: str, code: str) -> str:
    """The code with its name, where the table has it.

    >>> code_name("cann", "507001"), code_name("hccl", "99"), code_name("", "7")
    ('507001 ACL_ERROR_RT_TS_ERROR', '99', '7')
    """
    return f"{code} {_names_by_table().get(table, {}).get(code, '')}".rstrip()


def title_of(signature: Signature, events: Iterable[Event]) -> str:
    """The title, with what all these events have in common."""
    alike = [event.values for event in events if is_shown_as(event, signature)]
    details = {_detail(signature, values) for values in alike}
    messages = {strip_control_chars(hide_secrets(values.get("message", "")), MAX_MESSAGE) for values in alike}
    detail = details.pop() if len(details) == 1 else ""
    if detail and len(messages) == 1 and (message := messages.pop()):
        detail = filled("{0}: {1}", detail, message)
    return filled("{0} ({1})", signature.title, detail) if detail else signature.title


def _detail(signature: Signature, values: Mapping[str, str]) -> str:
    if code := values.get("code", ""):
        return code_name(signature.code_table, code)
    exception, place = values.get("exception", ""), values.get("place", "")
    return filled("{0} at {1}", exception, place) if exception and place else exception
