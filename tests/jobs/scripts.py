"""The job scripts of doctor/docs/job-scripts.md, as printed: each follows a marker with its name."""

from __future__ import annotations

import re

from doctor.report.explain.topics import topics

_FENCE = r"^<!-- job: {name} -->\n```\w+\n(.*?)^```$"

TRAIN = """\
import os
names = [name for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK", "RANK_ID") if name in os.environ]
os.write(1, f"trained {os.environ[names[-1]] if names else '-'} on {os.uname().nodename}\\n".encode())
"""
"""The site's train.py."""


def script(name: str) -> str:
    """The script with this name. There is exactly one."""
    scripts = re.findall(
        _FENCE.format(name=re.escape(name)), topics()["job-scripts"].read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(scripts) == 1, f"expected one script with the marker <!-- job: {name} -->, observed {len(scripts)}"
    return str(scripts[0])


def trained(output: str) -> list[str]:
    """The hosts that it was trained on, from the output of a job."""
    return sorted(re.findall(r"^trained \S+ on (\S+)$", output, re.MULTILINE))
