r"""Read from unpacked wheels of vLLM what each version knows: the data of `vllm/facts`.

Nothing is imported or run: the sources are parsed. For a new release, unpack its wheel beside the
others and make the file anew:

    python -m localcluster.realvllm.facts 0.28=DIRECTORY ... 0.33=DIRECTORY \
        > operator/vllm_upgrade_operator/vllm/facts/known.json
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import TypeIs

# Where the arguments of the API server are declared, newest first.
_FRONTEND = (
    "entrypoints/common/cli_args.py",
    "entrypoints/launchers/cli_args.py",
    "entrypoints/openai/cli_args.py",
)
_GENERATING = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS", "_TRANSFORMERS_BACKEND_MODELS")
_ALL_MODELS = (
    *_GENERATING,
    "_TRANSFORMERS_SUPPORTED_MODELS",
    "_EMBEDDING_MODELS",
    "_LATE_INTERACTION_MODELS",
    "_REWARD_MODELS",
    "_TOKEN_CLASSIFICATION_MODELS",
    "_SEQUENCE_CLASSIFICATION_MODELS",
    "_SPECULATIVE_DECODING_MODELS",
)
_DECLARATIONS = {"IsHybrid": "hybrid", "IsAttentionFree": "attention-free"}


class Sources:
    """The sources of one version.

    Attributes:
        root: The folder `vllm` of the unpacked wheel.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def tree(self, path: str) -> ast.Module:
        """Parse a file."""
        return ast.parse((self.root / path).read_text(encoding="utf-8"))

    def flags(self) -> dict[str, str]:
        """Give the flags of `vllm serve`, and how many words each takes."""
        fields = self._config_fields()
        found = {"help": "nothing"}
        frontend = next(p for p in _FRONTEND if (self.root / p).exists())
        for path in ("engine/arg_utils.py", frontend):
            for names, call, bound in _argument_calls(self.tree(path)):
                takes = _takes(call, bound, fields)
                for name in names:
                    found[name] = takes
                # BooleanOptionalAction gives a flag its opposite, `store_true` does not.
                if takes == "nothing" and "store_true" not in (_keyword(call, "action") or ""):
                    found.update({f"no-{name}": takes for name in names})
        for node in ast.walk(self.tree(frontend)):
            if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
                for name, annotation in _fields(node).items():
                    flag = name.replace("_", "-")
                    found[flag] = _takes_by_type(annotation)
                    if found[flag] == "nothing":
                        found[f"no-{flag}"] = "nothing"
        # _customize_cli_kwargs: JSON lists, and what may be repeated, take one word each.
        for one in ("allowed-origins", "allowed-methods", "allowed-headers", "middleware"):
            found[one] = "one"
        return found

    def short(self) -> dict[str, str]:
        """Give the short spellings of flags."""
        found: dict[str, str] = {}
        frontend = next(p for p in _FRONTEND if (self.root / p).exists())
        for path in ("engine/arg_utils.py", frontend):
            for node in ast.walk(self.tree(path)):
                if _is_add_argument(node):
                    given = [a.value for a in node.args if isinstance(a, ast.Constant)]
                    long = [g for g in given if str(g).startswith("--")]
                    for name in given:
                        if long and not str(name).startswith("--"):
                            found[str(name)] = str(long[0]).removeprefix("--")
        return found

    def architectures(self) -> dict[str, list[str]]:
        """Give the architectures of the registry, with what is declared of their classes."""
        tables = _dictionaries(self.tree("model_executor/models/registry.py"))
        found: dict[str, list[str]] = {}
        for table in _ALL_MODELS:
            for name, value in tables.get(table, {}).items():
                traits = set(self._traits(value))
                if table not in _GENERATING:
                    traits.add("drafting" if table.startswith("_SPECULATIVE") else "pooling")
                if table == "_MULTIMODAL_MODELS":
                    traits.add("multimodal")
                found.setdefault(name, sorted(traits))
        return found

    def formerly(self) -> dict[str, str]:
        """Give the architectures that were removed, with the last version that had them."""
        tables = _dictionaries(self.tree("model_executor/models/registry.py"))
        return {k: str(v) for k, v in tables["_PREVIOUSLY_SUPPORTED_MODELS"].items()}

    def environment(self) -> list[str]:
        """Give the environment variables that vLLM reads."""
        return sorted(_dictionaries(self.tree("envs.py"))["environment_variables"])

    def _traits(self, module_and_class: object) -> Iterator[str]:
        if not (isinstance(module_and_class, tuple) and len(module_and_class) == 2):
            return
        module, name = (str(part) for part in module_and_class)
        path = self.root / "model_executor/models" / (module.replace(".", "/") + ".py")
        if not path.exists():
            return
        text = path.read_text(encoding="utf-8")
        if "FusedMoE" in text or "MixtureOfExperts" in text:
            yield "experts"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name == name:
                for base in node.bases:
                    declared = _DECLARATIONS.get(ast.unparse(base))
                    if declared is not None:
                        yield declared

    def _config_fields(self) -> dict[str, dict[str, ast.expr]]:
        classes: dict[str, dict[str, ast.expr]] = {}
        for path in (self.root / "config").glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    classes[node.name] = _fields(node)
        return classes


