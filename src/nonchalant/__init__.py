"""Nonchalant sends blockchain transactions for a backend and never worries about nonces.

    async with Nonchalant.open("nonchalant.toml") as nc:
        tx = await nc.send(chain_id=1, sender="0x…", to="0x…", value=10**15, idempotency_key="invoice-42")
        outcome = await tx.settled()

What is named here is public; everything else may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nonchalant.app import Handle, Nonchalant
    from nonchalant.config import Settings, load_settings
    from nonchalant.errors import (
        BadRequest,
        BadSettings,
        FeeAboveCap,
        KeyReused,
        LaneDraining,
        MayHaveRun,
        NonchalantError,
        NotFound,
        QueueFull,
        ShuttingDown,
        StoreUnavailable,
        TooLate,
        TooManyReplacements,
        TooManyWishes,
        TransactionRemoved,
        UnknownAccount,
        UnknownChain,
        WishPending,
        WishRefused,
    )
    from nonchalant.hooks import Alert, Bump, Cancel, HeadSnapshot, LaneSnapshot, Replace, Wait
    from nonchalant.model import Attention, Fees, Receipt, Transaction
    from nonchalant.steering import LaneHandle, ReservedNonce
    from nonchalant.words import OnSuperseded, Speed, State

# Imported when first asked for: the command line should not wait for what it does not use.
_HOMES = {
    "nonchalant.app": ("Handle", "Nonchalant"),
    "nonchalant.config": ("Settings", "load_settings"),
    "nonchalant.errors": (
        "BadRequest",
        "BadSettings",
        "FeeAboveCap",
        "KeyReused",
        "LaneDraining",
        "NonchalantError",
        "NotFound",
        "QueueFull",
        "ShuttingDown",
        "StoreUnavailable",
        "MayHaveRun",
        "TooLate",
        "TooManyReplacements",
        "TooManyWishes",
        "TransactionRemoved",
        "UnknownAccount",
        "UnknownChain",
        "WishPending",
        "WishRefused",
    ),
    "nonchalant.hooks": ("Alert", "Bump", "Cancel", "HeadSnapshot", "LaneSnapshot", "Replace", "Wait"),
    "nonchalant.model": ("Attention", "Fees", "Receipt", "Transaction"),
    "nonchalant.steering": ("LaneHandle", "ReservedNonce"),
    "nonchalant.words": ("OnSuperseded", "Speed", "State"),
}

__all__ = [
    "Alert",
    "Attention",
    "BadRequest",
    "BadSettings",
    "Bump",
    "Cancel",
    "FeeAboveCap",
    "Fees",
    "Handle",
    "HeadSnapshot",
    "KeyReused",
    "LaneDraining",
    "LaneHandle",
    "LaneSnapshot",
    "MayHaveRun",
    "Nonchalant",
    "NonchalantError",
    "NotFound",
    "OnSuperseded",
    "QueueFull",
    "Receipt",
    "Replace",
    "ReservedNonce",
    "Settings",
    "ShuttingDown",
    "Speed",
    "State",
    "StoreUnavailable",
    "TooLate",
    "TooManyReplacements",
    "TooManyWishes",
    "Transaction",
    "TransactionRemoved",
    "UnknownAccount",
    "UnknownChain",
    "Wait",
    "WishPending",
    "WishRefused",
    "load_settings",
]


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'nonchalant' has no attribute {name!r}")
