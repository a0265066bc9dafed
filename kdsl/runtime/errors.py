"""What can be wrong with a call. Every error says what was found, what was needed and what to do.

Not frozen: Python itself writes to an exception, and so does unpickling one.
"""

from __future__ import annotations

import attrs


@attrs.define(slots=False)
class ArgumentValueError(ValueError):
    """An argument of the right type whose shape, device, value or combination does not fit."""

    argument: str
    found: str
    needed: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.argument}: found {self.found}; needed {self.needed}; {self.remedy}"


@attrs.define(slots=False)
class ArgumentTypeError(TypeError):
    """An argument of the wrong type or dtype."""

    argument: str
    found: str
    needed: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.argument}: found {self.found}; needed {self.needed}; {self.remedy}"


@attrs.define(slots=False)
class LaunchError(RuntimeError):
    """A launch whose tensors, sizes, scalars or flags are not what the variant's kernels take."""

    variant: str
    argument: str
    found: str
    needed: str
    remedy: str

    def __str__(self) -> str:
        what = f"variant {self.variant}, {self.argument}"
        return f"{what}: found {self.found}; needed {self.needed}; {self.remedy}"


@attrs.define(slots=False)
class MissingTorch(ImportError):
    """The functions on tensors need PyTorch."""

    found: str

    def __str__(self) -> str:
        return (
            f"found no PyTorch ({self.found}); needed torch for the tensor functions; pip install kdsl[run]"
        )


@attrs.define(slots=False)
class NoVariant(RuntimeError):
    """No variant takes the call. `refusals` has one line for each variant that was looked at."""

    request: str
    refusals: tuple[str, ...]
    remedy: str

    def __str__(self) -> str:
        if self.refusals:
            tried = "".join(f"\n  {line}" for line in self.refusals)
            return (
                f"no variant takes the call {self.request}; each variant and why not:{tried}\n{self.remedy}"
            )
        return f"no variant takes the call {self.request}: found no bundle; {self.remedy}"
