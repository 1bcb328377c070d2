"""An installation compiles every kernel of the congenial sampler, so that no first draw waits for one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import das.congenial
from das.congenial.kernels import compile_kernels


def test_each_is_called_once() -> None:
    compile_kernels()
    names = [path.stem for path in Path(das.congenial.__path__[0]).glob("*.py")]
    kernels = {
        f"{each.__module__}.{each.__name__}": each.signatures
        for name in names
        for each in vars(import_module(f"das.congenial.{name}")).values()
        if hasattr(each, "signatures") and hasattr(each, "py_func")
    }
    assert len(kernels) > 8
    assert [name for name, signatures in kernels.items() if not signatures] == []
