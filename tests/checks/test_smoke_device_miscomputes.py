from __future__ import annotations

from doctor.facts.smoke.first_stages import RankJoined
from doctor.facts.smoke.further_stages import DeviceMiscomputed, DeviceTimes
from tests.checks.smoke import alter, device_events, devices, findings_of, page, ran, run_check, start_events, started

NAME = "smoke_device_miscomputes"
EQUAL = "expected equal bits"
WRONG = DeviceMiscomputed(5, "product float32", "exact", 2, 3, 5, 7, 1, 12.0, "13.0")


def test_sound_devices() -> None:
    run = ran(8, 2, devices=True)
    assert run_check(NAME, run, devices(run), started(run)).complete
    assert not findings_of(NAME, run, devices(run), started(run))


def test_a_wrong_product_names_the_element_and_the_device() -> None:
    run = ran(8, 2, devices=True)
    (finding,) = findings_of(NAME, run, devices(run, WRONG), started(run))
    assert finding.hosts == ("w2",)
    assert not finding.is_warning
    assert str(finding) == (
        "rank 5 (GPU 1), product float32: 2 of 3 products of whole numbers are not the exact product: row 5, column 7 "
        "is 13.0; expected 12.0 (1 wrong element in this row)"
    )
    assert "Take the device of rank 5 (GPU 1) on w2 out of the job" in page(NAME, finding)


def test_repeats_and_copies_are_told_apart() -> None:
    run = ran(8, 2, devices=True)
    repeat = DeviceMiscomputed(0, "product int8", "repeat", 1, 100)
    copies = DeviceMiscomputed(0, "memory", "copy", 3, 30)
    texts = [str(finding) for finding in findings_of(NAME, run, devices(run, repeat, copies), started(run))]
    assert texts == [
        "rank 0 (GPU 0), memory: 3 of 30 copies differ from what was copied; expected equal bytes",
        "rank 0 (GPU 0), product int8: 1 of 100 repeats of the same product differ from its first result; " + EQUAL,
    ]


def test_another_checksum_than_most_is_a_warning() -> None:
    run = ran(8, 2, devices=True)
    events = alter(device_events(run), 6, DeviceTimes, fingerprint=98, where=("test", "product bfloat16"))
    (finding,) = findings_of(NAME, run, devices(run, events=events), started(run))
    assert finding.is_warning
    assert finding.hosts == ("w2",)
    assert str(finding) == (
        "rank 6 (GPU 2): another result than most devices of the same model with the same torch: product bfloat16; "
        "each repeats it"
    )


def test_with_another_torch_or_model_another_checksum_says_nothing() -> None:
    run = ran(8, 2, devices=True)
    events = alter(device_events(run), 6, DeviceTimes, fingerprint=98, where=("test", "product bfloat16"))
    older = alter(start_events(run), 6, RankJoined, torch="2.6.0")
    assert not findings_of(NAME, run, devices(run, events=events), started(run, older))
    other = alter(events, 6, DeviceTimes, model="Ascend910B4")
    assert not findings_of(NAME, run, devices(run, events=other), started(run))


def test_of_two_halves_nobody_knows_which_is_right() -> None:
    run = ran(4, 2, devices=True)
    events = alter(device_events(run), (2, 3), DeviceTimes, fingerprint=98, where=("test", "product bfloat16"))
    assert not findings_of(NAME, run, devices(run, events=events), started(run))
    two = ran(2, 2, devices=True)
    events = alter(device_events(two), 1, DeviceTimes, fingerprint=98, where=("test", "product bfloat16"))
    assert not findings_of(NAME, two, devices(two, events=events), started(two))


def test_what_a_rank_says_of_a_value_is_made_printable() -> None:
    run = ran(2, 2, devices=True)
    evil = DeviceMiscomputed(0, "memory\x1b[31m", "exact", 1, 1, 0, 0, 1, None, "\x1b]0;x\x07")
    (finding,) = findings_of(NAME, run, devices(run, evil), started(run))
    assert "\x1b" not in str(finding)
