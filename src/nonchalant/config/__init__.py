"""Settings: one TOML file and the environment become one frozen value, or an error that names the key and the remedy.

Nothing secret is read here, only where to find it (`secret.py`).
"""

from nonchalant.config.reading import DEFAULT_FILE, VARIABLES, load_settings, parse_settings
from nonchalant.config.settings import (
    AccountSettings,
    Auth,
    ChainSettings,
    DataFee,
    EndpointSettings,
    FixedPrices,
    KeySource,
    Keystore,
    Listen,
    LogFormat,
    Mnemonic,
    OraclePrices,
    PriceSource,
    PrivateKey,
    Settings,
    Unit,
)

__all__ = [
    "DEFAULT_FILE",
    "VARIABLES",
    "AccountSettings",
    "Auth",
    "ChainSettings",
    "DataFee",
    "EndpointSettings",
    "FixedPrices",
    "KeySource",
    "Keystore",
    "Listen",
    "LogFormat",
    "Mnemonic",
    "OraclePrices",
    "PriceSource",
    "PrivateKey",
    "Settings",
    "Unit",
    "load_settings",
    "parse_settings",
]
