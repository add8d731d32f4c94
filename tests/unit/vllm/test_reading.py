from __future__ import annotations

import json
from typing import Any

import pytest

from vllm_upgrade_operator.vllm.options import Given, Options, whole_number
from vllm_upgrade_operator.vllm.reading import Mounted, mounted, read_options
from vllm_upgrade_operator.vllm.versions import Version

NEWEST = Version(0, 33)


def read(*args: str, version: Version = NEWEST, **fields: Any) -> Options:
    return read_options({"name": "c", "args": list(args), **fields}, version)


@pytest.mark.parametrize(
    ("args", "flag", "value"),
    [
        (("--max-num-seqs", "8"), "max-num-seqs", "8"),
        (("--max-num-seqs=8",), "max-num-seqs", "8"),
        (("--max_num_seqs", "8"), "max-num-seqs", "8"),
        (("--max_num-seqs=8",), "max-num-seqs", "8"),
        # One beginning that only one flag has, as argparse takes it.
        (("--max-num-seq", "8"), "max-num-seqs", "8"),
        (("--max-num-seq=8",), "max-num-seqs", "8"),
        (("-tp", "2"), "tensor-parallel-size", "2"),
        (("--max-num-seqs", "4", "--max-num-seqs", "8"), "max-num-seqs", "8"),
        (("--max-num-seqs", "-1"), "max-num-seqs", "-1"),
        (("--device-memory-utilization", "0.8"), "gpu-memory-utilization", "0.8"),
        (("-O3",), "optimization-level", "3"),
        (("-O", "2"), "optimization-level", "2"),
        (("-O=1",), "optimization-level", "1"),
        # What holds an equals sign or a dot in its value.
        (("--chat-template", "a=b.c"), "chat-template", "a=b.c"),
        (("--chat-template=./x=y.jinja",), "chat-template", "./x=y.jinja"),
    ],
)
def test_the_value_of_a_flag(args: tuple[str, ...], flag: str, value: str) -> None:
    assert read("m", *args).text(flag) == value


def test_a_flag_takes_as_many_words_as_vllm_gives_it() -> None:
    found = read(
        "--enable-prefix-caching",
        "model",
        "--served-model-name",
        "a",
        "b",
        "--api-key",
        "x",
        "--seed",
        "1",
    )
    assert found.model == "model"
    assert found.given["served-model-name"] == Given(("a", "b"))
    assert found.given["enable-prefix-caching"] == Given()
    assert found.number("seed") == 1


def test_flags_that_are_on_and_off() -> None:
    found = read("m", "--enable-prefix-caching", "--no-async-scheduling")
    assert found.is_on("enable-prefix-caching") is True
    assert found.is_on("async-scheduling") is False
    assert found.is_on("enable-lora") is False
    later = read("m", "--enable-lora", "--no-enable-lora")
    assert later.is_on("enable-lora") is False


def test_a_json_object_and_its_keys() -> None:
    whole = read("--speculative-config", '{"method": "eagle", "num-speculative-tokens": 3}')
    assert whole.settings("speculative-config") == {"method": "eagle", "num_speculative_tokens": 3}
    keys = read(
        "--speculative_config.method",
        "eagle",
        "--speculative-config.num_speculative_tokens=3",
        "-cc.pass_config.enable_sp",
        "true",
        "--compilation-config.custom_ops+=a,b",
        "--compilation-config.custom_ops+",
        "c",
    )
    assert keys.settings("speculative-config") == {"method": "eagle", "num_speculative_tokens": 3}
    assert keys.settings("compilation-config") == {
        "pass_config": {"enable_sp": True},
        "custom_ops": ["a", "b", "c"],
    }
    assert read("m").settings("speculative-config") == {}


@pytest.mark.parametrize("text", ["{", "[1]", "3", "[" * 100_000])
def test_what_is_no_json_object_is_not_known(text: str) -> None:
    assert read("--speculative-config", text).settings("speculative-config") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        (" 8 ", 8),
        ("1k", 1000),
        ("1K", 1024),
        ("25.6k", 25600),
        ("2M", 2 * 2**20),
        ("1.5K", None),
        ("-1", None),
        ("auto", None),
        ("9" * 5000, None),
        ("", None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text) == number


