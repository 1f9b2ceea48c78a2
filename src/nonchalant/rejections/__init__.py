"""What a node meant when it did not say yes.

Error codes collide between clients and every client has its own words, so a rejection is recognised by what its words
say: rules in order, the most specific first, each with its reason. Nothing here decides what to do with a
transaction; it says what the answer proves about the bytes (`Fate`) and what helps (`Remedy`).
"""

from nonchalant.rejections.kinds import Fate, Rejection, Remedy
from nonchalant.rejections.reading import classify
from nonchalant.rejections.rules import CODES, RULES, Rule

__all__ = ["CODES", "RULES", "Fate", "Rejection", "Remedy", "Rule", "classify"]
