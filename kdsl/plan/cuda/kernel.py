"""A kernel on an NVIDIA GPU, one role: a block of warps, fragments in registers, rings of shared memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from attrs import evolve

from kdsl.check.graph import strip
from kdsl.check.model import DTYPE_BYTES, Kernel, Role, Stage
from kdsl.plan import steps as s
from kdsl.plan.coverage import refuse_misaligned, refuse_other_readers, refuse_uncovered_rows
from kdsl.plan.cuda.alone import (
    Alone,
    columns_of,
    deal_columns,
    refuse_other_warps,
    warps_apart,
    with_warps_panels,
)
from kdsl.plan.cuda.barriers import barriers, reads_of, settled
from kdsl.plan.cuda.beside import beside_of, parted, passed_on
from kdsl.plan.cuda.deal import copy, deal, deal_pieces, moves_pieces, piece_bytes, takes_pieces
from kdsl.plan.cuda.dtypes import with_port_dtypes
from kdsl.plan.cuda.fragments import (
    by_rows,
    matrix_instruction,
    on_fragments,
    refuse_other_lanes,
    row_index,
    with_fragments,
)
from kdsl.plan.cuda.loads import is_load, loads_of, refuse_wrong_loads
from kdsl.plan.cuda.once import once
from kdsl.plan.cuda.private import (
    deal_private,
    owned_by_lanes,
    owners,
    refuse_shared_numbers,
    touches_private,
    with_private,
)
from kdsl.plan.cuda.products import Product, by_descriptor, product_of, product_steps, with_panels
from kdsl.plan.cuda.rows import Parts, refuse_other_owners, with_parts, with_rows
from kdsl.plan.cuda.sharing import with_shared_buffers
from kdsl.plan.cuda.slots import copied, first_copies, refuse_fetched_starts, refuse_idle_slots, shared_copy
from kdsl.plan.cuda.squares import Squares, is_squares, squares_of, squares_steps
from kdsl.plan.cuda.tiles import Move, move_of, move_steps
from kdsl.plan.cuda.together import rows_at_once, together
from kdsl.plan.cuda.turns import first_warps
from kdsl.plan.cuda.warp import LANES, ROW_BYTES
from kdsl.plan.homes import place, received
from kdsl.plan.layout import transposing_options
from kdsl.plan.model import Decision, KernelPlan, PlannedStage, Tensor
from kdsl.plan.order import ordered
from kdsl.plan.pins import Pins
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.request import KernelRequest
from kdsl.plan.stages import KernelStages, kernel_stages

SCOPES = {"shared": "shared.dyn", "registers": "warp", "thread": "local", "lane": "local"}


def plan_cuda_kernel(request: KernelRequest) -> KernelPlan:
    """Raises PlanRefused."""
    operator, graph, kernel, settings = request.operator, request.graph, request.kernel, request.settings
    role = one_role(kernel)
    pins = Pins.of(kernel, {**request.dtypes, **settings})
    stages, parts, decisions = placed_stages(request, role, pins)
    stages, tensors = once(stages, parts.tensors, operator, request.sequential)
    stages, tensors, loads = loads_of(stages, tensors, kernel, request.sequential)
    incoming = received(operator, graph, kernel, request.made)
    refuse_fetched_starts(request, incoming)
    arrivals = tuple(copied(n, kernel, incoming[n], settings, request) for n in incoming if n in kernel.homes)
    arrivals, copies = parted(arrivals, lambda stage: kernel.homes[stage.tensor].beside is not None)
    own_tiles = [stage for stage in stages.body if stage.kind == "tile" and fetched_ahead(stage, kernel)]
    copies += tuple(evolve(stage, kind="copy") for stage in own_tiles)
    passed = {stage.tensor: incoming[stage.tensor].name for stage in arrivals}
    for name, tensor in incoming.items():
        if name not in passed:
            tensors[f"{name}.workspace" if name in kernel.homes else name] = tensor
    landing = [stage for stage in (*arrivals, *copies) if stage.tensor in incoming]
    tensors.update({s.tensor: shared_copy(s, kernel, incoming[s.tensor]) for s in landing})
    body, decision = ordered([s for s in stages.body if s not in own_tiles], kernel.name, pins)
    decisions.append(decision)
    landed = frozenset(s.tensor for s in copies if request.sequential is None)  # before the first stage, for good
    fetched = frozenset(stage.tensor for stage in copies) - landed
    slots = frozenset(passed) | request.handed
    if request.sequential or not request.handed:  # one that hands on has to step, and is told so by its taker
        refuse_idle_slots(kernel, tensors.values(), fetched | slots, request.sequential)
    tensors = with_shared_buffers(tensors, body, fetched | slots | parts.names, landed)
    builder = _Steps(kernel, role, tensors, pins, decisions, request.target.has)
    prologue, body, commits, epilogue = (
        tuple(builder.arranged(stage) for stage in group)
        for group in (stages.prologue, body, stages.commits, stages.epilogue)
    )
    builder.tensors = tensors = with_panels(tensors, builder.products.values(), fetched | frozenset(passed))
    refuse_wrong_homes(builder, (prologue, copies, body, commits, epilogue))
    turned, single = first_warps(body, builder.products, builder.squares, tensors, kernel, role.warps)
    turned.update(loads.turned(turned, body))
    alone = Alone(single, frozenset(stage.name for stage in body if columns_of(stage, tensors)))
    fences, syncs = barriers(body, tensors, kernel, fetched | frozenset(passed), alone, role.warps, pins)
    if fences:
        decisions.append(Decision(kernel.name, "barriers_before", fences, "what other threads did in shared memory"))
    groups = together(body, tensors, (*fences, *syncs), request.handed)
    plan = KernelPlan(
        name=kernel.name, parts=kernel.parts, grid=request.grid, sequential=request.sequential,
        guarded=request.guarded, run=request.run, carries=graph.carries, tensors=tensors, prologue=prologue, body=body,
        commits=commits, epilogue=epilogue, copies=copies, ahead=first_copies(copies, tensors, kernel),
        loads=loads.ahead, first_loads=loads.first,
        described=builder.described, threads=(LANES, role.warps), barriers=fences,
        settled=settled(body, tensors, fences, fetched), syncs=syncs, apart=warps_apart(tensors, passed),
        aligned=aligned_ports(body, (*prologue, *epilogue, *loads.first), copies, builder, request),
        resident=pins.number(kernel.name, "blocks_per_sm"),
        together=groups,
        at_once=rows_at_once(pins, kernel.name, groups, body, tensors),
        turns={name: warp for name, warp in turned.items() if warp},
        registers=role.registers, beside=beside_of(kernel, arrivals, tensors), passed=passed,
        steps=(), decisions=(), span=kernel.span,
    )  # fmt: skip
    steps = tuple(builder.steps(plan))
    pins.refuse_unused()
    return evolve(plan, steps=steps, decisions=tuple(decisions))


def placed_stages(request: KernelRequest, role: Role, pins: Pins) -> tuple[KernelStages, Parts, list[Decision]]:
    """The kernel's stages, and where what they make lies: in memory of the call, of the block, of a warp or a lane."""
    operator, graph, kernel, settings = request.operator, request.graph, request.kernel, request.settings
    products = any(matrix_instruction(kernel, stage.name) for stage in graph.stages)
    default = "registers" if products else "shared"
    tensors, decisions = place(operator, graph, kernel, default, settings, pins)
    stages = kernel_stages(
        operator, graph, kernel, "cuda", tensors, settings, lambda s: sums_privately(s, kernel), request.handed
    )
    tensors.update({tensor.name: tensor for tensor in stages.copies})
    tensors = with_warps_panels(with_port_dtypes(tensors, kernel, request))
    refuse_shared_numbers(tensors)
    refuse_wrong_loads(tensors, operator, kernel)
    tensors = with_fragments(with_rows(with_private(tensors, kernel), role), graph, kernel, role)
    parts = with_parts(stages.body, passed_on(tensors, request.handed), operator, role)
    return evolve(stages, body=parts.body), parts, decisions


