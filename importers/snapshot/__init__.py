"""Snapshots of torch.cuda.memory: the history of PyTorch's allocator, with stacks."""
