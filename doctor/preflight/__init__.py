"""`doctor preflight`: the gate in a job script, which decides whether the job should start."""
