"""The language of what people read: English, or a catalogue beside it. Names, keys and machine formats stay English.

The English text is the key. A catalogue is one JSON file that `tests.translations` compiles from `doctor/locale/`;
it is read when the first text is asked for. Text without an entry stays English.

>>> localized("no such text anywhere")
'no such text anywhere'
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from doctor.engine.translation import Catalogue

LANGUAGES = ("en", "zh")
OPTION = "--lang"
VARIABLE = "DOCTOR_LANG"
LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
"""In the order in which POSIX asks them: the first that is not empty decides."""
FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "locale")


class _Selection:
    """The language of this process. English until a command has read its options and environment."""

    def __init__(self) -> None:
        self.name = "en"
        self.encoding = "utf-8"
        """Of stdout."""
        self.catalogues: dict[str, Catalogue] = {}
        self.suspended = 0

    def catalogue(self) -> Catalogue | None:
        if self.name == "en" or self.suspended:
            return None
        if self.name not in self.catalogues:
            self.catalogues[self.name] = _read(self.name)
        return self.catalogues[self.name]


_selection = _Selection()


def _read(name: str) -> Catalogue:
    import json

    from doctor.engine.translation import Catalogue

    try:
        with open(os.path.join(FOLDER, f"{name}.json"), encoding="utf-8") as file:
            return Catalogue(json.load(file))
    except (OSError, ValueError):  # an incomplete installation speaks English
        return Catalogue({})


def preferred(environ: Mapping[str, str]) -> str:
    """The language that the environment asks for: ``zh`` where it names Chinese, else ``en``.

    >>> preferred({"LANG": "zh_CN.GBK"}), preferred({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"})
    ('zh', 'en')
    """
    name = next((environ[variable] for variable in LOCALE_VARIABLES if environ.get(variable)), "")
    return "zh" if name.replace("-", "_").partition(".")[0].partition("_")[0].lower() == "zh" else "en"


def select(requested: str, environ: Mapping[str, str], encoding: str = "utf-8") -> None:
    """Sets the language of this process: one of `LANGUAGES`, or ``auto`` for that of the environment.

    ``encoding``: that of stdout. ``auto`` chooses no language that it cannot write.
    """
    name = preferred(environ) if requested == "auto" else requested
    if requested == "auto" and name != "en" and not _can_write(encoding):
        name = "en"
    _selection.name, _selection.encoding = name, encoding


def is_plain_english(environ: Mapping[str, str]) -> bool:
    """Whether a command line without ``--lang`` is answered in English, for certain."""
    requested = environ.get(VARIABLE) or "auto"
    return requested == "en" or (requested == "auto" and preferred(environ) == "en")


def _can_write(encoding: str) -> bool:
    try:
        "网络".encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def take_option(argv: list[str], environ: Mapping[str, str]) -> list[str]:
    """Selects the language that ``--lang``, else DOCTOR_LANG, else the locale names; returns the other words.

    What follows ``--`` is another program's. Raises: UsageError for a language that there is none of.
    """
    remaining, after = before_launch_line(argv)
    requested, source = environ.get(VARIABLE) or "auto", VARIABLE
    kept: list[str] = []
    remaining.reverse()
    while remaining:
        word = remaining.pop()
        if word == OPTION or word.startswith(f"{OPTION}="):
            source = OPTION
            requested = word[len(OPTION) + 1 :] if word != OPTION else remaining.pop() if remaining else ""
        else:
            kept.append(word)
    if requested not in (*LANGUAGES, "auto"):
        from doctor.engine.errors import UsageError
        from doctor.engine.sanitize import printable
        from doctor.engine.texts import filled

        choices = ", ".join(LANGUAGES)
        raise UsageError(filled("{0} '{1}': expected {2} or auto", source, printable(requested, 40), choices))
    select(requested, environ, getattr(sys.stdout, "encoding", None) or "ascii")
    return kept + after


def before_launch_line(argv: list[str]) -> tuple[list[str], list[str]]:
    """The words of doctor, and those from ``--`` on, behind which another program's stand."""
    place = argv.index("--") if "--" in argv else len(argv)
    return argv[:place], argv[place:]


def is_english() -> bool:
    """Whether texts are shown as they are written in the code."""
    return _selection.name == "en" or bool(_selection.suspended)


def language() -> str:
    """The name of this process's language, one of `LANGUAGES`."""
    return "en" if _selection.suspended else _selection.name


def output_encoding() -> str:
    """The encoding of stdout, as given to `select`."""
    return _selection.encoding


def localized(text: str) -> str:
    """A text or template of the program in the language of this process."""
    catalogue = _selection.catalogue()
    return text if catalogue is None else catalogue.texts.get(text, text)


def localized_template(template: str) -> str:
    """The same for the template of a finding, which may be joined from several texts of the program."""
    catalogue = _selection.catalogue()
    return template if catalogue is None else catalogue.template(template)


def localized_filled(text: str) -> str:
    """The same for a text whose values are filled in: a reason, a note, an error line."""
    catalogue = _selection.catalogue()
    translation = text if catalogue is None else catalogue.filled(text)
    return text if catalogue is None or translation == text else catalogue.without_loose_spaces(translation)


def phrase(template: str, **values: object) -> str:
    """``template`` in the language of this process, filled.

    >>> phrase("{count} of {total}", count=3, total=5)
    '3 of 5'
    """
    catalogue = _selection.catalogue()
    return template.format(**values) if catalogue is None else catalogue.phrase(template, values)


def without_loose_spaces(text: str) -> str:
    """Without the spaces between two Chinese words, where a value was filled in; commands in backquotes stay.

    >>> select("zh", {})
    >>> without_loose_spaces("来自 其他主机 的连接。 见 doctor fix（`echo 一 二`）")
    '来自其他主机的连接。见 doctor fix（`echo 一 二`）'
    >>> without_loose_spaces("网口没有链路。。见 .bashrc。.")
    '网口没有链路。见 .bashrc。'
    >>> select("en", {})
    """
    catalogue = _selection.catalogue()
    return text if catalogue is None else catalogue.without_loose_spaces(text)


class english:  # noqa: N801 - reads as what it does: ``with english():``
    """A context in which texts stay English: for what programs read."""

    def __enter__(self) -> None:
        _selection.suspended += 1

    def __exit__(self, *_: object) -> None:
        _selection.suspended -= 1
