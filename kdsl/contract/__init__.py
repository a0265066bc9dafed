"""Contracts: what may be claimed of a kernel, what decides it, and which rule claims a call."""
