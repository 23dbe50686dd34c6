"""What the ranks of the smoke run said, host by host; one module a stage."""

from doctor.facts.smoke.collectives import Checked, SmokeCollectives, Speed, Unsupported, Wrong
from doctor.facts.smoke.learning import Learnt, SmokeLearning
from doctor.facts.smoke.loader import Loaded, SmokeLoader
from doctor.facts.smoke.native import Native, SmokeNative
from doctor.facts.smoke.pace import Paced, SmokePace
from doctor.facts.smoke.pairs import Paired, SmokePairs
from doctor.facts.smoke.start import Device, Exited, Failed, Imported, Joined, SmokeStart, Tried
from doctor.facts.smoke.training import Begun, Ended, SmokeTraining, Stepped, Twin, TwinBlocks, TwinUpdate

__all__ = [
    "Begun",
    "Checked",
    "Device",
    "Ended",
    "Exited",
    "Failed",
    "Imported",
    "Joined",
    "Learnt",
    "Loaded",
    "Native",
    "Paced",
    "Paired",
    "SmokeCollectives",
    "SmokeLearning",
    "SmokeLoader",
    "SmokeNative",
    "SmokePace",
    "SmokePairs",
    "SmokeStart",
    "SmokeTraining",
    "Speed",
    "Stepped",
    "Tried",
    "Twin",
    "TwinBlocks",
    "TwinUpdate",
    "Unsupported",
    "Wrong",
]
