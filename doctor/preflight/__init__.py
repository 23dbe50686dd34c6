"""The first lines of a job script: where it runs, what is wrong there, and whether the job should start."""
