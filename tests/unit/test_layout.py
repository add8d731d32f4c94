"""The layout of the tree that Python itself depends on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_operator_folder_does_not_shadow_the_standard_library() -> None:
    """With operator/__init__.py no Python could start whose path begins at the root."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    done = subprocess.run(
        [sys.executable, "-c", "import operator; print(operator.__file__)"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ROOT) + "/operator" not in done.stdout
