"""Scripts of benchmarks/ and tools/ as modules, for the tests."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent


def load_script(name: str) -> ModuleType:
    """The module of a script, named by its path in the repository."""
    path = ROOT / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
