"""How vLLM is deployed in public, as pod templates in our own wording: one per kind of shape.

The numbers are those of the project's list of shapes (S1 to S18). Only what tells the container,
its port and its flags is there.
"""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]

_KSERVE_SCRIPT = r"""set -e
version=$(vllm --version)
if [ "$version" != "" ]; then
  VLLM_ADDITIONAL_ARGS='--shutdown-timeout 45'
fi
eval exec vllm serve /mnt/models \
  --served-model-name llama publishers/ns/models/llama \
  --port 8000 \
  --ssl-certfile /etc/tls/tls.crt --ssl-keyfile /etc/tls/tls.key \
  ${VLLM_ADDITIONAL_ARGS} $@
"""
_LEADER_SCRIPT = (
    "bash /workspace/serving.sh leader --ray_cluster_size=$(LWS_GROUP_SIZE); "
    "python3 -m vllm.entrypoints.openai.api_server --port 8080 --model acme/llama-405b "
    "--tensor-parallel-size 8 --pipeline_parallel_size 2"
)
_PREFILL_SCRIPT = r"""python3 -m vllm.entrypoints.openai.api_server \
  --host "::" \
  --port "8000" \
  --uvicorn-log-level warning \
  --model /models/qwen3-8b \
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
"""
_RAY_SCRIPT = (
    "ulimit -n 65536; echo head; $KUBERAY_GEN_RAY_START_CMD & "
    "vllm serve /models/deepseek-r1 --served-model-name deepseek-r1 "
    "--tensor-parallel-size 8 --pipeline-parallel-size 2 --distributed-executor-backend ray"
)


def _http(path: str, port: int | str, **fields: Any) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port, **fields}}


def _gpu(kind: str = "nvidia.com/gpu", count: int = 1) -> dict[str, Any]:
    return {"limits": {kind: str(count)}}


# S1: everything in one string of a shell, named after the model, an unnamed port.
DOCS: Spec = {
    "containers": [
        {
            "name": "mistral-7b",
            "image": "vllm/vllm-openai:latest",
            "command": ["/bin/sh", "-c"],
            "args": [
                "vllm serve acme/mistral-7b --trust-remote-code --max_num_batched_tokens 1024"
            ],
            "ports": [{"containerPort": 8000}],
            "resources": _gpu(),
            "livenessProbe": _http("/health", 8000),
        }
    ]
}

# S1 on AMD: the version hides in the tag.
DOCS_AMD: Spec = {
    "hostNetwork": True,
    "containers": [
        {
            "name": "mistral-7b",
            "image": "rocm/vllm:rocm6.2_py3.12_vllm_0.6.4",
            "command": ["/bin/sh", "-c"],
            "args": ["vllm serve acme/mistral-7b --port 8000 --max-num-seqs 16"],
            "resources": _gpu("amd.com/gpu"),
        }
    ],
}

# S2: the whole command in `command`, models on a volume, an init container that fetches them.
OWN_CHART: Spec = {
    "initContainers": [{"name": "wait-download-model", "image": "amazon/aws-cli:2"}],
    "containers": [
        {
            "name": "vllm",
            "image": "vllm/vllm-openai:v0.29.0",
            "command": [
                "vllm",
                "serve",
                "/data/",
                "--served-model-name",
                "opt-125m",
                "--host",
                "::",
                "--port",
                "8000",
            ],
            "envFrom": [{"secretRef": {"name": "s3"}}, {"configMapRef": {"name": "settings"}}],
            "ports": [{"containerPort": 8000}],
            "resources": _gpu(),
        }
    ],
}

# S3: a LoRA sidecar in front, further ports, a vLLM in an environment of its own.
PRODUCTION_STACK: Spec = {
    "containers": [
        {
            "name": "sidecar",
            "image": "lmcache/lmstack-sidecar:latest",
            "ports": [{"containerPort": 30090}],
        },
        {
            "name": "vllm",
            "image": "lmcache/vllm-openai:2025-05-27-v1",
            "command": [
                "/opt/venv/bin/vllm",
                "serve",
                "acme/llama-8b",
                "--host",
                "::",
                "--port",
                "8000",
                "--tensor-parallel-size",
                "2",
                "--enable-lora",
            ],
            "ports": [
                {"name": "container-port", "containerPort": 8000},
                {"name": "zmq-port", "containerPort": 55555},
                {"name": "ucx-port", "containerPort": 9999},
            ],
            "resources": _gpu(count=2),
        },
    ]
}

