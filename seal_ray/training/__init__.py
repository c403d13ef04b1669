"""Learning from a round: `rows.py` makes rows of groups, `learner_group.py` and `learner.py` take gradient steps."""
