"""The agents of a run, by name."""

SOLVER = "solver"
CURATOR = "curator"
TASK_WRITER = "task_writer"
