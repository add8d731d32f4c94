"""How far a starting vLLM server has come, from its log: for messages to a person.

The lines are those of 0.28 to 0.33; texts that are printed by both runners and on every platform
where possible.
"""

from __future__ import annotations

import re

from vllm_upgrade_operator.vllm.logs import lines, log_lines

# In the order in which a start goes through them. Where a phase ends with a line and the next one
# begins silently, the line that ends it names the next phase.
_PHASES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"non-default args: .*|Resolved architecture: .*"), "reading the configuration"),
    (re.compile(r"Initializing a V1 LLM engine .*"), "starting the engine"),
    (
        re.compile(r"Starting to load model .*|Loading model from scratch\.\.\."),
        "loading weights",
    ),
    (
        re.compile(r"Loading weights took .*|Model loading took .*"),
        "profiling",
    ),
    (
        # From 0.32 on these lines may begin with a tag such as `[backbone]`.
        re.compile(
            r"(?:\[[\w-]+\] )?(?:Dynamo bytecode transform time: .*"
            r"|Compiling a graph for compile range .*"
            r"|Directly load the compiled graph.*)"
        ),
        "compiling",
    ),
    (
        re.compile(
            r"(?:\[[\w-]+\] )?torch\.compile took .*|Available KV cache memory: .*"
            r"|.+ KV cache size: .* tokens, Maximum concurrency .*"
        ),
        "preparing the KV cache and graphs",
    ),
    (
        re.compile(r"Graph capturing finished .*|init engine \(.*\) took .*"),
        "warming up",
    ),
    (re.compile(r"Starting vLLM server on .*"), "opening the port"),
)
_SERVING = re.compile(r"(?:\([\w.-]+ pid=\d+\) )?INFO:\s+Application startup complete\.")


def startup_phase(log: str) -> str | None:
    """Name the latest phase that the log shows; None where it shows none."""
    if any(_SERVING.match(line) for line in lines(log)):
        return "serving"
    latest = -1
    for line in log_lines(log):
        for index in range(len(_PHASES) - 1, latest, -1):
            if _PHASES[index][0].fullmatch(line.message):
                latest = index
                break
    return _PHASES[latest][1] if latest >= 0 else None
