from __future__ import annotations

from vllm_upgrade_operator.upgrade.shown import FLAG_LIMIT, FLAGS_LIMIT, shown_flags
from vllm_upgrade_operator.vllm.reading import read_options
from vllm_upgrade_operator.vllm.versions import Version


def shown(*args: str, env: dict[str, str] | None = None) -> tuple[str, ...]:
    variables = [{"name": n, "value": v} for n, v in (env or {}).items()]
    container = {"name": "vllm", "args": list(args), "env": variables}
    return shown_flags(read_options(container, Version(0, 33)))


def test_flags_are_shown_with_plain_values_in_one_spelling() -> None:
    assert shown("--max_num_seqs=8", "--model", "/models/llama-3.1", "-tp", "2") == (
        "max-num-seqs=8",
        "model=/models/llama-3.1",
        "tensor-parallel-size=2",
    )
    assert shown("--enforce-eager", "--no-enable-prefix-caching") == (
        "enforce-eager",
        "no-enable-prefix-caching",
    )
    assert shown("--served-model-name", "a", "b") == ("served-model-name=a,b",)


def test_no_key_is_shown_whatever_it_looks_like() -> None:
    assert shown("--api-key", "s3cret") == ("api-key",)
    assert shown("--hf-token=s3cret") == ("hf-token",)
    assert shown("--otlp-traces-endpoint", "http://user:s3cret@x") == ("otlp-traces-endpoint",)
    assert shown("--hf-overrides", '{"token": "s3cret"}') == ("hf-overrides",)
    assert shown("--no-such-flag", "s3cret") == ("no-such-flag",)
    assert shown("--max-num-seqs", "$(N)") == ("max-num-seqs",)


def test_it_is_bounded() -> None:
    many = [f"--unknown-{n}-{'x' * 200}" for n in range(200)]
    found = shown(*many)
    assert len(found) == FLAGS_LIMIT
    assert max(len(text) for text in found) == FLAG_LIMIT
