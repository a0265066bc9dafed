"""The judge shares nothing with what it judges, and its errors survive a process boundary."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import kdsl.validate
from kdsl.validate import errors

FOLDER = Path(kdsl.validate.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_only_numpy_and_the_standard_library_are_imported(path):
    allowed = {"numpy", "kdsl.validate", *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            assert name.split(".")[0] in allowed or name.startswith("kdsl.validate"), f"{path.name}: {name}"


def test_importing_the_judge_loads_nothing_heavy():
    modules = ", ".join(f"kdsl.validate.{path.stem}" for path in FILES if path.stem != "__init__")
    heavy = "('torch', 'tvm', 'lark', 'attrs')"
    code = f"import sys, {modules}; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "error",
    [
        errors.ArrayError(name="q", found="3", expected="4"),
        errors.MissingArrayError("o", purpose="acceptance"),
        errors.OptionError("gate", "unknown"),
        errors.TraceError(path="a.npz", problem="damaged"),
    ],
)
def test_errors_pickle_with_their_fields(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)
    with pytest.raises(errors.ValidationError):
        raise copy
