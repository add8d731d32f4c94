"""The vLLM server that a pod template starts: its container, its flags, its version, its model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.preflight.configs import Told, told_by
from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.facts.choice import predict_runner
from vllm_upgrade_operator.vllm.facts.obstacles import cannot_start
from vllm_upgrade_operator.vllm.facts.setup import RUNNER_VARIABLE, Setup, machine_of
from vllm_upgrade_operator.vllm.image import is_official, tag_of
from vllm_upgrade_operator.vllm.model import Model
from vllm_upgrade_operator.vllm.reading import read_options
from vllm_upgrade_operator.vllm.runner import Runner
from vllm_upgrade_operator.vllm.versions import Version, VersionError, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec
    from vllm_upgrade_operator.upgrade.observation import Pod, Target
    from vllm_upgrade_operator.upgrade.preflight.configs import ConfigMaps
    from vllm_upgrade_operator.vllm.facts.choice import Prediction
    from vllm_upgrade_operator.vllm.facts.obstacles import Obstacle
    from vllm_upgrade_operator.vllm.facts.setup import Machine
    from vllm_upgrade_operator.vllm.options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The version of vLLM in an image, and how it is known.

    Attributes:
        version: Of vLLM; None where it is not known.
        text: As a person writes it, such as `0.29.0`; empty where it is not known.
        certain: It was answered or is stated, or the image is vLLM's own release.
        how: What says so, as a clause.
        observed: Pods have answered it, or their logs say it.
    """

    version: Version | None
    text: str
    certain: bool
    how: str
    observed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What one side of an upgrade starts."""

    container: Mapping[str, Any]
    release: Release
    options: Options
    """Flags of the nearest version that is known; of the newest where it is not known."""
    model: Model

    @property
    def image(self) -> str:
        """The image as the template names it."""
        return str(self.container.get("image", ""))

    @property
    def setup(self) -> Setup | None:
        """What the rules about a version ask; None where the version is not known."""
        if self.release.version is None:
            return None
        return Setup(
            version=known.nearest(self.release.version).version,
            options=self.options,
            architecture=self.model.architecture,
            machine=machine_of(self.container),
        )

    @property
    def prediction(self) -> Prediction | None:
        """Which runner it would have; None where the version is not known."""
        return self._predicted(machine_of(self.container))

    @property
    def runner_is_sure(self) -> bool:
        """Whether nothing that is not known could change the predicted runner.

        One that is forced is, and so is V1 where a Triton that works would not change it.
        """
        prediction = self.prediction
        if prediction is None:
            return False
        if prediction.certain or self.options.environment.get(RUNNER_VARIABLE) is not None:
            return True
        at_best = self._predicted(replace(machine_of(self.container), triton=True))
        return at_best is not None and at_best.certain and at_best.runner is Runner.V1

    def _predicted(self, machine: Machine) -> Prediction | None:
        if self.release.version is None:
            return None
        return predict_runner(
            self.release.version,
            self.options,
            architecture=self.model.architecture,
            machine=machine,
        )

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """Why it would not start, as far as its version is known and says so."""
        if self.release.version is None:
            return ()
        return cannot_start(
            self.release.version,
            self.options,
            architecture=self.model.architecture,
            machine=machine_of(self.container),
        )


def stable(target: Target, config_maps: ConfigMaps | None = None) -> Server:
    """What the target's template starts.

    Args:
        target: The Deployment.
        config_maps: Data of the ConfigMaps that its template refers to, by name.
    """
    container = _container(target.template, target.container)
    told = told_by(target.template.get("spec") or {}, container, config_maps or {})
    return running(container, target.pods, told)


def running(container: Mapping[str, Any], pods: Iterable[Pod], told: Told | None = None) -> Server:
    """What a container of pods that are there starts: they say its version and its model."""
    seen = [p for p in pods if is_ready(p)]
    answered = {p.version for p in seen if p.version is not None}
    release = by_tag(container)
    if len(answered) == 1:
        text = answered.pop()
        release = Release(
            version=_parsed(text), text=text, certain=True, how="its pods say it", observed=True
        )
    models = {p.model for p in seen if p.model is not None}
    model = models.pop() if len(models) == 1 else Model()
    return server(container, release, model, told)


def candidate(
    spec: VLLMUpgradeSpec,
    template: Mapping[str, Any],
    now: Server,
    name: str,
    config_maps: ConfigMaps | None = None,
) -> Server:
    """What the candidate's template starts.

    Args:
        spec: Of the upgrade.
        template: The candidate's.
        now: What the target starts: what the candidate does not change stays as it is there.
        name: Of the vLLM container.
        config_maps: Data of the ConfigMaps that the template refers to, by name.
    """
    container = _container(template, name)
    told = told_by(template.get("spec") or {}, container, config_maps or {})
    stated = spec.candidate.version
    if stated is not None:
        release = Release(
            version=_parsed(stated), text=stated, certain=True, how="spec.candidate.version says it"
        )
    elif container.get("image") == now.image:
        release = now.release
    else:
        release = by_tag(container)
    found = server(container, release, now.model, told)
    if found.options.model != now.options.model:
        # Another model may have another architecture.
        return server(container, release, Model(), told)
    return found


def server(
    container: Mapping[str, Any], release: Release, model: Model, told: Told | None = None
) -> Server:
    """Read what a container starts; what its flags say of the model wins over what was seen."""
    told = told or Told()
    options = read_options(
        container,
        release.version or known.versions()[-1],
        variables=told.variables,
        configs=told.configs,
    )
    overridden = (options.settings("hf-overrides") or {}).get("architectures")
    if isinstance(overridden, list) and overridden:
        model = Model(str(overridden[0]), model.max_model_len)
    length = options.number("max-model-len")
    if options.is_unread("max-model-len") or options.text("max-model-len") is not None:
        model = Model(model.architecture, length)
    return Server(container=container, release=release, options=options, model=model)


def by_tag(container: Mapping[str, Any]) -> Release:
    """What the tag of a container's image says of the version: a hint, but for vLLM's own."""
    image = str(container.get("image", ""))
    tag = tag_of(image)
    version = None if tag is None else _parsed_tag(tag)
    if version is None:
        return Release(version=None, text="", certain=False, how="")
    return Release(
        version=version,
        text=(tag or "").removeprefix("v"),
        certain=is_official(image),
        how="the tag of its image says it",
    )


def _parsed_tag(tag: str) -> Version | None:
    """Read the version that a tag begins with, as `v0.29.0-cu129`; None where it does not."""
    return _parsed(tag.partition("-")[0]) if tag.count(".") >= 2 else None


def _parsed(text: str) -> Version | None:
    try:
        return parse_version(text)
    except VersionError:
        # A build of one's own: nothing may be assumed that depends on the version.
        return None


def _container(template: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    containers = (template.get("spec") or {}).get("containers") or ()
    found: Mapping[str, Any] = next((c for c in containers if c.get("name") == name), {})
    return found
