"""A plan lowered, stage by stage and no further than asked: TIR, schedule, source, library."""

from __future__ import annotations

from functools import cached_property

from kdsl.lower.host import HostSource, lower_host
from kdsl.lower.stir.schedule import ScheduledKernel, schedule_kernel
from kdsl.lower.tir.kernel import KernelFunction, build_function
from kdsl.lower.toolchain import cc
from kdsl.plan.model import Plan


class Lowering:
    """The stages of one plan. Each is made when first read, in the order of the kernels."""

    def __init__(self, plan: Plan):
        self.plan = plan

    @cached_property
    def functions(self) -> tuple[KernelFunction, ...]:
        return tuple(build_function(self.plan, kernel) for kernel in self.plan.kernels)

    @cached_property
    def scheduled(self) -> tuple[ScheduledKernel, ...]:
        """Raises StepRefused on a step that TVM refuses."""
        return tuple(schedule_kernel(f, k) for f, k in zip(self.functions, self.plan.kernels))

    @cached_property
    def sources(self) -> tuple[HostSource, ...]:
        return tuple(lower_host(kernel) for kernel in self.scheduled)

    @cached_property
    def libraries(self) -> tuple[bytes, ...]:
        return tuple(cc.shared_library(source.source) for source in self.sources)
