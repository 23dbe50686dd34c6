"""The rules that name the culprit rank, each a pure function over the processes of a job."""
