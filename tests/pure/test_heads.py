"""The linked chain, and who may call a block final."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.heads import REMEMBERED, Head, agreed, believed, final_height, quorum
from nonchalant.model import Block, BlockRef, View


def block(number: int, fork: str = "a", parent_fork: str | None = None) -> Block:
    return Block(number, f"{fork}{number}", f"{parent_fork or fork}{number - 1}", ())


def chain(first: int, last: int, fork: str = "a", parent_fork: str | None = None) -> list[Block]:
    return [block(first, fork, parent_fork), *(block(number, fork) for number in range(first + 1, last + 1))]


def head(final: int = 10, top: int = 10) -> Head:
    made = Head(BlockRef(final, f"a{final}"))
    if top > final:
        made.extend(chain(final + 1, top))
    return made


def test_a_new_head_knows_its_final_block_and_nothing_else() -> None:
    new = head(10)
    assert new.top == new.final == BlockRef(10, "a10")
    assert new.has(BlockRef(10, "a10"))
    assert not new.has(BlockRef(10, "b10"))
    assert not new.has(BlockRef(11, "a11"))


def test_a_block_links_when_its_parent_is_on_the_chain() -> None:
    assert head(10, 12).links(block(13))
    assert head(10, 12).links(block(12, "b", "a"))
    assert not head(10, 12).links(block(13, "b"))
    assert not head(10, 12).links(block(14))


def test_no_block_links_at_or_below_finality() -> None:
    known = head(10, 12)
    known.hashes[9] = "a9"
    assert not known.links(block(10, "b", "a"))
    assert not known.links(block(9, "b", "a"))
    assert known.links(block(11, "b", "a"))


def test_blocks_that_follow_displace_nothing() -> None:
    known = head(10, 12)
    assert known.extend(chain(13, 15)) == []
    assert known.top == BlockRef(15, "a15")
    assert known.has(BlockRef(14, "a14"))


def test_a_fork_displaces_everything_above_its_root_even_when_it_is_shorter() -> None:
    known = head(10, 15)
    removed = known.extend(chain(13, 14, "b", "a"))
    assert removed == [BlockRef(13, "a13"), BlockRef(14, "a14"), BlockRef(15, "a15")]
    assert known.top == BlockRef(14, "b14")
    assert not known.has(BlockRef(15, "a15"))
    assert known.has(BlockRef(12, "a12"))


def test_blocks_that_do_not_link_are_not_taken() -> None:
    known = head(10, 12)
    with pytest.raises(AssertionError):
        known.extend([block(13, "b")])
    assert known == head(10, 12)


def refs(*numbers: int, fork: str = "a") -> tuple[BlockRef, ...]:
    return tuple(BlockRef(number, f"{fork}{number}") for number in numbers)


def test_the_blocks_above_one_are_those_linked_on_top_of_it_as_far_as_there_are() -> None:
    known = head(10, 14)
    assert known.above(BlockRef(11, "a11"), 2) == refs(12, 13)
    assert known.above(BlockRef(11, "a11"), 9) == refs(12, 13, 14)
    assert known.above(BlockRef(14, "a14"), 3) == ()
    known.extend(chain(13, 14, "b", "a"))
    assert known.above(BlockRef(11, "a11"), 3) == (*refs(12), *refs(13, 14, fork="b"))
    assert known.above(BlockRef(13, "a13"), 3) == ()  # displaced


def test_blocks_past_a_hole_are_not_said_to_be_linked() -> None:
    """The follower that was too far behind went on from a newer final block."""
    leapt = head(20, 22)
    leapt.hashes[10] = "a10"
    assert leapt.above(BlockRef(10, "a10"), 12) == ()
    leapt.hashes[11] = "a11"
    assert leapt.above(BlockRef(10, "a10"), 12) == refs(11)


def test_finality_moves_up_the_chain_and_never_back() -> None:
    known = head(10, 15)
    assert known.finalise(BlockRef(13, "a13"))
    assert not known.finalise(BlockRef(13, "a13"))
    assert not known.finalise(BlockRef(12, "a12"))
    assert known.final == BlockRef(13, "a13")


def test_a_block_of_another_chain_never_becomes_final() -> None:
    known = head(10, 15)
    assert not known.finalise(BlockRef(13, "b13"))
    assert not known.finalise(BlockRef(16, "a16"))
    assert known.final == BlockRef(10, "a10")


def test_a_block_is_final_when_it_is_ours_and_at_or_below_finality() -> None:
    known = head(10, 15)
    known.finalise(BlockRef(13, "a13"))
    assert known.is_final(BlockRef(13, "a13"))
    assert known.is_final(BlockRef(11, "a11"))
    assert not known.is_final(BlockRef(11, "b11"))
    assert not known.is_final(BlockRef(14, "a14"))


@given(st.lists(st.integers(1, 400), min_size=1, max_size=6))
def test_the_hashes_that_are_kept_are_bounded_and_reach_below_finality(strides: list[int]) -> None:
    known = head(0)
    for stride in strides:
        known.extend(chain(known.top.number + 1, known.top.number + stride))
        known.finalise(known.top)
        lowest = max(0, known.final.number - REMEMBERED)
        assert sorted(known.hashes) == list(range(lowest, known.top.number + 1))


@pytest.mark.parametrize(("endpoints", "needed"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_half_of_the_endpoints_must_answer(endpoints: int, needed: int) -> None:
    assert quorum(endpoints) == needed


def view(height: int, finalized: int | None) -> View:
    return View(BlockRef(height, "h"), None if finalized is None else BlockRef(finalized, "f"))


def test_the_lowest_finalized_tag_counts() -> None:
    assert final_height([view(20, 14), view(21, 12), view(22, 99)], 3, None) == 12


def test_too_few_answers_make_nothing_final() -> None:
    assert final_height([view(20, 14)], 3, None) is None
    assert final_height([], 1, 5) is None
    assert final_height([view(20, 14), view(20, 14)], 3, None) == 14


def test_a_missing_tag_is_never_replaced_by_a_depth() -> None:
    assert final_height([view(20, 14), view(20, None)], 2, None) is None


def test_by_depth_the_lowest_head_counts_and_tags_do_not() -> None:
    assert final_height([view(20, None), view(25, 25)], 2, 12) == 8
    assert final_height([view(5, None)], 1, 12) == 0


def test_a_block_is_agreed_on_when_everybody_names_the_same() -> None:
    assert agreed(7, ["a7", "a7"], least=2) == BlockRef(7, "a7")


def test_silence_is_no_disagreement_while_enough_speak() -> None:
    assert agreed(7, ["a7", None, "a7"], least=2) == BlockRef(7, "a7")
    assert agreed(7, ["a7", None, None], least=2) is None


@pytest.mark.parametrize("answers", [["a7", "b7"], ["a7", "a7", "b7"], [None, None], []])
def test_disagreement_and_silence_agree_on_nothing(answers: list[str | None]) -> None:
    assert agreed(7, answers, least=1) is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=7))
def test_a_figure_is_believed_that_more_than_half_reach(values: list[int]) -> None:
    figure = believed(values)
    assert sum(value >= figure for value in values) > len(values) / 2
    assert sum(value >= figure + 1 for value in values) <= len(values) / 2
