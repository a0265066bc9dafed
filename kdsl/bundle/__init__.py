"""The artifact on disk: manifest, hashes, machine, cache. Imports nothing else of kdsl."""

from kdsl.bundle.cache import Cache
from kdsl.bundle.codec import decode, encode
from kdsl.bundle.errors import (
    BundleError,
    BundleExists,
    ExpressionError,
    ManifestError,
    NotABundle,
    TamperedBundle,
    UnsafePath,
    WrongMachine,
)
from kdsl.bundle.load import Bundle, load_bundle, read_bundle
from kdsl.bundle.machine import Machine, this_machine
from kdsl.bundle.manifest import Manifest, Variant
from kdsl.bundle.write import write_bundle

__all__ = [
    "Bundle",
    "BundleError",
    "BundleExists",
    "Cache",
    "ExpressionError",
    "Machine",
    "Manifest",
    "ManifestError",
    "NotABundle",
    "TamperedBundle",
    "UnsafePath",
    "Variant",
    "WrongMachine",
    "decode",
    "encode",
    "load_bundle",
    "read_bundle",
    "this_machine",
    "write_bundle",
]
