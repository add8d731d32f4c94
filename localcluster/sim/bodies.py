"""Bodies of requests and answers, as vLLM's OpenAI-compatible server writes them."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

from localcluster.sim.versions import at_least

_CHARACTERS_PER_TOKEN = 4
# The longest token of the tokenizer: a longer prompt is refused without tokenizing it.
_MOST_CHARACTERS_PER_TOKEN = 9
_DEFAULT_OUTPUT = 16
# What models say whose weights or kernels are broken: always the same token.
_GARBAGE = "!"
_WORDS = ("the", "queue", "runs", "token", "model", "cache", "first", "step")

Body = dict[str, Any]


class RequestError(Exception):
    """A request that vLLM answers with an error; `body` is its answer."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error(status, kind, message, param)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for a completion.

    Attributes:
        model: The name that the client asked for.
        prompt: The prompt as one text.
        prompt_tokens: Its length.
        output_tokens: Tokens to generate.
        stream: Whether to send each token as it comes.
        usage: Whether a stream ends with the usage.
        varies: Whether the same prompt may get another text.
    """

    model: str
    prompt: str
    prompt_tokens: int
    output_tokens: int
    stream: bool
    usage: bool
    varies: bool


def error(status: int, kind: str, message: str, param: str | None = None) -> Body:
    """Give the body of an error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def read(text: str, *, chat: bool, version: str, names: list[str], longest: int) -> Wanted:
    """Read a request for a completion.

    Args:
        text: The body.
        chat: Whether it has messages instead of a prompt.
        version: The version that is played.
        names: Names of the model.
        longest: Most tokens of a prompt and its output.

    Raises:
        RequestError: vLLM would refuse it.
    """
    try:
        body = json.loads(text)
        prompt = _prompt(body, chat=chat)
        asked = body.get("max_completion_tokens") if chat else None
        asked = body.get("max_tokens", _DEFAULT_OUTPUT) if asked is None else asked
        output = _DEFAULT_OUTPUT if asked is None else int(asked)
        name = str(body.get("model") or names[0])
        usage = (body.get("stream_options") or {}).get("include_usage", False)
        temperature = float(body.get("temperature", 1.0))
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise RequestError(400, "BadRequestError", f"malformed request: {problem!r}") from problem
    if name not in names:
        raise _no_model(version, name, names)
    if output < 1:
        raise RequestError(
            400,
            "BadRequestError",
            f"max_tokens must be at least 1, got {output}. (parameter=max_tokens, value={output})",
            "max_tokens",
        )
    length = tokens(prompt)
    if length + output > longest:
        raise _too_long(version, prompt, output, longest)
    return Wanted(
        model=name,
        prompt=prompt if isinstance(prompt, str) else json.dumps(prompt),
        prompt_tokens=length,
        output_tokens=output,
        stream=bool(body.get("stream")),
        usage=bool(usage),
        varies=temperature > 0,
    )


