"""What real servers answered and logged; see docs of the captures in tests/fixtures/vllm."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).parents[2] / "fixtures" / "vllm"


def read(capture: str, name: str) -> str:
    return (_ROOT / capture / name).read_text(encoding="utf-8")
