"""What a launched process knows of itself, and where it looks for rank 0 when no variable tells."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from doctor.environment.job_context import JobContext, detect
from doctor.smoke.rendezvous import launched
from doctor.smoke.rendezvous.launched import build_hello, with_leader_address
from doctor.transport.launcher import slurm_steps

SRUN = {
    "SLURM_JOB_ID": "42",
    "SLURM_STEP_ID": "1",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "nosuch[0-1]",
}
LOOP = {"RANK_ID": "1", "RANK_SIZE": "2", "DEVICE_ID": "1"}


def taken(environ: dict[str, str]) -> JobContext:
    context = detect(environ, as_rank=True)
    assert context.launcher
    return context


class TestWhereRank0Is:
    def test_slurm_knows_the_address_of_a_node_that_does_not_resolve(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scontrol = tmp_path / "scontrol"
        scontrol.write_text('#!/bin/sh\necho "NodeName=$4 Arch=x86_64 NodeAddr=10.1.2.3 NodeHostName=$4"\n')
        scontrol.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        monkeypatch.setattr(slurm_steps, "_resolves", lambda name: False)
        assert with_leader_address(taken(SRUN), SRUN).leader_addresses == ("nosuch0", "10.1.2.3")

    def test_a_node_that_resolves_is_left_as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(slurm_steps, "_resolves", lambda name: True)
        assert with_leader_address(taken(SRUN), SRUN).leader_addresses == ("nosuch0",)

    def test_without_slurms_tools_nothing_is_added(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        monkeypatch.setattr(slurm_steps, "_resolves", lambda name: False)
        assert with_leader_address(taken(SRUN), SRUN).leader_addresses == ("nosuch0",)

    def test_a_rank_table_says_it_where_master_addr_does_not(self, tmp_path: Path) -> None:
        path = tmp_path / "table.json"
        devices = [
            [{"device_id": "0", "device_ip": f"10.9.0.{number}", "rank_id": str(rank)}]
            for number, rank in ((1, 1), (2, 0))
        ]
        servers = [{"server_id": f"10.0.0.{number}", "device": device} for number, device in enumerate(devices, 1)]
        path.write_text(
            json.dumps({"version": "1.0", "status": "completed", "server_count": "2", "server_list": servers})
        )
        environ = {**LOOP, "RANK_TABLE_FILE": str(path)}
        job_context = with_leader_address(taken(environ), environ)
        assert (job_context.leader_addresses, job_context.leader_address_source) == (("10.0.0.2",), "RANK_TABLE_FILE")
        named = {**environ, "MASTER_ADDR": "w1"}
        assert with_leader_address(taken(named), named).leader_addresses == ("w1",)

    @pytest.mark.parametrize("text", ["", "{}", "[" * 2000, '{"server_list": 3}'])
    def test_a_table_that_cannot_be_read_changes_nothing(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "table.json"
        path.write_text(text)
        environ = {**LOOP, "RANK_TABLE_FILE": str(path)}
        assert with_leader_address(taken(environ), environ) == taken(environ)


class TestTheCard:
    @pytest.mark.parametrize(
        ("visible", "count"),
        [({}, 8), ({"ASCEND_RT_VISIBLE_DEVICES": "3"}, 1), ({"ASCEND_RT_VISIBLE_DEVICES": ""}, 0)],
    )
    def test_counts_the_devices_that_the_process_may_use(
        self, monkeypatch: pytest.MonkeyPatch, visible: dict[str, str], count: int
    ) -> None:
        monkeypatch.setattr(
            os, "listdir", lambda folder: [f"davinci{number}" for number in range(8)] * (folder == "/dev")
        )
        assert build_hello(taken(LOOP), visible).counts == {"npu": count, "gpu": 0}

    def test_has_the_name_that_slurm_gives_the_host(self) -> None:
        environ = {**SRUN, "SLURMD_NODENAME": "n7"}
        assert build_hello(taken(environ), environ).host == "n7"
        assert build_hello(taken(LOOP), LOOP).host == os.uname().nodename

    def test_tells_one_version_of_doctor_from_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ours = build_hello(taken(LOOP), LOOP).version
        monkeypatch.setattr(launched.programs, "worker", lambda: "another")
        assert build_hello(taken(LOOP), LOOP).version != ours
