"""A launch line as typed values: which launchers start which program, on how many hosts, with which variables. Pure.

`read_launch_line` takes the words of a command line. Launchers nest, and each is one module here: its options, and what
they mean. Nothing is run, no file is opened, and what is not certain is in `LaunchLine.unresolved` and never guessed.
"""

from doctor.engine.record import OptionProblem
from doctor.job.launch_line.model import LaunchCall, LaunchLine, NotALaunchLine
from doctor.job.launch_line.read import read_launch_line

__all__ = ["LaunchCall", "LaunchLine", "NotALaunchLine", "OptionProblem", "read_launch_line"]
