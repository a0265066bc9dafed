"""What can be wrong with a bundle. Every error says what was found, what was needed and what to do.

Not frozen: Python itself writes to an exception, and so does unpickling one.
"""

from __future__ import annotations

import attrs


class BundleError(Exception):
    """Base of every error about a bundle on disk or the text inside it."""


@attrs.define(slots=False)
class ManifestError(BundleError):
    """The manifest is not what the schema asks for. `path` is the place in the document: `variants[0].id`."""

    path: str
    found: str
    needed: str
    remedy: str = "rebuild the bundle with `kdsl lower`"

    def __str__(self) -> str:
        return f"manifest at {self.path}: found {self.found}; needed {self.needed}; {self.remedy}"


@attrs.define(slots=False)
class ExpressionError(BundleError):
    """A size expression or a claim that cannot be read or has no value. `position` counts from 0, or is
    -1.
    """

    text: str
    position: int
    found: str
    needed: str
    remedy: str = "correct the expression in the rule and rebuild the bundle"

    def __str__(self) -> str:
        place = f" at character {self.position}" if self.position >= 0 else ""
        return f"expression `{self.text}`{place}: found {self.found}; needed {self.needed}; {self.remedy}"


@attrs.define(slots=False)
class NotABundle(BundleError):
    """There is no bundle at the path."""

    bundle: str
    found: str
    needed: str = "a folder with a manifest.json"
    remedy: str = "check the path, or build the bundle with `kdsl lower`"

    def __str__(self) -> str:
        return f"{self.bundle}: found {self.found}; needed {self.needed}; {self.remedy}"


@attrs.define(slots=False)
class UnsafePath(BundleError):
    """A name in a bundle that could reach outside its folder: `..`, an absolute path, a symbolic link."""

    bundle: str
    name: str
    found: str
    needed: str = "a plain file under the bundle's folder, named with forward slashes"
    remedy: str = "do not use this bundle; build it again from its rule"

    def __str__(self) -> str:
        return f"{self.bundle}: `{self.name}` is {self.found}; needed {self.needed}; {self.remedy}"


@attrs.define(slots=False)
class TamperedBundle(BundleError):
    """The files are not those the manifest lists. `changed` holds (name, found sha256, needed sha256)."""

    bundle: str
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    changed: tuple[tuple[str, str, str], ...] = ()

    def __str__(self) -> str:
        parts = [f"missing {name}" for name in self.missing]
        parts += [f"{name} that the manifest does not list" for name in self.extra]
        parts += [
            f"{name} with sha256 {found[:12]}..., needed {needed[:12]}..."
            for name, found, needed in self.changed
        ]
        return (
            f"{self.bundle}: found {'; '.join(parts)}; needed exactly the files of the manifest, unchanged; "
            "copy the bundle again or rebuild it with `kdsl lower`"
        )


@attrs.define(slots=False)
class WrongMachine(BundleError):
    """No variant of the bundle was built for this machine. `shortfalls` has one line for each variant."""

    bundle: str
    shortfalls: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.bundle}: no variant runs on this machine: {'; '.join(self.shortfalls)}; "
            "build one here with `kdsl lower`, or use a bundle built for this machine"
        )


@attrs.define(slots=False)
class BundleExists(BundleError):
    """Writing would replace a bundle that is already there."""

    bundle: str

    def __str__(self) -> str:
        return (
            f"{self.bundle}: found a file or folder of this name; needed a free name; "
            "remove it, choose another name, or write with replace=True"
        )
