"""Packs this folder into `NAME-VERSION.vsix`, without a network: a .vsix is a zip with two lists in front.

    npm ci && python build.py [--output DIR]

The same files give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

HERE = Path(__file__).resolve().parent
FILES = ("package.json", "extension.js", "language-configuration.json", "README.md")
FOLDERS = ("syntaxes", "snippets")
LICENSE = HERE.parents[1] / "LICENSE"
TYPES = {
    ".json": "application/json", ".js": "application/javascript", ".md": "text/markdown",
    ".txt": "text/plain",
    ".vsixmanifest": "text/xml", ".map": "application/json", ".ts": "text/plain",
    ".mjs": "application/javascript",
    ".cjs": "application/javascript", ".yml": "text/plain", ".yaml": "text/plain", ".cmd": "text/plain",
    ".bnf": "text/plain",
}  # fmt: skip
ASSETS = (
    ("Code.Manifest", "package.json"), ("Services.Content.Details", "README.md"),
    ("Services.Content.License", "LICENSE.txt"),
)  # fmt: skip
EPOCH = (1980, 1, 1, 0, 0, 0)


def packages() -> list[Path]:
    """The folders of npm packages that the extension needs when it runs."""
    lock = json.loads((HERE / "package-lock.json").read_text("utf-8"))
    names = [name for name, entry in lock["packages"].items() if name and not entry.get("dev")]
    missing = [name for name in names if not (HERE / name).is_dir()]
    if missing:
        raise SystemExit(f"{', '.join(missing)}: not there; run `npm ci` first")
    return [HERE / name for name in names]


def contents() -> dict[str, bytes]:
    """Every file of the extension by its path in it."""
    found = {name: (HERE / name).read_bytes() for name in FILES}
    found["LICENSE.txt"] = LICENSE.read_bytes()
    for folder in (*(HERE / name for name in FOLDERS), *packages()):
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            found[path.relative_to(HERE).as_posix()] = path.read_bytes()
    return dict(sorted(found.items()))


def manifest(package: dict) -> str:
    assets = "\n    ".join(
        f'<Asset Type="Microsoft.VisualStudio.{kind}" Path="extension/{path}" Addressable="true" />'
        for kind, path in ASSETS
    )
    tags = ",".join(["kds", *package["keywords"], "__ext_kds"])
    return f"""<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id={quoteattr(package["name"])} Version={quoteattr(package["version"])}
              Publisher={quoteattr(package["publisher"])} />
    <DisplayName>{package["displayName"]}</DisplayName>
    <Description xml:space="preserve">{package["description"]}</Description>
    <Tags>{tags}</Tags>
    <Categories>{",".join(package["categories"])}</Categories>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={quoteattr(package["engines"]["vscode"])} />
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value="workspace" />
    </Properties>
    <License>extension/LICENSE.txt</License>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code" /></Installation>
  <Dependencies />
  <Assets>
    {assets}
  </Assets>
</PackageManifest>
"""


def content_types(paths) -> str:
    """A type for every ending, and for every file without one."""
    endings = sorted({Path(path).suffix for path in paths} - {""} | {".vsixmanifest"})
    bare = sorted(path for path in paths if not Path(path).suffix)
    rows = [
        f'  <Default Extension="{e}" ContentType="{TYPES.get(e, "application/octet-stream")}" />'
        for e in endings
    ]
    rows += [f'  <Override PartName="/extension/{path}" ContentType="text/plain" />' for path in bare]
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    space = "http://schemas.openxmlformats.org/package/2006/content-types"
    return f'{head}<Types xmlns="{space}">\n' + "\n".join(rows) + "\n</Types>\n"


def build(output: Path) -> Path:
    """Write the package; its path."""
    package = json.loads((HERE / "package.json").read_text("utf-8"))
    files = contents()
    target = output / f"{package['name']}-{package['version']}.vsix"
    output.mkdir(parents=True, exist_ok=True)
    entries = {
        "extension.vsixmanifest": manifest(package).encode(),
        "[Content_Types].xml": content_types(files).encode(),
        **{f"extension/{path}": data for path, data in files.items()},
    }
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=HERE, help="the folder for the file")
    print(build(parser.parse_args().output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
