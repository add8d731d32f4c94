"""Counts drawn without an engine: fast, and every kind of noise can be had alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaincinv, ndtr

from benchmarks.judge.traces import LOOK_SECONDS, LOOKS_PER_MINUTE, Floats, Traces
from benchmarks.judge.worlds import SPREAD_LOG_SD, TAILS, Spread

if TYPE_CHECKING:
    from benchmarks.judge.worlds import Bursts, World

_COLD_MINUTES = 2
_COLD_FACTOR = 4.0
_WARMUP_LOOKS = 6
_DAY_MINUTES = 24 * 60
_DAY_SWING = 0.6


def draw(world: World, runs: int, random: np.random.Generator) -> Traces:
    """Draw so many upgrades.

    Requests per look and pod are Poisson; which of them are bad is binomial, with the check's
    share times the factors that the world has.
    """
    learned = round(world.learn_minutes * LOOKS_PER_MINUTE)
    looks = learned + round(world.minutes * LOOKS_PER_MINUTE)
    pods = world.canaries + world.stables
    load = _load(world, runs, looks, learned, random)
    requests = random.poisson(load * world.rate * LOOK_SECONDS)
    of = np.broadcast_to(requests[:, None], (runs, len(world.checks), looks, pods))
    share = np.array([check.share for check in world.checks])[None, :, None, None]
    factor = np.ones(of.shape)
    if world.day:
        factor *= (load / _weights(world))[:, None] ** 2
    if world.bursts is not None:
        factor *= _bursts(world, world.bursts, runs, looks, random)
    factor *= _spread(world, runs, random)
    factor[..., : world.canaries] *= _canary(world, looks, learned)[None, :, :, None]
    bad = random.binomial(of, np.minimum(1.0, share * factor))
    return Traces(
        checks=world.checks,
        bad=bad.astype(float),
        of=of.astype(float),
        canaries=world.canaries,
        learned=learned,
        cold=_COLD_MINUTES * LOOKS_PER_MINUTE if world.cold else 0,
        warmup=_WARMUP_LOOKS if world.cold else 0,
    )


def _weights(world: World) -> Floats:
    stable = np.linspace(0.5, 1.5, world.stables) if world.uneven else np.ones(world.stables)
    return np.concatenate([np.full(world.canaries, world.canary_weight), stable])


def _load(world: World, runs: int, looks: int, learned: int, random: np.random.Generator) -> Floats:
    """Mean requests by run, look and pod, in those of a pod with its even share."""
    load = np.broadcast_to(_weights(world), (runs, looks, world.canaries + world.stables)).copy()
    if world.day:
        minute = np.arange(looks) / LOOKS_PER_MINUTE
        phase = random.uniform(0, 2 * math.pi, (runs, 1))
        load *= (1 + _DAY_SWING * np.sin(2 * math.pi * minute / _DAY_MINUTES + phase))[:, :, None]
    if world.silence:
        middle = (learned + looks) // 2
        load[:, middle : middle + 10 * LOOKS_PER_MINUTE] = 0.0
    load[:, :learned, : world.canaries] = 0.0
    return load


def _bursts(
    world: World, bursts: Bursts, runs: int, looks: int, random: np.random.Generator
) -> Floats:
    """Draw the factors by run, check, look and pod."""
    checks = len(world.checks) if bursts.per_check else 1
    pods = 1 if bursts.shared else world.canaries + world.stables
    normal = random.standard_normal((looks, runs, checks, pods))
    kept = bursts.persistence
    if kept:
        for look in range(1, looks):
            normal[look] = kept * normal[look - 1] + math.sqrt(1 - kept**2) * normal[look]
    shape = bursts.cv**-2
    gamma = np.asarray(gammaincinv(shape, ndtr(normal))) / shape
    return np.moveaxis(gamma, 0, 2)


def _spread(world: World, runs: int, random: np.random.Generator) -> Floats:
    if world.spread is Spread.NONE:
        return np.ones((1, 1, 1, 1))
    checks = len(world.checks) if world.spread is Spread.PER_CHECK else 1
    size = (runs, checks, 1, world.canaries + world.stables)
    return np.exp(random.normal(0.0, SPREAD_LOG_SD, size))


def _canary(world: World, looks: int, learned: int) -> Floats:
    """By check and look: the factor of the canary's share."""
    factor = np.ones((len(world.checks), looks))
    minute = (np.arange(looks) - learned) / LOOKS_PER_MINUTE
    for number, check in enumerate(world.checks):
        if world.at_margin and check.margin is not None:
            factor[number] *= check.margin
        if world.cold and check.name in TAILS:
            factor[number] *= np.where(minute < _COLD_MINUTES, _COLD_FACTOR, 1.0)
    harm = world.harm
    if harm is None:
        return factor
    since = minute - harm.onset_minutes
    grown = np.clip(since / harm.ramp_minutes, 0, 1) if harm.ramp_minutes else since >= 0
    if harm.minutes is not None:
        grown = grown * (since < harm.minutes)
    for number, check in enumerate(world.checks):
        if check.name in harm.checks:
            factor[number] *= 1 + (harm.factor - 1) * grown
    return factor
