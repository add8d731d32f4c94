"""What a server is told, as status shows it: flags with their values, but nothing secret."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_upgrade_operator.vllm.options import Options

FLAGS_LIMIT = 96
FLAG_LIMIT = 160
_SECRET = frozenset({"api-key", "hf-token"})
# Numbers, names, paths. What else a value may be, such as JSON or an address, may hold a key.
_PLAIN = re.compile(r"[\w.+/-]{1,64}")


def shown_flags(options: Options) -> tuple[str, ...]:
    """Give `flag=value`, sorted; the name alone where the value is not plain, or is secret.

    What is given as `--no-flag` is shown so. A flag that the version does not have is shown too.
    """
    found = []
    for name, given in options.given.items():
        spelled = name if given.on else f"no-{name}"
        plain = [v for v in given.values if _PLAIN.fullmatch(v)]
        hidden = name in _SECRET or not given.readable or len(plain) < len(given.values)
        found.append(f"{spelled}={','.join(plain)}" if plain and not hidden else spelled)
    found += options.unknown
    return tuple(text[:FLAG_LIMIT] for text in sorted(found))[:FLAGS_LIMIT]
