"""Learning from a round: `advantages_to_rows.py` makes rows of played groups, `learner.py` takes gradient steps.

`learner_group.py` shares minibatches out over learners, `module.py` is the model that learns, `alignment.py` compares
the gradients of arms, and `weights.py` names the tensors that engines get.
"""
