"""Learning from a round: `weigh.py` turns played groups into minibatches, `learner.py` takes the gradient steps.

`learner_group.py` shares minibatches out over learners, `module.py` is the model that learns, `alignment.py` compares
the gradients of arms, and `weights.py` names the tensors that engines get.
"""
