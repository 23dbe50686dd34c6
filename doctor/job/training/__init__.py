"""How a training is launched and configured, as typed values with the place of each. Pure: text in, values out.

`read_training` takes texts of launch scripts, configurations and programs. Nothing is run or imported, and what only a
run could compute is undecided and never guessed.
"""

from doctor.job.training.model import CodeMark, Configuration, Setting, TrainingJob, TrainingLaunch, TrainingScript
from doctor.job.training.rules import (
    NotDecided,
    NotGiven,
    Rule,
    View,
    apply_rules,
    apply_to_both,
    apply_to_scripts,
    correction,
)

__all__ = [
    "CodeMark",
    "Configuration",
    "NotDecided",
    "NotGiven",
    "Rule",
    "Setting",
    "TrainingJob",
    "TrainingLaunch",
    "TrainingScript",
    "View",
    "apply_rules",
    "apply_to_both",
    "apply_to_scripts",
    "correction",
]