# S5: a proxy in front that starts as an init container; vLLM itself on another port.
MODELSERVICE_DECODE: Spec = {
    "initContainers": [
        {
            "name": "routing-proxy",
            "image": "ghcr.io/acme/routing-sidecar:v0.3",
            "restartPolicy": "Always",
            "args": ["--port=8000", "--vllm-port=8200"],
            "ports": [{"containerPort": 8000}],
        }
    ],
    "containers": [
        {
            "name": "vllm",
            "image": "ghcr.io/acme/llm-d:v0.4.0",
            "command": ["vllm", "serve", "acme/llama-8b"],
            "args": [
                "--port=8200",
                "--kv-transfer-config",
                '{"kv_connector":"NixlConnector","kv_role":"kv_both"}',
            ],
            "ports": [{"name": "metrics", "containerPort": 8200}],
            "resources": _gpu(),
        }
    ],
}

# S6: drains on its own, asks for the models before it is ready.
LLM_D_GUIDE: Spec = {
    "containers": [
        {
            "name": "modelserver",
            "image": "ghcr.io/acme/llm-d-cuda:v0.6.0",
            "command": ["vllm", "serve"],
            "args": ["acme/llama-70b", "--shutdown-timeout=45", "--data-parallel-size", "4"],
            "ports": [
                {"name": "modelserver", "containerPort": 8000},
                {"name": "nixl", "containerPort": 5600},
            ],
            "startupProbe": _http("/v1/models", "modelserver"),
            "lifecycle": {"preStop": {"sleep": {"seconds": 15}}},
            "resources": _gpu(count=4),
        }
    ]
}

# S7: a long script that ends in `eval exec`, more flags from the environment, TLS.
KSERVE_LLM: Spec = {
    "containers": [
        {
            "name": "main",
            "image": "ghcr.io/acme/llm-d-cuda:v0.9.0",
            "command": ["/bin/bash", "-c"],
            "args": [
                _KSERVE_SCRIPT,
            ],
            "ports": [{"containerPort": 8000}],
            "readinessProbe": _http("/health", 8000, scheme="HTTPS"),
            "resources": _gpu(),
        }
    ]
}

# S8: flags alone, for the image's own entrypoint, on a port of its own.
KSERVE_RUNTIME: Spec = {
    "containers": [
        {"name": "queue-proxy", "image": "knative.dev/queue:1"},
        {
            "name": "kserve-container",
            "image": "vllm/vllm-openai:v0.29.0",
            "args": ["--model=/mnt/models", "--served-model-name=llama", "--port=8080"],
            "ports": [{"containerPort": 8080}],
            "readinessProbe": _http("/v1/models", 8080),
            "resources": _gpu(),
        },
    ]
}

# S9: the module, an abbreviated flag, a flag and its value in two words, a port by its name.
GATEWAY_API: Spec = {
    "initContainers": [{"name": "adapter-loader", "image": "ghcr.io/acme/downloader:1"}],
    "containers": [
        {
            "name": "vllm",
            "image": "vllm/vllm-openai:v0.29.0",
            "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            "args": [
                "--model",
                "acme/llama-8b",
                "--max-num-seq",
                "1024",
                "--enable-lora",
                "--max-loras",
                "2",
                "--port",
                "8000",
            ],
            "env": [{"name": "VLLM_PLUGINS", "value": "lora_filesystem_resolver"}],
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": _http("/health", "http"),
            "resources": _gpu(),
        }
    ],
}

# S11: the model from a variable, no probes, no ports, a chat template from a ConfigMap.
ADK_TUTORIAL: Spec = {
    "containers": [
        {
            "name": "inference-server",
            "image": "vllm/vllm-openai:latest",
            "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            "args": [
                "--model=$(MODEL_ID)",
                "--tensor-parallel-size=2",
                "--chat-template=/templates/llama.jinja",
                "--enable-auto-tool-choice",
            ],
            "env": [{"name": "MODEL_ID", "value": "acme/llama-8b"}],
            "resources": _gpu(count=2),
        }
    ]
}

