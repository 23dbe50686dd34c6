"""What a check claims is what was looked at: each clause of its claim has a test that makes it untrue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.engine.catalog import load_checks
from tests.claims import clauses_of_faults, parts, proofs, unproven

pytestmark = pytest.mark.every

PLUGIN, OUTPUT = "tests.clause_findings", "CLAUSE_FINDINGS"
CLAIMS = {check.name: check.claim for check in load_checks()}


@pytest.mark.parametrize("check", sorted(CLAIMS))
def test_each_clause_has_a_proof(check: str) -> None:
    assert list(unproven(check, CLAIMS[check])) == [], "name the test in tests/claims.toml, or claim less"


def test_each_proof_is_for_words_of_the_claim() -> None:
    for table in (proofs(), clauses_of_faults()):
        for check, clauses in table.items():
            for clause in clauses:
                assert clause in CLAIMS[check], (check, clause)
    assert all(len(parts(CLAIMS[check])) > 1 for check in proofs()), "a claim of one clause needs no row"


@pytest.mark.every
def test_each_proof_makes_its_finding(tmp_path: Path) -> None:
    """The tests of the table are run once more: each exists, passes, and makes its check find what the table says."""
    tests = sorted({f"tests/{proof.test}" for clauses in proofs().values() for proof in clauses.values()})
    output = tmp_path / "findings.json"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN, *tests],
        env={**os.environ, OUTPUT: str(output), "DOCTOR_TEST_SAMPLE": "all"},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    findings = json.loads(output.read_text("utf-8"))
    for check, clauses in proofs().items():
        for clause, proof in clauses.items():
            texts = [text for name, text in findings.get(proof.test, ()) if name == check]
            assert any(proof.says in text for text in texts), (check, clause, proof, texts[:5])


def test_a_clause_without_a_proof_is_seen() -> None:
    claim = "The disks are writable, and none of them is slow"
    assert list(unproven("folder-not-writable", claim)) == ["none of them is slow"]
