"""Sentences with values, which the controller may show in another language: their template and values go with them."""

HOST_TEXTS = {}  # template -> rows of its values, of what was filled since the last answer
MOST_TEXTS = 500  # rows that one answer carries


def filled(template: str, *values: object) -> str:
    """`template` with `{0}`, `{1}`... replaced by `values`; no other braces may be in it."""
    row = [str(value) for value in values]
    rows = HOST_TEXTS.setdefault(template, [])
    if row not in rows and len(rows) < MOST_TEXTS:
        rows.append(row)
    return template.format(*row)


def with_texts(message: dict) -> dict:  # type: ignore[type-arg]
    """A message as it is sent: with the texts that were filled since the last one, if there are any."""
    if HOST_TEXTS:
        message["texts"] = dict(HOST_TEXTS)
        HOST_TEXTS.clear()
    return message
