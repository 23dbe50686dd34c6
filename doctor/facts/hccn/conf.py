"""/etc/hccn.conf: what the NPUs' network ports are set to at every start of the host."""

from __future__ import annotations

import re

from doctor.engine.fact import Fact, ProbeAnswer, read
from doctor.engine.texts import filled

CONF_PATH = "/etc/hccn.conf"


class HccnConf(Fact, frozen=True):
    """The wanted settings of every NPU's network port (``address``, ``netmask``, ``gateway``, ``netdetect`` ...).

    Raw output, from ``/etc/hccn.conf``::

        address_0=29.1.0.1
        netmask_0=255.255.0.0
        netdetect_0=29.1.0.254
    """

    probe = read(CONF_PATH, root=True)

    by_npu: dict[int, dict[str, str]]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HccnConf:
        by_npu: dict[int, dict[str, str]] = {}
        unread: dict[str, str] = {}
        if "" in answer:
            answer.text()  # sudo did not get as far as the file
        for number, line in enumerate(answer.text(CONF_PATH).splitlines(), 1):
            line = line.partition("#")[0].strip()
            setting = re.fullmatch(r"([a-z]\w*)_(\d{1,2})\s*=\s*(\S.*|)", line)
            if setting:
                kept = by_npu.setdefault(int(setting[2]), {})
                if kept.setdefault(setting[1], setting[3]) != setting[3]:
                    unread[filled("{0} line {1}", CONF_PATH, number)] = filled(
                        "{0}_{1} is set twice, to different values", setting[1], setting[2]
                    )
            elif line and not re.fullmatch(r"\w+\s*=.*", line):
                unread[filled("{0} line {1}", CONF_PATH, number)] = "not understood, expected key_N=value"
        return cls(by_npu=by_npu, unread=unread)
