"""τ²-bench as exams: its dialogues are played by Inspect, in an environment of its own, against our server.

`suites.py` says what the suites are and reads what came of a dialogue, `servers.py` serves the models, `inspecting.py`
runs `program.py` in the other environment, and `playing.py` puts them together.
"""
