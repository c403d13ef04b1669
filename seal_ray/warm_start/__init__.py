"""Supervised learning on demonstrations, so that reinforcement learning starts from a policy that can play.

The learner is that of training, with LoRA, several processes, FSDP2 and half precision. Its loss is weighted regression
(`rwr`) with weight 1 and without KL, which is the likelihood.
"""
