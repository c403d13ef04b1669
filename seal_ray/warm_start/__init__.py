"""Supervised learning on demonstrations, so that reinforcement learning starts from a policy that can play.

The learner is that of training, with all that it can: LoRA, several processes, FSDP2, half precision, logits only where
the model speaks. Weighted regression (`rwr`) with weight 1 and without KL is the likelihood, so no loss is added.
"""
