"""Sums of gradients that do not wait: a replica without a batch hands in nothing, or hands in late.

A pass over a train step, see `gradients.PartialGradientSums`. It changes the mathematics of
training, and has a flag of its own. After Li, Ben-Nun, Di Girolamo, Alistarh and Hoefler, "Taming
Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020.
"""