def test_flags_that_a_version_does_not_have() -> None:
    assert read("m", "--max-num-queued-reqs", "8", version=Version(0, 28)).unknown == (
        "max-num-queued-reqs",
    )
    assert read("m", "--max-num-queued-reqs", "8", version=Version(0, 29)).unknown == ()
    assert read("m", "--made-up", "8", "-zz").unknown == ("made-up", "-zz")
    # A flag that is not known may take any number of words.
    assert read("m", "--made-up", "8", "9", "--seed", "1").number("seed") == 1


def test_a_beginning_that_several_flags_have() -> None:
    found = read("m", "--max-num-queued", "8")
    assert found.ambiguous == {"max-num-queued": ("max-num-queued-reqs", "max-num-queued-tokens")}
    assert found.unknown == ()


def test_variables_of_kubernetes_are_expanded() -> None:
    env = [
        {"name": "PORT", "value": "81"},
        {"name": "FULL", "value": "$(PORT)00"},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    found = read("$(MODEL)", "--port", "$(FULL)", "--api-key=$(KEY)", "--seed", "$$(PORT)", env=env)
    assert found.text("port") == "8100"
    assert found.given["api-key"] == Given(("$(KEY)",), readable=False)
    assert found.text("api-key") is None
    assert found.text("seed") == "$(PORT)"
    assert found.environment == {"PORT": "81", "FULL": "8100", "KEY": None}
    # A word alone may become anything.
    assert found.model is None
    assert found.unread == ("the word '$(MODEL)' may become any flags",)


def test_variables_that_were_read_elsewhere() -> None:
    container = {
        "args": ["$(MODEL)", "--seed", "$(SEED)"],
        "env": [{"name": "SEED", "valueFrom": {"configMapKeyRef": {}}}],
        "envFrom": [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}],
    }
    alone = read_options(container, NEWEST)
    assert alone.unread_environment == (
        "variables come from ConfigMap c",
        "variables come from Secret s",
    )
    found = read_options(container, NEWEST, variables={"MODEL": "m", "SEED": "3"})
    assert (found.model, found.number("seed")) == ("m", 3)
    assert found.unread_environment == ("variables come from Secret s",)


CONFIG = {
    "port": 81,
    "tensor-parallel-size": 4,
    "enforce-eager": True,
    "async_scheduling": False,
    "made-up-flag": False,
    "served-model-name": ["a", "b"],
    "allowed-media-domains": [],
    "speculative-config": {"method": "eagle"},
}


@pytest.mark.parametrize("args", [("--config", "/c/vllm.yaml"), ("--config=/c/vllm.yaml",)])
def test_a_configuration_file_gives_way_to_flags(args: tuple[str, ...]) -> None:
    container = {"args": ["m", "-tp", "2", *args]}
    found = read_options(container, NEWEST, configs={"/c/vllm.yaml": CONFIG})
    assert found.model == "m"
    assert found.number("tensor-parallel-size") == 2
    assert found.number("port") == 81
    assert (found.is_on("enforce-eager"), found.is_on("async-scheduling")) == (True, False)
    assert found.given["served-model-name"].values == ("a", "b")
    assert found.settings("speculative-config") == {"method": "eagle"}
    assert (found.unread, found.unknown) == ((), ())


def test_a_configuration_file_may_name_the_model() -> None:
    found = read_options(
        {"args": ["--config", "f.yaml"]}, NEWEST, configs={"f.yaml": {"model": "n"}}
    )
    assert found.model == "n"


def test_a_configuration_file_that_is_not_at_hand() -> None:
    found = read("m", "--config", "/c/vllm.yaml", "--seed", "1")
    assert found.number("seed") == 1
    assert found.is_on("enable-lora") is None
    assert found.settings("speculative-config") is None
    assert found.unread == ("flags are in the file '/c/vllm.yaml', which cannot be read here",)


