from __future__ import annotations

from typing import Any

import pytest

from vllm_upgrade_operator.vllm.arguments import canonical
from vllm_upgrade_operator.vllm.command import edit_arguments, is_vllm_command, words
from vllm_upgrade_operator.vllm.errors import TemplateError


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "vllm", "image": "i", **fields}


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("--max_num-seqs", "max-num-seqs"),
        ("max_num_seqs", "max-num-seqs"),
        ("--speculative_config.num_tokens", "speculative-config.num_tokens"),
    ],
)
def test_a_flag_has_one_spelling(name: str, one: str) -> None:
    assert canonical(name) == one


@pytest.mark.parametrize(
    ("args", "set_", "after"),
    [
        (["m", "--a", "1", "--b", "2"], [("a", "9")], ["m", "--a", "9", "--b", "2"]),
        (["m", "--a=1", "--b", "2"], [("a", "9")], ["m", "--a=9", "--b", "2"]),
        (["m", "--a_b", "1"], [("a-b", "9")], ["m", "--a_b", "9"]),
        (["m", "--a-b=1"], [("a_b", "9")], ["m", "--a-b=9"]),
        (["m", "--b", "2"], [("a", "9")], ["m", "--b", "2", "--a", "9"]),
        (["m", "--b", "2"], [("a", None)], ["m", "--b", "2", "--a"]),
        (["m", "--a", "--b", "2"], [("a", None)], ["m", "--a", "--b", "2"]),
        (["m", "--a", "1", "--a", "2"], [("a", "9")], ["m", "--a", "9"]),
        (["m", "--a", "x", "y", "--b"], [("a", "9")], ["m", "--a", "9", "--b"]),
        (["m", "--no-a", "--b"], [("a", None)], ["m", "--b", "--a"]),
        (["m", "--a", "--b"], [("no-a", None)], ["m", "--b", "--no-a"]),
        (["m", "--a", "-1", "--b"], [("a", "-2")], ["m", "--a", "-2", "--b"]),
        (["m", "-tp", "2"], [("tensor-parallel-size", "4")], ["m", "-tp", "4"]),
        (["--model", "m", "--a", "1"], [("model", "n")], ["--model", "n", "--a", "1"]),
        (["--a", "$(PORT)"], [("b", '{"k": [1, 2]}')], ["--a", "$(PORT)", "--b", '{"k": [1, 2]}']),
    ],
)
def test_flags_are_set_where_they_stand(
    args: list[str], set_: list[tuple[str, str | None]], after: list[str]
) -> None:
    before = container(args=args)
    assert edit_arguments(before, set_=set_) == container(args=after)
    assert before["args"] == args


@pytest.mark.parametrize(
    ("args", "unset", "after"),
    [
        (["m", "--a", "1", "--b"], ["a"], ["m", "--b"]),
        (["m", "--a=1", "--b"], ["a"], ["m", "--b"]),
        (["m", "--a", "--b"], ["a"], ["m", "--b"]),
        (["m", "--a_b", "1", "2"], ["a-b"], ["m"]),
        (["m", "--a", "1", "--a", "2"], ["--a"], ["m"]),
    ],
)
def test_flags_are_unset(args: list[str], unset: list[str], after: list[str]) -> None:
    assert edit_arguments(container(args=args), unset=unset)["args"] == after


def test_unsetting_what_is_not_there_names_what_is() -> None:
    with pytest.raises(TemplateError, match=r"'max-seqs'.*there are: max-num-seqs, port") as caught:
        edit_arguments(container(args=["m", "--max-num-seqs", "8", "--port=1"]), unset=["max-seqs"])
    assert caught.value.field == "spec.candidate.unsetArgs"


@pytest.mark.parametrize("change", [{"set_": [("tp", "2")]}, {"unset": ["tp"]}])
def test_a_short_spelling_is_refused_with_the_long_one(change: Any) -> None:
    field = "args" if "set_" in change else "unsetArgs"
    says = rf"spec\.candidate\.{field}: flag 'tp' is a short spelling: write 'tensor-parallel-size'"
    with pytest.raises(TemplateError, match=says):
        edit_arguments(container(args=["m", "-tp", "4"]), **change)


