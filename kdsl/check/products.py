"""Operands of matrix instructions: where each comes from, and that producer and consumer agree lane by lane.

The rows (index m) of a product are the output index that `rows` names, or the one dealt over warps in tiles
of whole rows; dealt in tiles of whole columns only, it is the columns. The operand that has the row index is
A, the other one B, and the reduced index is k.
"""

from __future__ import annotations

from attrs import frozen

from kdsl.check.findings import listed
from kdsl.check.fragments import moved_elements
from kdsl.check.graph import strip
from kdsl.check.loops import WARP
from kdsl.check.model import Home, Instruction, Stage
from kdsl.check.placement import block_extent
from kdsl.check.points import KernelAtPoint, Point
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n


@frozen
class Product:
    """A stage as m x n x k: `rows` and `columns` are output indices, `depth` the reduced one."""

    stage: Stage
    instruction: Instruction
    rows: str
    columns: str
    depth: str
    operands: dict[str, n.Reference]  # A and B
    span: Span


def check_products(point: Point, kernel: KernelAtPoint) -> None:
    if kernel.lines.doubtful & {"compute", "place"} or point.rule.form_guessed:
        return
    products = {p.stage.tensor: p for p in _products(point, kernel)}
    for product in products.values():
        _tiles(point, kernel, product)
        for operand, reference in product.operands.items():
            _operand(point, kernel, product, operand, reference, products)


def _products(point: Point, kernel: KernelAtPoint) -> list[Product]:
    found = []
    for made in kernel.graph.stages:
        computation = kernel.kernel.computations.get(made.stage.name)
        if computation is None or computation.instruction not in point.target.has:
            continue
        instruction = point.rule.declarations.right_instructions.get(computation.instruction or "")
        if instruction is None or "A" not in instruction.operands or made.stage.kind != "contract":
            continue
        product = _product(kernel, made.stage, instruction, computation)
        if product is not None:
            found.append(product)
    return found


def _product(kernel: KernelAtPoint, stage: Stage, instruction: Instruction, computation) -> Product | None:
    if len(stage.indices) != 2 or len(stage.contracted) != 1:
        return None
    dealt = computation.attributes.get("over") or tuple(
        a for r in kernel.kernel.roles.values() for a in r.over
    )
    named = computation.attributes.get("rows")
    rows = named[0] if isinstance(named, tuple) else named
    if rows is None:
        rows = _dealt_rows(stage, dict(dealt), instruction)
    if rows not in stage.indices:
        return None
    columns = next(i for i in stage.indices if i != rows)
    body = strip(stage.reduction.body)
    operands: dict[str, n.Reference] = {}
    for side in (strip(body.left), strip(body.right)):
        operands["A" if rows in plain(side) else "B"] = side
    return Product(stage, instruction, rows, columns, stage.contracted[0], operands, computation.span)


def _dealt_rows(stage: Stage, dealt: dict[str, int], instruction: Instruction) -> str:
    """The output index dealt over warps, if its tile holds whole rows; tiles that only hold columns leave the
    other.
    """
    index = next((i for i in dealt if i in stage.indices), None)
    if index is None:
        return stage.indices[0]
    m, ns = instruction.fields.get("m"), instruction.fields.get("n")
    by = dealt[index] * together(instruction)
    columns = any(
        isinstance(x, int) and x > 0 and by % x == 0 for x in (ns if isinstance(ns, tuple) else (ns,))
    )
    if isinstance(m, int) and by % m and columns:
        return next(i for i in stage.indices if i != index)
    return index


