from __future__ import annotations

import json
from typing import Any

import pytest

from localcluster.sim import bodies
from tests.unit.sim.reading import fixture

LONGEST = 512


def read(version: str = "0.29.0", *, chat: bool = False, **body: Any) -> bodies.Wanted:
    return bodies.read(
        json.dumps(body), chat=chat, version=version, names=["tiny", "small"], longest=LONGEST
    )


@pytest.mark.parametrize(
    ("version", "capture"),
    [("0.29.0", "0.29.0-v2-auto"), ("0.32.0", "0.32.0-v1-ngram-kv-full")],
)
@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("reject-bad-model.json", {"model": "nope", "prompt": "x", "max_tokens": 5}),
        ("reject-bad-param.json", {"model": "tiny", "prompt": "x", "max_tokens": -5}),
    ],
)
def test_refusals_are_those_of_a_real_server(
    version: str, capture: str, name: str, body: dict[str, Any]
) -> None:
    with pytest.raises(bodies.RequestError) as refused:
        bodies.read(json.dumps(body), chat=False, version=version, names=["tiny"], longest=LONGEST)
    assert refused.value.body == json.loads(fixture(capture, name))
    assert refused.value.status == refused.value.body["error"]["code"]


@pytest.mark.parametrize(
    ("version", "capture"),
    [("0.29.0", "0.29.0-v2-auto"), ("0.32.0", "0.32.0-v1-ngram-kv-full")],
)
def test_a_prompt_of_too_many_characters_is_refused_as_by_a_real_server(
    version: str, capture: str
) -> None:
    with pytest.raises(bodies.RequestError) as refused:
        read(version, model="tiny", prompt="word " * 2400, max_tokens=5)
    assert refused.value.body == json.loads(fixture(capture, "reject-too-long.json"))


@pytest.mark.parametrize(("prompt", "output", "fits"), [(500, 12, True), (500, 13, False)])
def test_the_longest_request(prompt: int, output: int, *, fits: bool) -> None:
    body: dict[str, Any] = {"prompt": list(range(prompt)), "max_tokens": output}
    if fits:
        assert read(**body).prompt_tokens == prompt
        return
    with pytest.raises(bodies.RequestError, match="maximum context length is 512 tokens"):
        read(**body)


def test_what_a_client_may_ask_for() -> None:
    wanted = read(
        chat=True,
        model="small",
        messages=[{"role": "user", "content": "a" * 40}],
        max_completion_tokens=7,
        max_tokens=9,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert wanted == bodies.Wanted(
        model="small",
        prompt="a" * 40,
        prompt_tokens=10,
        output_tokens=7,
        stream=True,
        usage=True,
        varies=False,
    )
    default = read(prompt="hello")
    assert (default.model, default.output_tokens, default.stream) == ("tiny", 16, False)
    assert default.varies


@pytest.mark.parametrize(
    "body", [{}, {"prompt": None}, {"prompt": ["a"]}, {"prompt": "a", "max_tokens": "x"}]
)
def test_a_malformed_request(body: dict[str, Any]) -> None:
    with pytest.raises(bodies.RequestError) as refused:
        read(**body)
    assert refused.value.status == 400


def events(data: bytes) -> list[str]:
    parts = data.decode().split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    return [part.removeprefix("data: ") for part in parts]


@pytest.mark.parametrize("chat", [True, False])
def test_a_stream_says_what_the_whole_answer_says(*, chat: bool) -> None:
    body: dict[str, Any] = {"messages": [{"content": "hello"}]} if chat else {"prompt": "hello"}
    wanted = read(chat=chat, max_tokens=5, stream_options={"include_usage": True}, **body)
    answer = bodies.Answer("id", "0.29.0", wanted, chat, "")
    whole = answer.whole(5, "length")
    data = answer.opening() + answer.chunks(0, 2, None) + answer.chunks(2, 3, "length")
    found = [json.loads(e) for e in events(data)]
    choices = [e["choices"][0] for e in found]
    if chat:
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        text = "".join(c["delta"]["content"] for c in choices)
        assert text == whole["choices"][0]["message"]["content"]
    else:
        text = "".join(c["text"] for c in choices)
        assert text == whole["choices"][0]["text"]
    assert len(text.split()) == 5
    assert [c["finish_reason"] for c in choices[-5:]] == [None] * 4 + ["length"]
    usage, done = events(answer.closing(5))
    assert done == "[DONE]"
    assert json.loads(usage)["usage"] == whole["usage"]
    assert whole["usage"] == {"prompt_tokens": 1, "total_tokens": 6, "completion_tokens": 5}


def test_a_stream_that_is_cut_without_a_token_still_says_why() -> None:
    answer = bodies.Answer("id", "0.29.0", read(prompt="x"), chat=False, seed="")
    [event] = events(answer.chunks(3, 0, "abort"))
    assert json.loads(event)["choices"][0]["finish_reason"] == "abort"


def test_the_keys_are_among_those_of_a_real_answer() -> None:
    real = json.loads(fixture("0.29.0-v2-auto", "chat-ok.json"))
    wanted = read(chat=True, messages=[{"content": "x"}])
    mine = bodies.Answer("id", "0.29.0", wanted, chat=True, seed="").whole(8, "length")
    assert mine.keys() <= real.keys()
    assert mine["choices"][0].keys() <= real["choices"][0].keys()
    assert mine["choices"][0]["message"].keys() <= real["choices"][0]["message"].keys()
    assert mine["object"] == real["object"]
    first = fixture("0.29.0-v2-auto", "chat-stream.txt").partition("\n")[0]
    recorded = json.loads(first.removeprefix("data: "))
    opening = json.loads(
        events(bodies.Answer("id", "0.29.0", wanted, chat=True, seed="").opening())[0]
    )
    assert opening["choices"] == recorded["choices"]
    assert opening["object"] == recorded["object"]


def test_the_text_depends_on_prompt_and_seed_alone() -> None:
    def text(prompt: str, seed: str) -> str:
        answer = bodies.Answer("id", "0.29.0", read(prompt=prompt), chat=False, seed=seed)
        return str(answer.whole(16, "length")["choices"][0]["text"])

    assert text("a", "") == text("a", "")
    assert text("a", "") != text("b", "")
    assert text("a", "") != text("a", "1")
