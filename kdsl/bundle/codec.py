"""Manifest to JSON text and back. Reading is strict: an unknown schema or key, a wrong type, a bad
expression.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from kdsl.bundle import manifest as m
from kdsl.bundle.document import Place, parse_json
from kdsl.bundle.errors import ManifestError
from kdsl.bundle.expression import parse_claim, parse_number
from kdsl.bundle.machine import Machine
from kdsl.bundle.verify import verify

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SHA256 = r"[0-9a-f]{64}"


def decode(text: str) -> m.Manifest:
    """Read a manifest. Raises ManifestError with the place in the document."""
    document = parse_json(text)
    schema = document.of_type(dict).get("schema")
    if schema != m.SCHEMA or isinstance(schema, bool):
        raise ManifestError(
            "$.schema",
            "nothing" if schema is None else json.dumps(schema),
            f"{m.SCHEMA}, the schema that this version of kdsl reads",
            "use the kdsl version that wrote the bundle, or rebuild the bundle with this one",
        )
    _, kdsl, operator, rule, made_with, variants, files = document.fields(
        "schema", "kdsl", "operator", "rule", "made_with", "variants", "files"
    )
    manifest = m.Manifest(
        kdsl=kdsl.text(),
        operator=operator.text(rf"{_NAME}(\.{_NAME})*", "a dotted name such as kda.chunk_forward"),
        rule=_rule(rule),
        made_with=_made_with(made_with),
        variants=[_variant(place) for place in variants.items()],
        files={name: place.text(_SHA256, "a sha256 in hex") for name, place in files.members().items()},
    )
    verify(manifest)
    return manifest


def encode(manifest: m.Manifest) -> str:
    """The manifest as JSON text, the same for equal manifests. Raises ManifestError if it could not be read
    back.
    """
    verify(manifest)
    document = {
        "schema": manifest.schema,
        "kdsl": manifest.kdsl,
        "operator": manifest.operator,
        "rule": attrs.asdict(manifest.rule),
        "made_with": {**attrs.asdict(manifest.made_with), "flags": list(manifest.made_with.flags)},
        "variants": [_variant_document(variant) for variant in manifest.variants],
        "files": dict(sorted(manifest.files.items())),
    }
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    decode(text)
    return text


def _rule(place: Place) -> m.Rule:
    name, file, sha256 = place.fields("name", "file", "sha256")
    return m.Rule(name.text(), file.text(), sha256.text(_SHA256, "a sha256 in hex"))


def _made_with(place: Place) -> m.MadeWith:
    python, tvm, tvm_ffi, compiler, flags = place.fields("python", "tvm", "tvm_ffi", "compiler", "flags")
    return m.MadeWith(
        python.text(),
        tvm.text(),
        tvm_ffi.text(),
        compiler.text(),
        [flag.any_text() for flag in flags.items()],
    )


def _machine(place: Place) -> Machine | None:
    if place.value is None:
        return None
    system, arch, features = place.fields("system", "arch", "features")
    return Machine(system.text(), arch.text(), [feature.text() for feature in features.items()])


def _option(place: Place) -> str | bool | int:
    if not isinstance(place.value, str | bool | int):
        raise place.refuse(json.dumps(place.value), "a string, a boolean or an integer")
    return place.value


def _variant(place: Place) -> m.Variant:
    (
        identity,
        target,
        machine,
        dtypes,
        options,
        sizes,
        form,
        choices,
        requires,
        kernels,
        workspace,
        verdicts,
        unit_stride,
        dense,
        alignment,
    ) = place.filled(unit_stride=[], dense=[], alignment={}).fields(
        "id",
        "target",
        "machine",
        "dtypes",
        "options",
        "sizes",
        "form",
        "choices",
        "requires",
        "kernels",
        "workspace",
        "verdicts",
        "unit_stride",
        "dense",
        "alignment",
    )  # fmt: skip
    return m.Variant(
        id=identity.text(r"[0-9a-f]{4,64}", "4 to 64 hexadecimal digits"),
        target=target.text(),
        machine=_machine(machine),
        dtypes={name: dtype.one_of(m.DTYPES) for name, dtype in dtypes.members().items()},
        options={name: _option(option) for name, option in options.members().items()},
        sizes={name: size.count() for name, size in sizes.members().items()},
        form=form.of_type(dict),
        choices=choices.of_type(dict),
        requires=[_requirement(claim) for claim in requires.items()],
        kernels=[_kernel(kernel) for kernel in kernels.items()],
        workspace=[_workspace(buffer) for buffer in workspace.items()],
        verdicts=[_verdict(verdict) for verdict in verdicts.items()],
        unit_stride=[name.text() for name in unit_stride.items()],
        dense=[name.text() for name in dense.items()],
        alignment={name: size.count() for name, size in alignment.members().items()},
    )


def _requirement(place: Place) -> m.Requirement:
    text, otherwise = place.fields("text", "else")
    return m.Requirement(text.expression(parse_claim), otherwise.text())


def _workspace(place: Place) -> m.Workspace:
    name, dtype, size = place.fields("name", "dtype", "bytes")
    return m.Workspace(name.text(), dtype.one_of(m.DTYPES), size.expression(parse_number))


def _verdict(place: Place) -> m.Verdict:
    clause, verdict, evidence, found, needed = place.fields(
        "clause", "verdict", "evidence", "found", "needed"
    )
    return m.Verdict(
        clause.text(),
        verdict.one_of(m.VERDICTS),
        evidence.one_of(m.EVIDENCE),
        found.scalar(),
        needed.scalar(),
    )


_KERNEL_KEYS = ("name", "file", "symbol", "arguments", "grid", "launch")
# What a way of launching says of a kernel beyond that.
_LAUNCH_KEYS: dict[str, tuple[str, ...]] = {"host_range": (), "cuda": ("block", "shared_bytes")}


def _kernel(place: Place) -> m.Kernel:
    way = Place(place.of_type(dict).get("launch"), f"{place.path}.launch").one_of(m.LAUNCH_GRIDS)
    name, file, symbol, arguments, grid, _, *geometry = place.fields(*_KERNEL_KEYS, *_LAUNCH_KEYS[way])
    axes = grid.fields(*m.LAUNCH_GRIDS[way])
    block, shared_bytes = geometry or (None, None)
    return m.Kernel(
        name=name.text(),
        file=file.text(),
        symbol=symbol.text(_NAME, "a C identifier"),
        arguments=[_argument(argument) for argument in arguments.items()],
        grid={
            axis: size.expression(parse_number) for axis, size in zip(m.LAUNCH_GRIDS[way], axes, strict=True)
        },
        launch=way,
        block=None if block is None else [extent.count() for extent in block.items()],
        shared_bytes=0 if shared_bytes is None else shared_bytes.count(),
    )


# For each kind of argument: its class and, in order, (key, reader of the value).
_ARGUMENTS: dict[str, tuple[type, tuple[tuple[str, Any], ...]]] = {
    "tensor": (m.TensorArgument, (("name", Place.text), ("dtype", lambda place: place.one_of(m.DTYPES)))),
    "workspace": (m.WorkspaceArgument, (("name", Place.text),)),
    "stride": (m.StrideArgument, (("tensor", Place.text), ("axis", Place.count))),
    "size": (m.SizeArgument, (("name", Place.text),)),
    "given": (m.GivenArgument, (("name", Place.text),)),
    "scalar": (
        m.ScalarArgument,
        (("name", Place.text), ("dtype", lambda place: place.one_of(("f32", "i32", "i64")))),
    ),
    "grid_begin": (m.GridBegin, ()),
    "grid_end": (m.GridEnd, ()),
}


def _argument(place: Place) -> m.Argument:
    kind = Place(place.of_type(dict).get("kind"), f"{place.path}.kind").one_of(_ARGUMENTS)
    argument, readers = _ARGUMENTS[kind]
    values = place.fields("kind", *(key for key, _ in readers))[1:]
    return argument(*(read(value) for (_, read), value in zip(readers, values, strict=True)))


def _machine_document(machine: Machine | None) -> dict[str, Any] | None:
    if machine is None:
        return None
    return {"system": machine.system, "arch": machine.arch, "features": list(machine.features)}


def _variant_document(variant: m.Variant) -> dict[str, Any]:
    layout = {
        "unit_stride": list(variant.unit_stride),
        "dense": list(variant.dense),
        "alignment": dict(variant.alignment),
    }
    return {
        "id": variant.id,
        "target": variant.target,
        "machine": _machine_document(variant.machine),
        "dtypes": dict(variant.dtypes),
        "options": dict(variant.options),
        "sizes": dict(variant.sizes),
        "form": dict(variant.form),
        "choices": dict(variant.choices),
        "requires": [{"text": claim.text, "else": claim.otherwise} for claim in variant.requires],
        "kernels": [_kernel_document(kernel) for kernel in variant.kernels],
        "workspace": [attrs.asdict(buffer) for buffer in variant.workspace],
        "verdicts": [attrs.asdict(verdict) for verdict in variant.verdicts],
        **{key: value for key, value in layout.items() if value},
    }


def _kernel_document(kernel: m.Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "file": kernel.file,
        "symbol": kernel.symbol,
        "arguments": [
            {
                "kind": argument.kind,
                **{key: getattr(argument, key) for key, _ in _ARGUMENTS[argument.kind][1]},
            }
            for argument in kernel.arguments
        ],
        "grid": dict(kernel.grid),
        "launch": kernel.launch,
        **{key: getattr(kernel, key) for key in _LAUNCH_KEYS[kernel.launch]},
    }
