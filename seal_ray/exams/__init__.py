"""Exams: a model answers the items of a suite, and its scores are compared with the base's. No Ray.

`exam_run.py` collects and stores answers, `report.py` counts and writes; `envs/exams.py` has the interface of a suite.
"""
