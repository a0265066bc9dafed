"""TVM under the names the lowering uses: the one module that names TVM's modules and knows their traps."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from attrs import frozen

PINS = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
INSTALL = "pip install 'kdsl[compile]'"


@frozen
class TvmMissing(Exception):
    """TVM is not installed, or in a version that is known not to work."""

    found: str
    needed: str

    def __str__(self) -> str:
        return f"lowering needs {self.needed}, found {self.found}: {INSTALL}"


def check_versions() -> None:
    for package, pin in PINS.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            raise TvmMissing("none", f"{package}=={pin}") from None
        if found != pin:
            raise TvmMissing(f"{package} {found}", f"{package}=={pin}")


@contextmanager
def _without_torch():
    """tvm_ffi imports torch when it can, which costs a second and which lowering has no use for."""
    hide = "torch" not in sys.modules
    if hide:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hide:
            del sys.modules["torch"]


check_versions()
with _without_torch():
    import tvm
    import tvm.s_tir.transform as s_transform
    import tvm.tirx.transform as t_transform
    from tvm import s_tir, tirx
    from tvm.ir import Expr, PointerType, PrimType, Range, assert_structural_equal, load_json, save_json
    from tvm.ir.expr import Call, TensorLoad
    from tvm.s_tir import SBlock, SBlockRealize, Schedule, TensorIntrin
    from tvm.s_tir.schedule import ScheduleError, Trace
    from tvm.script import tirx as T
    from tvm.target import Target as TvmTarget
    from tvm.tirx import (
        AllocBuffer,
        AttrStmt,
        Bind,
        BufferLoad,
        BufferStore,
        Cast,
        DeclBuffer,
        Evaluate,
        For,
        ForKind,
        IterVar,
        PrimFunc,
        SeqStmt,
        Var,
        decl_buffer,
        op,
    )
    from tvm_ffi import structural_equal, structural_map, structural_walk
    from tvm_ffi.serialization import from_json_graph_str, to_json_graph_str


def sequence(statements: list):
    """Statements as one. (TVM refuses a sequence of length 1.)"""
    return statements[0] if len(statements) == 1 else SeqStmt(statements)


def is_integer(e, value: int) -> bool:
    """Whether an expression is this constant."""
    return isinstance(e, tirx.IntImm) and int(e.value) == value


def same_memory(one, other) -> bool:
    """Whether two buffers are of one allocation. (`data` is made anew whenever it is asked for, so it is never the
    same object.)"""
    return one.same_as(other) or structural_equal(one.data, other.data)


def deep_copy(node):
    """A node with everything it is made of anew. (`load_json` would first look for texts of older versions, which takes
    ten times as long.)"""
    return from_json_graph_str(to_json_graph_str(node))


__all__ = [
    "AllocBuffer", "AttrStmt", "Bind", "BufferLoad", "BufferStore", "Call", "Cast", "DeclBuffer", "Evaluate", "Expr",
    "For", "ForKind", "IterVar", "PointerType", "PrimFunc", "PrimType", "Range", "SBlock", "SBlockRealize", "Schedule",
    "ScheduleError", "SeqStmt", "T", "TensorIntrin", "TensorLoad", "Trace", "TvmMissing", "TvmTarget",
    "Var", "assert_structural_equal", "check_versions", "decl_buffer", "deep_copy", "is_integer", "load_json", "op",
    "s_tir", "s_transform", "same_memory", "save_json", "sequence", "structural_equal", "structural_map",
    "structural_walk", "t_transform", "tirx", "tvm",
]  # fmt: skip
