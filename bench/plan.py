"""What is run, in which order: in each round every contestant once, so that a busy minute is nobody's alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from bench import acceptance, latency
from bench.acceptance import BATCHES, SINGLY, Form
from bench.acts import Act, Bench, Scope
from bench.case import CASES, Case
from bench.progress import Step
from bench.run import measured

ACCEPTANCE: Final = "acceptance"
LATENCY: Final = "latency"
CAPACITY: Final = "rest"  # the case that says what a service carries
NAMES: Final = (*(case.name for case in CASES), ACCEPTANCE, LATENCY)

LEAST: Final = 400  # transactions of a case: with fewer, a block more or less decides


def cases(scope: Scope) -> list[Case]:
    """Latency is measured at half of what another case found, so that one is always among them."""
    wanted = {*scope.only, *([CAPACITY] if LATENCY in scope.only else [])}
    return [
        replace(case, count=scope.transactions or max(LEAST, case.count // scope.shorter))
        for case in CASES
        if case.name in wanted
    ]


def acts(scope: Scope) -> list[Act]:
    return [act for number in range(1, scope.rounds + 1) for act in _round(scope, number)]


def _round(scope: Scope, number: int) -> list[Act]:
    made = [
        Act(Step(_title(case), number, 10 + case.count / 3_000), partial(_run, case, scope.profile))
        for case in cases(scope)
    ]
    if ACCEPTANCE in scope.only:
        made += [
            Act(
                Step(
                    f"accepting {form.name}{', lanes paused' * paused}",
                    number,
                    8 + scope.seconds * (1 if paused else 5),
                ),
                partial(_accept, form, paused, scope.seconds),
            )
            for form in (SINGLY, BATCHES)
            for paused in (True, False)
        ]
    if LATENCY in scope.only:
        made.append(Act(Step(LATENCY, number, 12 + 2 * scope.seconds), partial(_wait, 2 * scope.seconds)))
    return made


def _title(case: Case) -> str:
    return f"{case.title} on {case.chain}"


async def _run(case: Case, profile: str, bench: Bench) -> str:
    figures = await measured(case, bench.cluster, profile=profile)
    bench.found.cases[case.name] = case
    bench.found.runs[case.name].append(figures)
    used = ", ".join(f"{who} {each:.0f}" for who, each in figures.cpu.items())
    return f"{figures.done:,.0f}/s done, {figures.executed:,.0f}/s executed; µs of a core: {used}"


async def _accept(form: Form, paused: bool, seconds: float, bench: Bench) -> str:
    accepted = await acceptance.measured(form, bench.cluster, seconds=seconds, paused=paused)
    bench.found.accepted[form.name, paused].append(accepted)
    return f"{accepted.rate:,.0f}/s accepted; the generator took {accepted.share:.0%} of a core"


async def _wait(seconds: float, bench: Bench) -> str:
    capacity = bench.found.done(CAPACITY)
    assert capacity is not None
    waited = await latency.measured(bench.cluster, rate=capacity / 2, seconds=seconds)
    bench.found.latencies.append(waited)
    spread = waited.broadcast
    return f"accepted → broadcast p50 {spread.p50:.0f}, p95 {spread.p95:.0f}, p99 {spread.p99:.0f} ms"