def refuse_wrong_homes(builder: _Steps, groups: tuple[tuple[PlannedStage, ...], ...]) -> None:
    """What stages read lies where they can read it. Raises PlanRefused."""
    prologue, copies, body, commits, epilogue = groups
    stages, kernel, tensors = (*prologue, *body, *commits, *epilogue), builder.kernel, builder.tensors
    refuse_read_back(prologue + body, tensors, kernel)
    refuse_other_lanes(stages, tensors, builder.products)
    refuse_other_owners(stages, tensors)
    refuse_uncovered_rows(tensors, builder.role, kernel.span)
    refuse_misaligned(at_once(copies, builder, tensors, kernel))
    pieces = {stage.name for stage in stages if moves_pieces(stage, tensors, builder.role.warps)}
    refuse_other_readers(stages, tensors, {*builder.products, *builder.moves, *pieces})
    refuse_other_warps((*copies, *stages), tensors, builder.products, builder.role)


def at_once(copies: Iterable[PlannedStage], builder: _Steps, tensors: Mapping[str, Tensor], kernel: Kernel):
    """Tensors in shared memory that are accessed in pieces: bytes at once, and by what."""
    for stage in copies:
        yield tensors[stage.tensor], piece_bytes(kernel.homes[stage.tensor]), "copies take"
    for product in builder.products.values():
        if product.left_stored:
            yield tensors[product.left], ROW_BYTES, f"the matrix loads of `{product.stage.name}` take"
        yield tensors[product.right], ROW_BYTES, f"the matrix loads of `{product.stage.name}` take"
    for squares in builder.squares.values():
        yield tensors[squares.operand], ROW_BYTES, f"the matrix loads of `{squares.stage.name}` take"
    for move in builder.moves.values():
        yield tensors[move.shared], ROW_BYTES, f"the tiles of `{move.stage.name}` take"