# S12: the leader starts a helper script first; the worker has nothing that serves.
LWS_LEADER: Spec = {
    "containers": [
        {
            "name": "vllm-leader",
            "image": "vllm/vllm-openai:v0.29.0",
            "command": [
                "sh",
                "-c",
                _LEADER_SCRIPT,
            ],
            "ports": [{"containerPort": 8080}],
            "readinessProbe": {"tcpSocket": {"port": 8080}},
            "resources": _gpu(count=8),
        }
    ]
}
LWS_WORKER: Spec = {
    "containers": [
        {
            "name": "vllm-worker",
            "image": "vllm/vllm-openai:v0.29.0",
            "command": [
                "sh",
                "-c",
                "bash /workspace/serving.sh worker --ray_address=$(LWS_LEADER_ADDRESS)",
            ],
            "resources": _gpu(count=8),
        }
    ]
}

# S13: a bare pod of another controller.
KUBEAI: Spec = {
    "containers": [
        {
            "name": "server",
            "image": "vllm/vllm-openai:v0.29.0",
            "args": [
                "--model=acme/llama-8b",
                "--served-model-name=llama",
                "--max-model-len=8192",
                "--enable-prefix-caching",
            ],
            "ports": [{"name": "http", "containerPort": 8000}],
            "resources": _gpu(),
        }
    ]
}

# S14: several lines of shell, and a program of Ray before vLLM.
AIBRIX_PAIR: Spec = {
    "containers": [
        {
            "name": "prefill",
            "image": "aibrix/vllm-openai:v0.29.0-nixl",
            "command": ["sh", "-c"],
            "args": [
                _PREFILL_SCRIPT,
            ],
            "resources": _gpu(),
        }
    ]
}
AIBRIX_RAY: Spec = {
    "containers": [
        {
            "name": "ray-head",
            "image": "aibrix/vllm-openai:v0.29.0",
            "command": ["/bin/bash", "-lc", "--"],
            "args": [
                _RAY_SCRIPT,
            ],
            "ports": [{"name": "service", "containerPort": 8000}],
            "startupProbe": _http("/metrics", 8000),
            "resources": _gpu(count=8),
        }
    ]
}

# S15: vLLM inside Ray Serve, configured elsewhere.
RAY_SERVE: Spec = {
    "containers": [
        {
            "name": "ray-head",
            "image": "rayproject/ray-llm:2.50.1-py311-cu124",
            "ports": [{"name": "serve", "containerPort": 8000}],
        }
    ]
}

# S16: another server with vLLM in it.
DYNAMO: Spec = {
    "containers": [
        {
            "name": "main",
            "image": "nvcr.io/acme/ai-dynamo/vllm-runtime:1.0.0",
            "command": ["python3", "-m", "dynamo.vllm"],
            "args": ["--model", "acme/qwen3", "--is-decode-worker"],
        }
    ]
}

# S17: a program of its own.
KAITO: Spec = {
    "containers": [
        {
            "name": "workspace-phi",
            "image": "mcr.microsoft.com/acme/kaito-base:0.1.0",
            "command": ["/bin/sh", "-c", "python3 /workspace/serve.py --tensor-parallel-size=2"],
            "ports": [{"name": "http", "containerPort": 5000}],
        }
    ]
}

# S18: a Neuron device, flags from a file.
EKS_NEURON: Spec = {
    "volumes": [{"name": "settings", "configMap": {"name": "vllm-settings"}}],
    "containers": [
        {
            "name": "inference",
            "image": "public.ecr.aws/acme/vllm-neuron:0.29",
            "command": ["vllm", "serve", "acme/llama-8b", "--config", "/etc/vllm/config.yaml"],
            "volumeMounts": [{"name": "settings", "mountPath": "/etc/vllm"}],
            "ports": [{"name": "http", "containerPort": 8000}],
            "resources": _gpu("aws.amazon.com/neuron", 4),
        }
    ],
}
