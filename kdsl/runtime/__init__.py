"""Load a variant of a bundle, launch it, and the checks behind the PyTorch functions. Imports bundle only."""

from kdsl.runtime.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CudaError,
    LaunchError,
    MissingCuda,
    MissingTorch,
    NoVariant,
)
from kdsl.runtime.launch import Program, launch, open_variant
from kdsl.runtime.request import CallRequest
from kdsl.runtime.tensor import TensorView

__all__ = [
    "ArgumentTypeError",
    "ArgumentValueError",
    "CallRequest",
    "CudaError",
    "LaunchError",
    "MissingCuda",
    "MissingTorch",
    "NoVariant",
    "Program",
    "TensorView",
    "launch",
    "open_variant",
]