def fetched_ahead(stage: PlannedStage, kernel: Kernel) -> bool:
    """Whether a view's tile comes by asynchronous copies, some steps before it is used."""
    home = kernel.homes[stage.tensor]
    return "via" in home.attributes and not is_load(home)


def aligned_ports(
    body: Iterable[PlannedStage], ends: Iterable[PlannedStage], copies, builder: _Steps, request: KernelRequest
) -> dict[str, int]:
    """Bytes of the pieces in which stages take ports: their addresses must be multiples."""
    views, found = request.operator.views, {}
    neighbours = neighbours_of(request)
    pieces = [(c.source.tensor, piece_bytes(request.kernel.homes[c.tensor])) for c in copies]
    pieces = [(name, size) for name, size in pieces if name in views]
    for stage in (*body, *(end for end in ends if owners(end, builder.tensors))):
        width = taken_at_once(stage, builder)
        if width > 1:
            used = {stage.tensor} | {read.tensor for read in reads_of(stage)}
            used |= {stage.source.tensor} if stage.source is not None else set()
            pieces += [(name, width * DTYPE_BYTES[request.dtypes[views[name].port]]) for name in used & neighbours]
    for name, size in pieces:
        port = views[name].port
        found[port] = max(size, found.get(port, 1))
    return found


def taken_at_once(stage: PlannedStage, builder: _Steps) -> int:
    """Neighbouring elements that a lane takes in one access."""
    owned = owners(stage, builder.tensors)
    if owned:
        return owned[0][1]
    return takes_pieces(stage, builder.tensors, builder.role.warps) or 1


def neighbours_of(request: KernelRequest) -> frozenset[str]:
    """Views whose elements along the last index are neighbours, as the rule claims or since the port is dense."""
    exchanged = transposing_options(request.operator)
    return frozenset(
        name for name, view in request.operator.views.items()
        if (request.layouts.get(view.port) in ("unit_stride", "dense")
            or not request.operator.ports[view.port].strided)
        and not request.settings.get(exchanged.get(view.port, ""), False)
        and strip(view.port_indices[-1]).span.text == view.indices[-1]
    )  # fmt: skip


def sums_privately(stage: Stage, kernel: Kernel) -> bool:
    """Sums that are no product, that no lanes share, and whose result others see: in registers first."""
    if not stage.indices:
        return False
    if matrix_instruction(kernel, stage.name) is not None:
        return False
    if any(owned_by_lanes(kernel, name) for name in (stage.tensor, *(read.tensor for read in stage.reads))):
        return False
    computation = kernel.computations.get(stage.name)
    return computation is None or "lanes" not in computation.attributes


def one_role(kernel: Kernel) -> Role:
    if len(kernel.roles) != 1:
        raise PlanRefused(
            "D346", f"kernel `{kernel.name}` has {len(kernel.roles)} roles", kernel.span, required="one role",
            help=("add `roles { all : 4 warps }`",),
        )  # fmt: skip
    return next(iter(kernel.roles.values()))


def refuse_read_back(stages: tuple[PlannedStage, ...], tensors: Mapping[str, Tensor], kernel: Kernel) -> None:
    """What a kernel writes to the workspace other lanes cannot read back in it: nothing orders those accesses."""
    written = {stage.tensor for stage in stages if stage.tensor in tensors and tensors[stage.tensor].scope == "call"}
    for stage in stages:
        if stage.stage is None:
            continue
        for read in stage.stage.reads:
            name = stage.renamed.get(read.tensor, read.tensor)
            if name in written:
                raise PlanRefused(
                    "D348", f"stage `{stage.name}` reads `{name}` back from the workspace in the kernel that writes it",
                    tensors[name].span,
                    help=(f"keep `{name} : f32 in shared` and add `{name} for NEXT_KERNEL : bf16 in workspace`",),
                )  # fmt: skip