def _fields(node: ast.ClassDef) -> dict[str, ast.expr]:
    return {
        item.target.id: item.annotation
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in ast.unparse(item.annotation)
    }


def _is_add_argument(node: ast.AST) -> TypeIs[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_argument"
    )


_Bound = dict[str, str]


def _argument_calls(tree: ast.Module) -> Iterator[tuple[list[str], ast.Call, _Bound]]:
    """Give each `add_argument` with its names, and which variable holds which class's fields."""
    bound: _Bound = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "get_kwargs"
        ):
            bound[node.targets[0].id] = ast.unparse(node.value.args[0])
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            # Or a variable that holds the description of one field.
            bound.setdefault(node.targets[0].id, ast.unparse(node.value))
    for node in ast.walk(tree):
        if _is_add_argument(node):
            names = [
                str(a.value).removeprefix("--")
                for a in node.args
                if isinstance(a, ast.Constant) and str(a.value).startswith("--")
            ]
            if names:
                yield names, node, bound


def _annotation(
    call: ast.Call, bound: _Bound, fields: Mapping[str, Mapping[str, ast.expr]]
) -> ast.expr | None:
    """Find the type of the field whose description a call spreads (`**kwargs["field"]`)."""
    for keyword in call.keywords:
        if keyword.arg is None:
            for node in ast.walk(keyword.value):
                text = ast.unparse(node)
                if isinstance(node, ast.Name) and "[" in bound.get(text, ""):
                    text = bound[text]
                variable, bracket, rest = text.partition("[")
                key = rest.strip("]'\"")
                found = fields.get(bound.get(variable, ""), {}).get(key)
                if bracket and found is not None:
                    return found
    return None


def _keyword(call: ast.Call, name: str) -> str | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return ast.unparse(keyword.value)
    return None


def _takes(call: ast.Call, bound: _Bound, fields: Mapping[str, Mapping[str, ast.expr]]) -> str:
    action = _keyword(call, "action") or ""
    if "store_true" in action or "BooleanOptionalAction" in action:
        return "nothing"
    nargs = _keyword(call, "nargs")
    if nargs is not None:
        return {"'+'": "many", "'*'": "many", "'?'": "maybe"}[nargs]
    annotation = _annotation(call, bound, fields)
    return "one" if annotation is None else _takes_by_type(annotation)


def _takes_by_type(annotation: ast.expr) -> str:
    """As `get_kwargs` of engine/arg_utils.py has it."""
    parts = {p.strip() for p in ast.unparse(annotation).split("|")}
    names = {p.partition("[")[0] for p in parts}
    if parts == {"bool", "str", "None"}:
        return "maybe"
    if "bool" in names:
        return "nothing"
    return "many" if names & {"list", "set", "tuple"} else "one"


def _dictionaries(tree: ast.Module) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.AnnAssign):
            target = node.target
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Dict):
            found[target.id] = {
                str(k.value): _literal(v)
                for k, v in zip(value.keys, value.values, strict=True)
                if isinstance(k, ast.Constant)
            }
    return found


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _presence(by_version: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Say of each name which versions have it; nothing is said of one that all have."""
    found: dict[str, dict[str, Any]] = {}
    for name in sorted({n for names in by_version.values() for n in names}):
        there = [v for v, names in by_version.items() if name in names]
        found[name] = {} if len(there) == len(by_version) else {"in": there}
    return found


def main(arguments: list[str]) -> None:
    """Print the data of the versions that are given."""
    sources = {
        version: Sources(Path(directory) / "vllm")
        for version, _, directory in (a.partition("=") for a in arguments)
    }
    flags = {v: s.flags() for v, s in sources.items()}
    takes: dict[str, str] = {}
    for one in flags.values():
        takes.update(one)
    architectures = {v: s.architectures() for v, s in sources.items()}
    traits: dict[str, list[str]] = {}
    for of_one in reversed(architectures.values()):
        traits.update(of_one)
    newest = list(sources.values())[-1]
    data: dict[str, dict[str, Any]] = {
        "flags": {
            n: e if takes[n] == "one" else {"takes": takes[n], **e}
            for n, e in _presence(flags).items()
        },
        "short": _presence({v: s.short() for v, s in sources.items()}),
        "architectures": {
            n: {"traits": traits[n], **e} if traits[n] else e
            for n, e in _presence(architectures).items()
        },
        "formerly": newest.formerly(),
        "environment": _presence({v: dict.fromkeys(s.environment()) for v, s in sources.items()}),
    }
    short = newest.short()
    for name, entry in data["short"].items():
        entry["flag"] = short[name]
    blocks = [f'"versions": {json.dumps(list(sources))}']
    for key, value in data.items():
        lines = [f"  {json.dumps(n)}: {json.dumps(e)}" for n, e in value.items()]
        blocks.append(f"{json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n}")
    print("{\n" + ",\n".join(blocks) + "\n}")


if __name__ == "__main__":
    main(sys.argv[1:])
