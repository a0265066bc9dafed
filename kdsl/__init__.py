"""kdsl: a declarative schedule language and compiler for Kimi Delta Attention kernels."""

__version__ = "0.1.0"
