"""A plan lowered, stage by stage and no further than asked: TIR, schedule, source, library."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from kdsl.lower.cuda import CudaSource, lower_cuda
from kdsl.lower.host import HostSource, lower_host
from kdsl.lower.link import linked
from kdsl.lower.stir.schedule import ScheduledKernel, making_code, schedule_kernel
from kdsl.lower.tir.kernel import KernelFunction, build_function
from kdsl.lower.toolchain import cc, nvcc
from kdsl.plan.cuda.beside import apart
from kdsl.plan.derive import derive
from kdsl.plan.model import KernelPlan, Plan

# `exp` and divisions by the hardware's approximations, a few units in the last place of f32: far below the rounding
# of 16-bit operands, and part of what acceptance judges.
CUDA_OPTIONS = nvcc.Options(fast_math=True)


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
        return tuple(self.as_scheduled())

    def as_scheduled(self) -> Iterator[ScheduledKernel]:
        """The scheduled kernels, each as soon as it is there; all together are `scheduled` from then on."""
        made = self.__dict__.get("scheduled")
        if made is not None:
            yield from made
            return
        found = []
        for function, kernel in zip(self.functions, self.plan.kernels):
            found.append(schedule_kernel(function, kernel))
            yield found[-1]
        self.__dict__["scheduled"] = tuple(found)

    @cached_property
    def apart(self) -> Lowering:
        """The same rule with every kernel a launch of its own; itself where none shares a launch."""
        plan = self.plan
        if not any(kernel.beside for kernel in plan.kernels):
            return self
        return Lowering(derive(apart(plan.point), plan.operator, plan.specialization))

    @cached_property
    def alone(self) -> tuple[HostSource, ...] | tuple[CudaSource, ...]:
        """Every kernel as a launch of its own. Raises CodeRefused where TVM cannot make code of a schedule."""
        return tuple(map(self._source, self.scheduled, self.plan.kernels))

    @cached_property
    def sources(self) -> tuple[HostSource, ...] | tuple[CudaSource, ...]:
        """The source of every launch. Raises CodeRefused."""
        sources = dict(zip((kernel.name for kernel in self.plan.kernels), self.alone, strict=True))
        kernels = {kernel.name: kernel for kernel in self.plan.kernels}
        for kernel in self.plan.kernels:
            if kernel.beside is not None:
                giver = sources.pop(kernel.beside)
                sources[kernel.name] = linked(giver, sources[kernel.name], kernels[kernel.beside], kernel)
        return tuple(sources.values())

    def _source(self, scheduled: ScheduledKernel, kernel: KernelPlan) -> HostSource | CudaSource:
        with making_code(kernel):
            if self.plan.target.family == "cuda":
                arch = str(self.plan.target.fields["tool"])
                stages = tuple(dict.fromkeys(stage.name for stage in kernel.stages))
                return lower_cuda(scheduled, arch, kernel.threads, stages, kernel.resident, kernel.turns,
                                  kernel.together, kernel.at_once)  # fmt: skip
            return lower_host(scheduled)

    @cached_property
    def libraries(self) -> tuple[bytes, ...]:
        """Shared libraries of a CPU rule. Raises ToolMissing."""
        return tuple(cc.shared_library(source.source) for source in self.sources)

    @cached_property
    def objects(self) -> tuple[nvcc.CudaObjects, ...]:
        """PTX and cubins of a CUDA rule. Raises ToolMissing."""
        arch = str(self.plan.target.fields["tool"])
        return tuple(nvcc.compile(source.source, arch, CUDA_OPTIONS) for source in self.sources)
