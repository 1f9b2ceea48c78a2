"""Counting: right, and bounded whatever is counted."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from nonchalant.observing import catalogue as c
from nonchalant.observing.catalogue import Kind, Metric
from nonchalant.observing.observatory import _Page
from nonchalant.observing.tallies import Tallies

FEW = Metric(name="few_total", kind=Kind.COUNTER, help="", labels=("who",), most=3)
SIZES = Metric(name="sizes", kind=Kind.HISTOGRAM, help="", labels=("who",), buckets=(1.0, 5.0), most=2)


def samples(tallies: Tallies) -> dict[tuple[str, ...], float]:
    registry = CollectorRegistry()
    registry.register(_Page(list(tallies.families({}))))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(sample.name, *sorted(sample.labels.values())): sample.value for one in families for sample in one.samples}


def test_what_is_beyond_the_bound_is_counted_under_other() -> None:
    tallies = Tallies([FEW, SIZES])
    for number in range(1000):
        tallies.count(FEW, f"caller {number}")
        tallies.see(SIZES, 2, f"caller {number}")
    found = {key: value for key, value in samples(tallies).items() if key[0] in ("few_total", "sizes_count")}
    assert found[("few_total", "other")] == 997
    assert found[("sizes_count", "other")] == 998
    assert len(found) == 4 + 3


def test_a_histogram_counts_what_is_at_most_the_edge() -> None:
    tallies = Tallies([SIZES])
    for value in (0.5, 1.0, 1.5, 5.0, 7.0, -3.0):
        tallies.see(SIZES, value, "x")
    found = samples(tallies)
    buckets = {key[1]: value for key, value in found.items() if key[0] == "sizes_bucket"}
    assert buckets == {"1.0": 3, "5.0": 5, "+Inf": 6}
    assert found[("sizes_sum", "x")] == 15.0  # a clock that is behind has taken nothing, not less


def test_what_has_no_labels_is_there_before_it_happens() -> None:
    assert samples(Tallies())[(c.FENCED.name,)] == 0


def test_the_catalogue_is_written_as_prometheus_advises() -> None:
    names = [metric.name for metric in c.CATALOGUE]
    assert len(set(names)) == len(names)
    for metric in c.OWN:
        assert metric.name.startswith("nonchalant_")
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric
        assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets), metric
        assert metric.help.endswith("."), metric
        assert len(metric.labels) <= 4, metric
        assert list(metric.buckets) == sorted(metric.buckets)
