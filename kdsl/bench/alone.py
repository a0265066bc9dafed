"""A bundle, or one variant of it, as the only one that the public functions know."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve

from kdsl import kda
from kdsl.bundle.load import Bundle
from kdsl.bundle.manifest import Variant
from kdsl.bundle.write import write_bundle
from kdsl.runtime.shelf import BUNDLES_VARIABLE


@contextmanager
def alone(bundle: Bundle, variant: Variant | None = None) -> Iterator[None]:
    """Within it calls run on the bundle, or on this variant of it, or are refused; nothing is compiled meanwhile."""
    kept = {name: os.environ.get(name) for name in (kda.COMPILE_VARIABLE, BUNDLES_VARIABLE)}
    with tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
        path = bundle.path
        if variant is not None:
            files = {name: bundle.file(name) for name in bundle.manifest.files if name.startswith(f"{variant.id}/")}
            path = write_bundle(Path(folder) / "one.kdsb", evolve(bundle.manifest, variants=(variant,)), files)
        os.environ[kda.COMPILE_VARIABLE] = "0"
        os.environ.pop(BUNDLES_VARIABLE, None)
        kda.forget_bundles()
        try:
            kda.use_bundle(path)
            yield
        finally:
            kda.forget_bundles()
            for name, value in kept.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