def together(instruction: Instruction) -> int:
    """Warps that execute the instruction as one: 4 of a warpgroup. Their tiles lie side by side."""
    threads = instruction.fields.get("threads")
    return max(threads // WARP, 1) if isinstance(threads, int) else 1


def _tiles(point: Point, kernel: KernelAtPoint, product: Product) -> None:
    """What one warp holds of every index is made of whole instructions."""
    computation = kernel.kernel.computations[product.stage.name]
    own = computation.attributes.get("over")
    dealt = dict(own if own else [axis for role in kernel.kernel.roles.values() for axis in role.over])
    for extent, index in (("m", product.rows), ("n", product.columns), ("k", product.depth)):
        held = block_extent(point, kernel, index)
        if index in dealt:
            held = dealt[index] * together(product.instruction)
        sizes = product.instruction.fields.get(extent)
        sizes = sizes if isinstance(sizes, tuple) else (sizes,)
        if held is None or any(isinstance(size, int) and size > 0 and held % size == 0 for size in sizes):
            continue
        point.report(Diagnostic(
            "E120", f"`{product.instruction.name}` multiplies {extent} = {listed(sizes, 3)} of `{index}` at "
                    "once, and a warp "
            f"of `{product.stage.name}` has {held}", product.span, label=f"{held} of `{index}` here",
            observed=str(held),
            required=f"a multiple of {listed(sizes, 3)}", labels=(Label(product.stage.span, "the stage"),),
         evidence=Evidence.PROVED, help=(f"deal `{index}` in larger tiles, or take other rows with `rows`",)),
            subject=extent)  # fmt: skip


def plain(reference: n.Reference) -> tuple[str, ...]:
    return tuple(i.text if isinstance(i, n.Name) else "" for i in reference.indices)


def _operand(
    point, kernel: KernelAtPoint, product: Product, operand: str, reference: n.Reference, products
) -> None:
    tensor = reference.name.text
    home = place_for(kernel, product.stage, tensor)
    node = product.instruction.operands.get(operand)
    if home is None or node is None:
        return
    fragment = home.attributes.get("as")
    if home.memory in node.memories and (home.memory != "registers" or fragment is None):
        return
    if home.memory == "shared" and "loads" in product.instruction.fields:
        return
    if home.memory == "registers" and isinstance(fragment, str):
        _fragment(point, kernel, product, operand, reference, home, products)
        return
    memories = (*node.memories, *(("shared",) if "loads" in product.instruction.fields else ()))
    point.report(Diagnostic(
        "E306", f"`{tensor}` is operand {operand} of `{product.stage.name}` and lives in {home.memory}",
        product.span,
        label=f"`{product.instruction.name}` reads it from {' or '.join(dict.fromkeys(memories))}",
        labels=(Label(home.span, "placed here"),), observed=home.memory,
        required=" or ".join(dict.fromkeys(memories)),
        evidence=Evidence.PROVED,
        help=(f"add `{tensor} for {product.stage.name} : in shared pad 8`",)))  # fmt: skip


def place_for(kernel: KernelAtPoint, stage: Stage, tensor: str) -> Home | None:
    """The view that the stage reads, or the tensor's home."""
    for view in kernel.kernel.views.get(tensor, ()):
        if stage.name in view.readers:
            return view
    return kernel.kernel.homes.get(tensor)


def _fragment(point, kernel, product: Product, operand: str, reference, home: Home, products) -> None:
    """The tensor arrives as a fragment of some product: is it the fragment that this operand needs?"""
    tensor = reference.name.text
    instruction, _, held = str(home.attributes["as"]).rpartition(".")
    wanted = f"{product.instruction.name}.{operand}"
    if held == "C":
        _accumulator(point, kernel, product, operand, reference, home, products)
        return
    if f"{instruction}.{held}" != wanted:
        point.report(Diagnostic(
            "E307", f"`{tensor}` is held as {instruction}.{held} and read by `{product.stage.name}` as "
                    f"{wanted}", home.span,
            label=f"as {instruction}.{held}", labels=(Label(product.span, f"reads {wanted}"),),
            observed=f"{instruction}.{held}", required=wanted, evidence=Evidence.PROVED,
            help=(f"write `as {wanted}`, or place a copy in shared memory",)))  # fmt: skip
        return
    source = kernel.kernel.homes.get(tensor)
    maker = source.attributes.get("as") if source is not None and source is not home else None
    if isinstance(maker, str) and maker.endswith(".C"):
        agreement(point, kernel, product, operand, reference, source, products)
    elif tensor in products:
        agreement(point, kernel, product, operand, reference, home, products)


def _accumulator(point, kernel, product: Product, operand: str, reference, home: Home, products) -> None:
    """E301: a sum in f32 registers cannot be an operand; a rounded view of it can."""
    tensor = reference.name.text
    node = product.instruction.operands[operand]
    dtypes = [d.name for d in node.dtypes]
    if home.dtype in dtypes:
        agreement(point, kernel, product, operand, reference, home, products)
        return
    moved = lanes_moved(point, kernel, product, operand, reference, home, products)
    allowed = [d for d in point.rule.operator.rounding.get(tensor, ()) if d in dtypes]
    notes, help_ = (), "place a copy for it in shared memory, in a dtype that the operator allows"
    if moved is not None and moved[0] == 0:
        notes = (f"proved: the two fragments hold the same elements in the same lane ({moved[1]} of "
                 f"{moved[1]}); "
                 "only the rounding is missing",)  # fmt: skip
        if allowed:
            view = f"{allowed[0]} in registers as {product.instruction.name}.{operand}"
            help_ = f"add `{tensor} for {product.stage.name} : {view}`"
    elif allowed:
        help_ = f"add `{tensor} for {product.stage.name} : {allowed[0]} in shared pad 8`"
    point.report(Diagnostic(
        "E301", f"`{tensor}` feeds `{product.stage.name}` as operand {operand}, but lives only in "
                "accumulators", home.span,
        label=f"{home.dtype or 'f32'}, accumulator",
        labels=(Label(product.span, f"takes {operand} as {' or '.join(dtypes)}"),),
        observed=home.dtype or "f32", required=" or ".join(dtypes), evidence=Evidence.PROVED, notes=notes,
        help=(help_,)))  # fmt: skip


def agreement(point, kernel, product: Product, operand: str, reference, source: Home, products) -> None:
    """E307: elements that change lane between the accumulator and the operand."""
    moved = lanes_moved(point, kernel, product, operand, reference, source, products)
    if moved is None or moved[0] == 0:
        return
    tensor = reference.name.text
    maker = products.get(tensor) or _carried_maker(point, kernel, tensor, products)
    rows = f"rows {maker.rows}, columns {maker.columns}" if maker is not None else "an accumulator"
    point.report(Diagnostic(
        "E307", f"`{tensor}` is produced as {rows} and read by `{product.stage.name}` as operand {operand}: "
        f"{moved[0]} of {moved[1]} elements change lane", product.span,
        label=f"reads {product.instruction.name}.{operand}",
        labels=(Label(source.span, "placed here"),
                *((Label(maker.span, "produced here"),) if maker is not None else ())),
        observed=f"{moved[0]} elements move", required="0", evidence=Evidence.PROVED,
        help=(f"place a copy, `{tensor} for {product.stage.name} : ... in shared pad 8`, or swap rows and "
              "columns with "
              f"`{product.stage.name} : {product.instruction.name} rows {product.columns}`",)))  # fmt: skip


def _carried_maker(point, kernel: KernelAtPoint, tensor: str, products) -> Product | None:
    """The product whose accumulator a carried tensor is: the one that makes its next value."""
    for found in kernel.graph.carries:
        if found.carry.tensor == tensor:
            return products.get(found.carry.next)
    return None


def lanes_moved(point, kernel, product: Product, operand: str, reference, source: Home, products):
    """Elements that change lane from the maker's accumulator to this operand, and of how many, if known."""
    tensor = reference.name.text
    maker = products.get(tensor) or _carried_maker(point, kernel, tensor, products)
    if maker is None or len(reference.indices) != 2:
        return None
    made, read = maker.stage.indices, plain(reference)
    c_order = (0, 1) if made[0] == maker.rows else (1, 0)
    target = product.instruction.operands[operand].target
    names = [i.text for i in target.indices if isinstance(i, n.Name)]
    outer = product.rows if operand == "A" else product.columns
    at = {"m" if operand == "A" else "n": outer, "k": product.depth}
    if set(read) != set(at.values()) or len(names) != 2 or set(names) != set(at):
        return None
    order = tuple(names.index(next(k for k, v in at.items() if v == index)) for index in read)
    return moved_elements(maker.instruction, "C", c_order, product.instruction, operand, order)
