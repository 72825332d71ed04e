"""What NCCL does on GPUs, on the CPUs of a machine without one."""