def tokens(prompt: str | list[int]) -> int:
    """Count the tokens of a prompt: of a text, one for four characters."""
    length = len(prompt) // _CHARACTERS_PER_TOKEN if isinstance(prompt, str) else len(prompt)
    return max(1, length)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request, whole or in chunks. The same seed gives the same text.

    Attributes:
        identity: The request's.
        version: The version that is played.
        wanted: The request.
        chat: Whether it is one of a chat.
        seed: What the text depends on beside the prompt.
        garbage: Whether the text is what a broken model says.
        created: Seconds since the epoch.
    """

    identity: str
    version: str
    wanted: Wanted
    chat: bool
    seed: str
    garbage: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, count: int, reason: str) -> Body:
        """Give the answer to a request that does not stream."""
        digest = self._digest()
        text = "".join(self._word(digest, i) for i in range(count))
        content: Body = (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if self.chat
            else {"text": text}
        )
        choice = {"index": 0, **content, "logprobs": None}
        choice |= {"finish_reason": reason, "stop_reason": None}
        return {
            "id": self.identity,
            "object": "chat.completion" if self.chat else "text_completion",
            "created": self.created,
            "model": self.wanted.model,
            "choices": [choice],
            "system_fingerprint": f"vllm-{self.version}-00000000",
            "usage": self._usage(count),
        }

    def opening(self) -> bytes:
        """Give the first event of a stream, before any token; a chat has one."""
        if not self.chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
        return self._event([{**choice, "finish_reason": None}])

    def chunks(self, first: int, count: int, ending: str | None) -> bytes:
        """Give the events of some tokens; the last one says how it ended, if it did."""
        digest = self._digest()
        mark = "\0"
        content: Body = {"delta": {"content": mark}} if self.chat else {"text": mark}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": None}
        before, _, after = self._event([choice]).partition(json.dumps(mark).encode())
        events = [
            before + json.dumps(self._word(digest, i)).encode() + after
            for i in range(first, first + count)
        ]
        if ending is not None:
            # The reason stands on the last token; without a token it stands alone.
            word = self._word(digest, first + count - 1) if count else ""
            last: Body = {"delta": {"content": word}} if self.chat else {"text": word}
            choice = {"index": 0, **last, "logprobs": None, "finish_reason": ending}
            events[-1:] = [self._event([{**choice, "stop_reason": None}])]
        return b"".join(events)

    def closing(self, count: int) -> bytes:
        """Give the last events of a stream."""
        usage = self._event([], usage=self._usage(count)) if self.wanted.usage else b""
        return usage + b"data: [DONE]\n\n"

    def _word(self, digest: bytes, index: int) -> str:
        if self.garbage:
            return _GARBAGE
        word = _WORDS[(digest[index % len(digest)] + index) % len(_WORDS)]
        return f" {word}" if index else word

    def _digest(self) -> bytes:
        return hashlib.sha256(f"{self.seed}{self.wanted.prompt}".encode()).digest()

    def _usage(self, count: int) -> Body:
        prompt = self.wanted.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + count,
            "completion_tokens": count,
        }

    def _event(self, choices: list[Body], **more: Body) -> bytes:
        body = {
            "id": self.identity,
            "object": "chat.completion.chunk" if self.chat else "text_completion",
            "created": self.created,
            "model": self.wanted.model,
            "choices": choices,
            **more,
        }
        return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def _prompt(body: Body, *, chat: bool) -> str | list[int]:
    if chat:
        return " ".join(str(m.get("content") or "") for m in body["messages"])
    prompt = body["prompt"]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt and all(isinstance(t, int) for t in prompt):
        return prompt
    raise TypeError("the prompt is neither a text nor a list of token ids")


def _no_model(version: str, name: str, names: list[str]) -> RequestError:
    message = f"The model `{name}` does not exist."
    if at_least(version, "0.32.0"):
        message += f" Valid aliases: {', '.join(names)}."
    return RequestError(404, "NotFoundError", message, "model")


def _too_long(version: str, prompt: str | list[int], output: int, longest: int) -> RequestError:
    """Refuse a prompt in the words of the version (recorded from 0.29 and 0.32)."""
    early = isinstance(prompt, str) and not at_least(version, "0.32.0")
    room = longest - output if early else longest
    length, unit = tokens(prompt), "tokens"
    if isinstance(prompt, str) and len(prompt) > room * _MOST_CHARACTERS_PER_TOKEN:
        most = room * _MOST_CHARACTERS_PER_TOKEN
        length, unit = len(prompt), "characters"
        detail = (
            f"{length} characters (more than {most} characters, which is the upper bound for "
            f"{room} input tokens)"
        )
    else:
        detail = f"at least {length} input tokens"
    both = early or unit == "tokens"
    asked = f"you requested {output} output tokens and " if both else ""
    more = " or the number of requested output tokens" if both else ""
    param = "input_text" if unit == "characters" else "input_tokens"
    return RequestError(
        400,
        "BadRequestError",
        f"This model's maximum context length is {longest} tokens. However, {asked}your prompt "
        f"contains {detail}. Please reduce the length of the input prompt{more}. "
        f"(parameter={param}, value={length})",
        param,
    )
