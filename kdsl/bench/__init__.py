"""Times of kernels on a device: the published cases, each judged first, beside libraries in the same process.

Needs PyTorch, NumPy and attrs (for a GPU cuda-bindings), neither a compiler nor a parser of rules.
"""
