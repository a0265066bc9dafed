"""The independent judge of kernels: float64 oracle, acceptance limits, probes, relations, recorded inputs.

Nothing here imports another part of kdsl, so the judge cannot share a mistake with the compiler it judges.
Everything is NumPy; no accelerator, PyTorch or TVM is needed.
"""
