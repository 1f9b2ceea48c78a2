"""What every suite shares: where the real parts are, and how much Hypothesis tries."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tests.postgres import Cluster, running

ROOT = Path(__file__).resolve().parent.parent

UNTOUCHED = structlog.get_config()

# Derandomised, so that a red run is red again; `make test-long` looks further.
settings.register_profile("test", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("long", parent=settings.get_profile("test"), derandomize=False, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))


class Telling:
    """Who failed and why, at once: of a run whose output is cut short, the summary is what is lost."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message.partition("\n")[0] if crash else report.longreprtext.rpartition("\n")[2]
            self._terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}): {why[:300]}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:  # a worker of xdist has none; its reports reach the one who started it
        config.pluginmanager.register(Telling(terminal))


def pytest_collection_finish() -> None:
    # Every simulated world that ends is collected: what is there for good need not be looked through each time.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logging_is_left_as_it_was() -> Iterator[None]:
    """`capture_logs` puts back what was there by configuring it: from then on a node would believe that somebody had."""
    untouched = not structlog.is_configured()
    yield
    if untouched and structlog.get_config()["logger_factory"] is UNTOUCHED["logger_factory"]:
        structlog.reset_defaults()


@pytest.fixture(scope="session")
def anvil() -> Path:
    """The anvil binary that make installed; never skipped, because `make test` runs on real parts."""
    installed = ROOT.glob(".make/anvil/node_modules/@foundry-rs/anvil-*/bin/anvil")
    found = os.environ.get("NONCHALANT_ANVIL") or shutil.which("anvil") or next(installed, None)
    if found is None:
        pytest.fail("anvil is not installed: run `make install`")
    return Path(found)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """One PostgreSQL server for all tests of this process; each works in a schema of its own."""
    with running() as cluster:
        yield cluster
