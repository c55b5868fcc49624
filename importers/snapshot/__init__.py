"""Snapshots of torch.cuda.memory: what PyTorch's allocator of the GPUs gave, took back and held, with stacks."""