@pytest.mark.parametrize(
    ("args", "set_"),
    [
        (["m", "--speculative-config", "{}"], ("speculative-config.method", "eagle")),
        (["m", "--speculative_config.method=eagle"], ("speculative-config", "{}")),
    ],
)
def test_an_object_is_set_whole_or_by_its_keys(args: list[str], set_: tuple[str, str]) -> None:
    with pytest.raises(TemplateError, match="would not be merged") as caught:
        edit_arguments(container(args=args), set_=[set_])
    assert caught.value.field == "spec.candidate.args"
    other = "speculative-config.method" if "." in args[1] else "speculative-config"
    after = edit_arguments(container(args=args), set_=[set_], unset=[other])
    assert after["args"] == ["m", f"--{set_[0]}", set_[1]]
    more = [("speculative-config.num_speculative_tokens", "3")]
    keys = container(args=["m", "--speculative-config.method", "eagle"])
    assert edit_arguments(keys, set_=more)["args"][-1] == "3"


def test_everything_in_command() -> None:
    before = container(command=["vllm", "serve", "m", "--a", "1"])
    after = edit_arguments(before, set_=[("a", "2"), ("b", "3")])
    assert after == container(command=["vllm", "serve", "m", "--a", "2", "--b", "3"])


def test_command_and_args() -> None:
    before = container(
        command=["python3", "-u", "-m", "vllm.entrypoints.openai.api_server"], args=[]
    )
    assert edit_arguments(before, set_=[("model", "m")])["command"][-2:] == ["--model", "m"]
    before = container(command=["vllm", "serve", "m", "--a", "1"], args=["--b", "2"])
    after = edit_arguments(before, set_=[("a", "5"), ("c", "3")], unset=["b"])
    # With `args` emptied, the new flag goes to the command.
    assert [*after["command"], *after["args"]] == ["vllm", "serve", "m", "--a", "5", "--c", "3"]


def test_nothing_to_change_changes_nothing_and_needs_no_parsing() -> None:
    before = container(command=["sh", "-c", "x=$(y) vllm serve $M | tee log"])
    assert edit_arguments(before) == before


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (["sh", "-c", "exec vllm serve 'my model' --a 1"], None),
        (["/bin/bash", "-c"], ["vllm serve 'my model' --a 1"]),
    ],
)
def test_a_simple_shell_command(command: list[str], args: list[str] | None) -> None:
    before = container(command=command, **({} if args is None else {"args": args}))
    after = edit_arguments(before, set_=[("a", "x y"), ("b", None)])
    script = [*after["command"], *after.get("args", [])][-1]
    assert script.removeprefix("exec ") == "vllm serve 'my model' --a 'x y' --b"
    assert after.keys() == before.keys()


@pytest.mark.parametrize(
    "script",
    [
        "vllm serve $MODEL",
        "vllm serve m && sleep 1",
        "vllm serve m; true",
        "cd /x\nvllm serve m",
        "X=1 vllm serve m",
        "vllm serve m > log",
        "python3 other.py",
        "vllm serve 'm",
    ],
)
def test_a_script_is_refused(script: str) -> None:
    with pytest.raises(TemplateError, match=r"containers\[vllm\].*cannot be edited"):
        edit_arguments(container(command=["sh", "-c", script]), set_=[("a", "1")])


@pytest.mark.parametrize(
    ("args", "change"),
    [
        (["--flag", "model"], {"unset": ["flag"]}),
        (["--flag", "model"], {"set_": [("flag", None)]}),
        (["--flag", "1", "model"], {"set_": [("flag", "2")]}),
    ],
)
def test_a_model_at_the_end_is_not_taken_for_a_value(args: list[str], change: Any) -> None:
    with pytest.raises(TemplateError, match="it cannot be told whether the last word"):
        edit_arguments(container(command=["vllm", "serve"], args=args), **change)


def test_a_value_is_not_told_in_an_error() -> None:
    secret = container(command=["vllm", "serve"], args=["--api-key", "hush"])
    with pytest.raises(TemplateError, match="--api-key or the model") as caught:
        edit_arguments(secret, unset=["api-key"])
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("tokens", "it_is"),
    [
        (["vllm", "serve", "m"], True),
        (["/usr/bin/vllm", "serve"], True),
        (["python3", "-m", "vllm.entrypoints.openai.api_server"], True),
        (["vllm", "bench"], False),
        (["serve", "m"], False),
        ([], False),
    ],
)
def test_what_starts_a_server(tokens: list[str], it_is: bool) -> None:  # noqa: FBT001
    assert is_vllm_command(tokens) is it_is


def test_words_of_a_shell_command() -> None:
    assert words(container(command=["sh", "-c", "vllm serve m"])) == ["vllm", "serve", "m"]
    assert words(container(command=["sh", "-c", "vllm serve $M"])) is None
