"""τ²-bench as exams: Inspect plays its dialogues, in a separate environment, against our server.

`suites.py` has the suites and reads their dialogues, `servers.py` serves the models, `inspecting.py` runs `program.py`
in the other environment, and `playing.py` combines them.
"""
