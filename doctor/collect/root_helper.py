"""The text of the helper for `--sudo`, and the line of sudoers that allows it and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor import __version__
from doctor.collect.collector import MODULES
from doctor.collect.collector.collector import ROOT_HELPER
from doctor.collect.collector_request import probe_digest, probe_fields
from doctor.engine.fact import OWN_ROUND, Fact
from doctor.engine.texts import filled
from doctor.remote.bootstrap import assemble

_HEAD = f"""\
#!/usr/bin/python3 -IS
# cluster-doctor {__version__}: reads what only root may read, for `doctor check --sudo` of users who may call it.
# It runs the probes that are listed in it, which change nothing. Owner root, mode 0755.
# Install: doctor root-helper --print | sudo tee {ROOT_HELPER} >/dev/null; sudo chmod 0755 {ROOT_HELPER}
"""


def root_probes(facts: Iterable[type[Fact]]) -> dict[str, tuple[str, dict[str, object]]]:
    """Digest and fields of each probe that needs root and no answer of another host, by the fact's name."""
    return {
        fact.__name__: (probe_digest(probe_fields(fact.probe)), probe_fields(fact.probe))
        for fact in sorted({fact.shares or fact for fact in facts}, key=lambda fact: fact.__name__)
        if fact.probe.root and not fact.needs and fact.probe.kind not in ("visit", *OWN_ROUND)
    }


def helper_text(facts: Iterable[type[Fact]]) -> str:
    """The helper, as one file for Python 3.6 and later."""
    program = assemble(*MODULES, "doctor.collect.collector.root_helper")
    listed = ",\n".join(f"    {name!a}: {list(entry)!a}" for name, entry in root_probes(facts).items())
    return f"{_HEAD}{program}\nPROBES = {{\n{listed}\n}}\nhelp_as_root(PROBES)\n"


def sudoers_line(user: str) -> str:
    """The line for ``/etc/sudoers.d``. Raises: ValueError for what is no name of a user or a group there: ``ALL`` is
    everybody, other words in capitals are aliases, and ``Defaults`` begins another kind of line.

    >>> sudoers_line("%hpc")
    '%hpc ALL=(root) NOPASSWD: /usr/local/sbin/doctor-probe ""'
    """
    is_word = re.fullmatch(r"[A-Z][A-Z0-9_]*|Defaults|(?:User|Runas|Host|Cmnd|Cmd)_Alias", user.lstrip("%"))
    if is_word or not re.fullmatch(r"%?[A-Za-z_][A-Za-z0-9_.-]{0,63}", user):
        raise ValueError(filled("{0}: expected a user, or %GROUP", repr(user)))
    return f'{user} ALL=(root) NOPASSWD: {ROOT_HELPER} ""'
