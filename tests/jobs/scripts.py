"""The README's job scripts, cut out as they stand: each follows a marker with its name."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
_FENCE = r"^<!-- job: {name} -->\n```\w+\n(.*?)^```$"

TRAIN = """\
import os
names = [name for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK", "RANK_ID") if name in os.environ]
os.write(1, f"trained {os.environ[names[-1]] if names else '-'} on {os.uname().nodename}\\n".encode())
"""
"""The site's train.py."""


def script(name: str) -> str:
    found = re.findall(_FENCE.format(name=re.escape(name)), README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"the README has {len(found)} scripts with the marker <!-- job: {name} -->"
    return str(found[0])


def trained(said: str) -> list[str]:
    """The hosts that it was trained on, from the output of a job."""
    return sorted(re.findall(r"^trained \S+ on (\S+)$", said, re.MULTILINE))
