"""The figures as a picture: bars, drawn as plain SVG, for pages light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from bench.measurements import Measurements

WIDTH: Final = 860
LABELS: Final = 250  # how far the bars begin from the left
LONGEST: Final = 330
ROW: Final = 26
BAR: Final = 16

STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 16px; font-weight: 600; }
.group { font-weight: 600; }
.note { fill: #59636e; }
.bar { fill: #8c959f; }
.ours { fill: #0969da; }
.page { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .note { fill: #9198a1; }
  .bar { fill: #6e7681; }
  .ours { fill: #4493f8; }
  .page { fill: #0d1117; }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    note: str
    ours: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that share a scale."""

    title: str
    bars: Sequence[Bar]


def groups(found: Measurements) -> list[Group]:
    made = [
        Group("On the stub node, transactions a second", list(_throughput(found, "stub", "prototype"))),
        Group("On anvil, transactions a second", list(_throughput(found, "anvil", "anvil-limit"))),
        Group("Accepted by REST, on disk, transactions a second", list(_accepted(found))),
    ]
    return [group for group in made if group.bars]


def _throughput(found: Measurements, chain: str, measure: str) -> Iterator[Bar]:
    against = "of the prototype" if chain == "stub" else "of the limit"
    for name, case in found.cases.items():
        done = found.done(name)
        if case.chain == chain and done is not None:
            ratio = found.against(name, measure)
            note = "" if ratio is None or name == measure else f"{ratio:.0%} {against}"
            yield Bar(case.title, done, note, case.is_ours)


def _accepted(found: Measurements) -> Iterator[Bar]:
    for form, paused in found.accepted:
        rate = found.accepted_rate(form, paused=paused)
        assert rate is not None
        yield Bar(f"{form}, {'lanes paused' if paused else 'everything on'}", rate, "", ours=True)


def draw(title: str, note: str, groups: Sequence[Group]) -> str:
    """The whole picture, as text."""
    parts, y = [], 64
    for group in groups:
        parts.append(_text(16, y, group.title, "group"))
        longest = max(bar.value for bar in group.bars)
        for bar in group.bars:
            y += ROW
            parts += _bar(bar, y, longest)
        y += ROW + 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f'<rect class="page" width="{WIDTH}" height="{y}"/>'
    )
    return "\n".join([head, _text(16, 26, title, "title"), _text(16, 44, note, "note"), *parts, "</svg>", ""])


def _bar(bar: Bar, y: int, longest: float) -> list[str]:
    length = max(1.0, bar.value / longest * LONGEST)
    kind = "bar ours" if bar.ours else "bar"
    said = f"{bar.value:,.0f}" + (f" · {bar.note}" if bar.note else "")
    return [
        _text(16, y, bar.label),
        f'<rect class="{kind}" x="{LABELS}" y="{y - BAR + 4}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        _text(LABELS + length + 8, y, said),
    ]


def _text(x: float, y: float, said: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{escape(said)}</text>'
