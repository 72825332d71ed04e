"""The parts of `tools.gpu_check`: what is trained, in which processes, and what is made of it."""
