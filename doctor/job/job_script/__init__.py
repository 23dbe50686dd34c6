"""A job script as typed values: its directives, its launch lines, and what could not be followed. Never run. Pure."""

from doctor.job.job_script.carriers import SUFFIXES as CARRIERS
from doctor.job.job_script.carriers import scripts_of
from doctor.job.job_script.directives import Directive, Resources
from doctor.job.job_script.read import JobScript, NotAJobScript, read_job_script

__all__ = ["CARRIERS", "Directive", "JobScript", "NotAJobScript", "Resources", "read_job_script", "scripts_of"]
