"""Which failure of systems like ours a test answers: a marker, so that the list of them can be generated."""

from __future__ import annotations

import pytest


def lesson(section: str, line: str) -> pytest.MarkDecorator:
    """The test shows that ours passes this case; `line` is how the line begins, or the part of it that is shown."""
    return pytest.mark.lesson(section, line)
