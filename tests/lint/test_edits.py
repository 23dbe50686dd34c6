"""The change that lint proposes is one after which the same check finds nothing, and its command opens the line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.lint.launch_report import lint_report

HEAD = "#!/bin/bash\ntorchrun --nproc_per_node 8 --nnodes 4 --node_rank $R --master_addr gpu01 pretrain_gpt.py \\\n"
MODEL = "  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --micro-batch-size 1 \\\n"
CHECKS = ("launch-model-not-divisible", "launch-ranks-not-divisible")


@pytest.mark.parametrize(
    "options",
    [
        "--num-experts 8 \\\n  --expert-model-parallel-size 3",
        "--tensor-model-parallel-size 5",
        "--pipeline-model-parallel-size 6",
        "--tensor-model-parallel-size 16 \\\n  --pipeline-model-parallel-size 16",
    ],
)
def test_the_proposed_change_mends_its_finding(options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "run.sh"
    script.write_text(f"{HEAD}{MODEL}  {options}\n")
    edits = []
    for check in CHECKS:
        found = [entry for entry in lint_report(["run.sh"]).outcomes if entry.check == check and entry.findings]
        for finding in found[0].findings if found else ():
            text = str(finding.values["edit"])
            command, before = re.search(r"`(sed -i\.bak [^`]+)`", text), script.read_text()
            assert command, text
            subprocess.run(["bash", "-c", command[1]], check=True)
            assert script.read_text() != before
            edits.append(text)
    assert edits
    after = {entry.check: entry.findings for entry in lint_report(["run.sh"]).outcomes if entry.check in CHECKS}
    assert after == dict.fromkeys(CHECKS, ())


def test_a_name_of_a_file_that_a_shell_reads_otherwise_is_in_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run;id.sh").write_text(f"{HEAD}{MODEL}  --tensor-model-parallel-size 5\n")
    texts = [
        str(finding.values.get("edit", ""))
        for entry in lint_report(["run;id.sh"]).outcomes
        for finding in entry.findings
    ]
    assert any("in place of 5" in text for text in texts) and not any("sed " in text for text in texts)
