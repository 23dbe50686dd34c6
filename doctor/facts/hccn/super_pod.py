"""The super pod that an A3 host is part of."""

from __future__ import annotations

import re

from doctor.fact import Absent, Answer, Fact, Unreadable, run, trouble
from doctor.facts.hccn.tool import field


class SuperPod(Fact, frozen=True):
    """Which super pod the host is in, and as which server of it."""

    # All NPUs of a host are in one super pod: its first chip speaks for them.
    probe = run("npu-smi info -t spod-info -i 0 -c 0", requires="npu-smi", lane="npu-smi", timeout=20)

    id: int
    server: int
    size: int

    @classmethod
    def read(cls, answer: Answer) -> SuperPod:
        output = answer[""]
        text = f"{output.out}\n{output.err}"
        if re.search(r"does not support|not supported|Command or option is not found", text):
            raise Absent("this product has no super pods")
        answer.text()
        try:
            numbers = [int(field(name, text)) for name in ("Super Pod ID", "Server Index", "Super Pod Size")]
        except ValueError:
            raise Unreadable(f"npu-smi info -t spod-info: {trouble(output) or 'not understood'}") from None
        return cls(id=numbers[0], server=numbers[1], size=numbers[2])