VOLUMES = {
    "volumes": [
        {"name": "all", "configMap": {"name": "a"}},
        {"name": "some", "configMap": {"name": "b", "items": [{"key": "k", "path": "v.yaml"}]}},
        {"name": "disk", "emptyDir": {}},
    ]
}


@pytest.mark.parametrize(
    ("mount", "path", "found"),
    [
        ({"name": "all", "mountPath": "/c"}, "/c/v.yaml", Mounted("a", "v.yaml")),
        ({"name": "all", "mountPath": "/c/"}, "/d/v.yaml", None),
        ({"name": "some", "mountPath": "/c"}, "/c/v.yaml", Mounted("b", "k")),
        ({"name": "some", "mountPath": "/c"}, "/c/other.yaml", None),
        (
            {"name": "all", "mountPath": "/c/v.yaml", "subPath": "x.yaml"},
            "/c/v.yaml",
            Mounted("a", "x.yaml"),
        ),
        ({"name": "all", "mountPath": "/c/v.yaml", "subPath": "x.yaml"}, "/c/w.yaml", None),
        ({"name": "disk", "mountPath": "/c"}, "/c/v.yaml", None),
        ({"name": "gone", "mountPath": "/c"}, "/c/v.yaml", None),
    ],
)
def test_the_config_map_behind_a_path(
    mount: dict[str, Any], path: str, found: Mounted | None
) -> None:
    assert mounted(VOLUMES, {"volumeMounts": [mount]}, path) == found


def script(text: str, *rest: str, env: list[dict[str, Any]] | None = None) -> Options:
    return read_options({"command": ["bash", "-c", text, *rest], "env": env or []}, NEWEST)


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m --seed 1",
        "exec vllm serve 'm' --seed=1",
        "ulimit -n 65536; cd /x && vllm serve m --seed 1 2>&1 | tee log",
        "set -e\nvllm serve \\\n  m \\\n  --seed 1\n",
        "export SEED=1\nvllm serve m --seed 1",
        "# vllm serve other --seed 2\nvllm serve m --seed 1",
        "python3 -m vllm.entrypoints.openai.api_server --model m --seed 1",
        "exec python3 -m vllm.entrypoints.cli.main serve m --seed 1",
        "vllm serve ${MODEL} --seed $SEED",
    ],
)
def test_a_script_is_read_as_far_as_it_can_be(text: str) -> None:
    env = [{"name": "MODEL", "value": "m"}, {"name": "SEED", "value": "1"}]
    found = script(text, env=env)
    assert (found.model, found.number("seed"), found.unread) == ("m", 1, ())


def test_variables_that_a_script_sets() -> None:
    found = script("export A=1 B=$HOST; VLLM_USE_V2_MODEL_RUNNER=0 vllm serve m")
    assert found.environment == {"A": "1", "B": None, "VLLM_USE_V2_MODEL_RUNNER": "0"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vllm serve m $EXTRA", "the word '$EXTRA' may become any flags"),
        ("vllm serve m $@", "the word '$@' may become any flags"),
        ("bash start.sh leader", "its shell script does not start vLLM itself"),
        ("vllm serve 'm", "its shell script cannot be taken apart"),
        ("x" * 70_000, "its shell script cannot be taken apart"),
    ],
)
def test_what_a_script_hides(text: str, why: str) -> None:
    found = script(text)
    assert found.unread == (why,)
    assert found.is_on("enable-lora") is None


def test_a_value_that_a_script_makes_is_not_known() -> None:
    found = script("vllm serve m --seed $(date +$(x y)) --port $PORT --uds `date -u`/x")
    assert found.text("port") is None
    assert found.is_unread("port")
    assert found.is_unread("seed")
    assert found.is_unread("uds")
    assert found.unread == ()


def test_nothing_given_is_nothing_set() -> None:
    found = read_options({"name": "c"}, NEWEST)
    assert found == Options()
    assert json.dumps(found.environment) == "{}"