class _Steps:
    """Schedule steps of one kernel, in the order that TVM needs: memories, copies, products, the rest, pipeline."""

    def __init__(
        self, kernel: Kernel, role: Role, tensors: Mapping[str, Tensor], pins: Pins, decisions: list[Decision],
        has: Collection[str],
    ):  # fmt: skip
        self.kernel, self.role, self.tensors, self.pins = kernel, role, tensors, pins
        self.decisions, self.has = decisions, has
        self.products: dict[str, Product] = {}
        self.squares: dict[str, Squares] = {}
        self.moves: dict[str, Move] = {}
        self.fragments: set[str] = set()
        self.placed: set[str] = set()

    @property
    def described(self) -> bool:
        """Whether an operand is read through a descriptor."""
        return any(by_descriptor(product.instruction) for product in self.products.values())

    def arranged(self, stage: PlannedStage) -> PlannedStage:
        """The stage with its loops in the order its kind of work maps them."""
        instruction = matrix_instruction(self.kernel, stage.name)
        if instruction is not None:
            span = self.kernel.computations[stage.name].span
            if is_squares(stage):
                self.squares[stage.name] = squares_of(stage, instruction, self.tensors, span)
                return stage
            product = product_of(stage, instruction, row_index(self.kernel, self.role, stage.name), self.tensors, span)
            self.products[stage.name] = product
            return product.stage
        fragment = on_fragments(stage, self.tensors)
        if fragment is None:
            return stage
        stage = by_rows(stage, fragment)
        move = move_of(stage, self.tensors, self.has)
        if move is not None:
            self.moves[stage.name] = move
        else:
            self.fragments.add(stage.name)
        return stage

    def steps(self, plan: KernelPlan) -> Iterator[s.Step]:
        yield from self.grid()
        for stage in plan.stages:
            yield from self.memory(stage)
        for stage in (*plan.first, *plan.copies):
            yield from self.copy(stage)
        for stage in plan.stages:
            if stage.name in self.products:
                steps, decision = product_steps(
                    self.products[stage.name], self.role.warps, self.tensors, self.pins
                )
                self.decisions.append(decision)
                yield from steps
        for squares in self.squares.values():
            yield from squares_steps(squares, self.role.warps, self.tensors)
        for stage in plan.stages:
            if stage.name in self.moves:
                yield from move_steps(self.moves[stage.name], self.role.warps)
            elif stage.name in self.fragments:
                fragment = on_fragments(stage, self.tensors)
                loops = tuple(loop.index for loop in stage.loops)
                why = "on the fragment"
                yield s.FragmentLoops(stage.name, stage.span, why, fragment.instruction, loops, self.role.warps)
            elif touches_private(stage, self.tensors):
                yield from deal_private(stage, self.tensors, self.role.warps)
            elif stage.name in self.products or stage.name in self.squares or stage.kind == "copy":
                continue
            elif columns := columns_of(stage, self.tensors):
                piece = takes_pieces(stage, self.tensors, self.role.warps) or 1
                yield from deal_columns(stage, columns, self.role.warps, piece)
            elif piece := takes_pieces(stage, self.tensors, self.role.warps):
                yield from deal_pieces(stage, self.role.warps, piece)
            else:
                tensor = self.tensors.get(stage.tensor)
                yield from deal(stage, self.kernel, self.role.warps, tensor.memory if tensor is not None else "global")

    def grid(self) -> Iterator[s.Step]:
        for axis in self.kernel.grid:
            names = tuple(loop.name for loop in axis.loops)
            name = names[0]
            if len(names) > 1:
                name = axis.axis
                yield s.Fuse(self.kernel.name, axis.span, f"grid {axis.axis}", names, name)
            yield s.Bind(self.kernel.name, axis.span, f"grid {axis.axis}", name, f"blockIdx.{axis.axis}")

    def memory(self, stage: PlannedStage) -> Iterator[s.Step]:
        """Once a tensor, at the first stage that writes it."""
        tensor = self.tensors.get(stage.tensor)
        if tensor is None or tensor.memory not in SCOPES or tensor.scope == "passed" or tensor.held_in in self.placed:
            return
        self.placed.add(tensor.held_in)
        why = f"{tensor.name} in {tensor.memory}"
        yield s.SetScope(stage.name, tensor.span, why, SCOPES[tensor.memory])
        if tensor.fragment is not None:
            yield s.TransformLayout(stage.name, tensor.span, why, tensor.fragment.instruction)
        elif tensor.panel and not tensor.of_warps:
            yield s.Panels(stage.name, tensor.span, f"panels of {tensor.panel}", tensor.panel)
        elif tensor.pad and len(tensor.shape) > 1:
            yield s.StorageAlign(stage.name, tensor.span, f"pad {tensor.pad}", tensor.shape[-1], tensor.pad)

    def copy(self, stage: PlannedStage) -> Iterator[s.Step]:
        tensor = self.tensors[stage.tensor]
        vector = piece_bytes(self.kernel.homes[stage.tensor]) // DTYPE_BYTES[tensor.dtype]
        if tensor.over is not None:
            yield from deal_columns(stage, tensor.over, self.role.warps, vector)
        else:
            yield from copy(stage, self.kernel, self.role.warps, vector)
