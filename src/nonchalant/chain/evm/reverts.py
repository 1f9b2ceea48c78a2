"""Why a call was reverted, in one line: what a contract left as data, read with its ABI where there is one.

The data is the contract's, so it may lie, loop and swell. Everything here is bounded, and nothing raises because of it.
The decoder is our own: eth-abi takes half a second to import, and seconds for 2 kB of arrays that share their items.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from nonchalant.chain.evm.addresses import checksum
from nonchalant.chain.evm.keccak import keccak

ENTRIES: Final = 5_000  # of an ABI as compilers write it, functions and events included
PARAMETERS: Final = 2_000  # of all its errors, members of structures included
NAME_CHARACTERS: Final = 100
DEPTH: Final = 8  # arrays and structures in each other
DATA_BYTES: Final = 64 * 1024  # kept of what a node gives; beyond any reason a person would read
VALUES: Final = 64  # shown of one error
TEXT_BYTES: Final = 512  # shown of one text
HEX_BYTES: Final = 36  # a shorter value is shown whole
LINE_CHARACTERS: Final = 1_000

PANICS: Final = {
    0x00: "a panic of the compiler's own",
    0x01: "an assertion failed",
    0x11: "arithmetic overflow or underflow",
    0x12: "division or modulo by zero",
    0x21: "a number that is no member of the enum",
    0x22: "a storage byte array that is wrongly encoded",
    0x31: "pop on an empty array",
    0x32: "an array index out of bounds",
    0x41: "too much memory allocated, or an array too large",
    0x51: "a call of an internal function that was never set",
}


def explain(data: bytes, abi: Sequence[Mapping[str, object]] | None = None) -> str:
    """One line for people. An ABI that `parse_abi` would refuse counts as none.

    What a contract wrote itself stands in quotes, so that it cannot be taken for our words.
    """
    return _cut(f"reverted: {_told(data, abi or ())}") if data else "reverted without a reason"


def parse_abi(value: object) -> tuple[Mapping[str, object], ...]:
    """The errors of a JSON ABI, with what `explain` needs of them; a ValueError that names the field otherwise."""
    return tuple(error.plain for error in _errors(value))


def revert_data(refusal_message: str, data: object) -> bytes | None:
    """What the contract left, out of a node's error; None: the node gave nothing of the kind."""
    found = _found(data, DEPTH)
    if found is not None:
        return found
    told = _IN_MESSAGE.search(refusal_message)
    return None if told is None else _from_hex(told[1])


# in what nodes say

_HEX: Final = re.compile(r"(?:reverted )?(0x[0-9a-f]*)", re.ASCII | re.IGNORECASE)
_IN_MESSAGE: Final = re.compile(
    r"(?:\breverted:? |\breturn data: |\bcustom error:? |\\?\"data\\?\": ?\\?\")(0x(?:[0-9a-f]{8,})?)(?=[\"\\)]|$)",
    re.ASCII | re.IGNORECASE,
)
# geth and most others; ganache 7; ganache 2, under the transaction's hash; wallets and gateways that wrap.
_KEYS: Final = ("data", "result", "return", "output", "originalError", "error", "cause")
_HASH_CHARACTERS: Final = 66


def _found(data: object, depth: int) -> bytes | None:
    if isinstance(data, str):
        told = _HEX.fullmatch(data[: 2 * DATA_BYTES + 20])
        return None if told is None else _from_hex(told[1])
    if not isinstance(data, Mapping) or not depth:
        return None
    inside = [data[key] for key in _KEYS if key in data]
    inside += [each for key, each in islice(data.items(), 4) if len(str(key)) == _HASH_CHARACTERS]
    return next((found for each in inside if (found := _found(each, depth - 1)) is not None), None)


def _from_hex(text: str) -> bytes | None:
    digits = text[2 : 2 + 2 * DATA_BYTES]
    return None if len(digits) % 2 else bytes.fromhex(digits)


# what it says


def _told(data: bytes, abi: Sequence[Mapping[str, object]]) -> str:
    if len(data) < 4:
        return f"unknown data {_hex(data)}"
    error = _known(data[:4], abi)
    if error is None:
        return f"unknown error {_hex(data[:4])}" + (f" with data {_hex(data[4:])}" if data[4:] else "")
    reader = _Reader(data[4:])
    try:
        match error.selector:
            case _ERROR.selector:
                [reason] = reader.values(error.fields, 0)
                return reason
            case _PANIC.selector:
                code = reader.word(0)
                return f"{PANICS.get(code, 'a panic that Solidity does not know')} (panic 0x{code:02x})"
            case _:
                return f"{error.name}({', '.join(reader.values(error.fields, 0))})"
    except _Malformed:
        return f"{error.name}, whose arguments cannot be decoded: {_hex(data[4:])}"


def _known(selector: bytes, abi: Sequence[Mapping[str, object]]) -> _Error | None:
    try:
        errors = (_ERROR, _PANIC, *_errors(abi))
    except ValueError:
        errors = (_ERROR, _PANIC)
    return next((error for error in errors if error.selector == selector), None)


def _hex(data: bytes) -> str:
    return f"0x{data.hex()}" if len(data) <= HEX_BYTES else f"0x{data[:32].hex()}… ({len(data)} bytes)"


def _cut(text: str) -> str:
    return text if len(text) <= LINE_CHARACTERS else text[: LINE_CHARACTERS - 1] + "…"


def _quoted(raw: bytes, whole: bool) -> str:
    """The text with all that does not print escaped: controls, marks that turn the line round, bytes that are no UTF-8."""
    text = raw.decode("utf-8", "surrogateescape")
    shown = "".join(c if c.isprintable() and c not in '"\\' else _escaped(c) for c in text)
    return f'"{shown}"' if whole else f'"{shown}…"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return "\\" + character
    if code < 0x100 or 0xDC80 <= code <= 0xDCFF:  # a surrogate stands for a byte that is no UTF-8
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# the types of an ABI


@dataclass(frozen=True, slots=True)
class _Word:
    """What fits in one word: `bits` and, for a fixed-point number, `decimals` as in its name."""

    name: str
    base: str
    bits: int
    decimals: int = 0

    dynamic: bool = False
    size: int = 32


@dataclass(frozen=True, slots=True)
class _Bytes:
    """`bytes` or `string`."""

    name: str

    dynamic: bool = True
    size: int = 32


@dataclass(frozen=True, slots=True)
class _Array:
    """`length` None: as many as the data says."""

    item: _Type
    length: int | None

    name: str
    dynamic: bool
    size: int


@dataclass(frozen=True, slots=True)
class _Tuple:
    fields: tuple[_Field, ...]

    name: str
    dynamic: bool
    size: int


# `name` is the canonical one. What is `dynamic` stands elsewhere, and its place holds one word that points there;
# `size` is what the place takes, in bytes.
_Type = _Word | _Bytes | _Array | _Tuple


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: _Type
    plain: Mapping[str, object]  # as a JSON ABI writes it


def _array(item: _Type, length: int | None) -> _Array:
    dynamic = length is None or item.dynamic
    size = 32 if length is None or item.dynamic else length * item.size
    return _Array(item, length, f"{item.name}[{'' if length is None else length}]", dynamic, size)


def _tuple(fields: tuple[_Field, ...]) -> _Tuple:
    dynamic = any(field.type.dynamic for field in fields)
    size = 32 if dynamic else sum(field.type.size for field in fields)
    return _Tuple(fields, f"({','.join(field.type.name for field in fields)})", dynamic, size)


@dataclass(frozen=True, slots=True)
class _Error:
    name: str
    fields: tuple[_Field, ...]

    @property
    def selector(self) -> bytes:
        return keccak(f"{self.name}{_tuple(self.fields).name}".encode())[:4]

    @property
    def plain(self) -> Mapping[str, object]:
        return {"type": "error", "name": self.name, "inputs": [field.plain for field in self.fields]}


_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*", re.ASCII)
_TYPE: Final = re.compile(r"([a-z]{1,10})(\d{1,3})?(?:x(\d{1,2}))?((?:\[\d{0,9}\])*)", re.ASCII)
_ALIASES: Final = {"uint": "uint256", "int": "int256", "fixed": "fixed128x18", "ufixed": "ufixed128x18"}


class _Room:
    """How many parameters may still come."""

    def __init__(self) -> None:
        self.left = PARAMETERS

    def take(self, where: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"{where}: its errors have more than {PARAMETERS} parameters")


def _errors(value: object) -> Iterator[_Error]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ValueError("expected a list of objects, as compilers write it")
    if len(value) > ENTRIES:
        raise ValueError(f"has more than {ENTRIES} entries")
    room = _Room()
    for index, entry in enumerate(value):
        where = f"[{index}]"
        if not isinstance(entry, Mapping):
            raise ValueError(f"{where}: expected an object")
        if entry.get("type") == "error":
            room.take(where)
            name = _name(entry.get("name"), f"{where}.name")
            yield _Error(name, _fields(entry.get("inputs", []), f"{where}.inputs", DEPTH, room))


def _fields(value: object, where: str, depth: int, room: _Room) -> tuple[_Field, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ValueError(f"{where}: expected a list of parameters")
    fields = []
    for index, each in enumerate(value):
        here = f"{where}[{index}]"
        room.take(here)
        if not isinstance(each, Mapping):
            raise ValueError(f"{here}: expected an object with name and type")
        fields.append(_field(each, here, depth, room))
    return tuple(fields)


def _field(value: Mapping[object, object], where: str, depth: int, room: _Room) -> _Field:
    given = value.get("name")
    name = "" if given in (None, "") else _name(given, f"{where}.name")
    text = value.get("type")
    parts = _TYPE.fullmatch(text[:NAME_CHARACTERS]) if isinstance(text, str) else None
    if parts is None or not isinstance(text, str):
        raise ValueError(f"{where}.type: {text if text is None else repr(text)[:40]} is no type")
    arrays = re.findall(r"\[(\d*)\]", parts[4])
    if len(arrays) >= depth:
        raise ValueError(f"{where}.type: more than {DEPTH} arrays and structures in each other")
    plain: dict[str, object] = {"name": name, "type": text}
    if parts[1] == "tuple" and parts[2] is None:
        members = _fields(value.get("components"), f"{where}.components", depth - len(arrays) - 1, room)
        if not members:
            raise ValueError(f"{where}.components: a structure has at least one member")
        plain["components"] = [member.plain for member in members]
        kind: _Type = _tuple(members)
    else:
        kind = _elementary(text.partition("[")[0], f"{where}.type")
    for length in arrays:
        if length and not int(length):
            raise ValueError(f"{where}.type: an array of no length")
        kind = _array(kind, int(length) if length else None)
    return _Field(name, kind, plain)


def _elementary(text: str, where: str) -> _Type:
    name = _ALIASES.get(text, text)
    parts = _TYPE.fullmatch(name)
    assert parts is not None
    base, size, decimals = parts[1], int(parts[2] or 0), int(parts[3] or 0)
    plain = parts[3] is None
    canonical = name == base + str(size or "") + (f"x{decimals}" if decimals else "")
    if canonical and base in ("uint", "int") and plain and _is_width(size):
        return _Word(name, base, size)
    if canonical and base in ("ufixed", "fixed") and _is_width(size) and 1 <= decimals <= 80:
        return _Word(name, base.replace("ufixed", "uint").replace("fixed", "int"), size, decimals)
    if canonical and base == "bytes" and plain and 1 <= size <= 32:
        return _Word(name, "bytes", size * 8)
    if name in _SIMPLE:
        return _SIMPLE[name]
    raise ValueError(f"{where}: {text!r} is no type")


def _is_width(bits: int) -> bool:
    return 8 <= bits <= 256 and bits % 8 == 0


def _name(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value) > NAME_CHARACTERS or not _NAME.fullmatch(value):
        raise ValueError(f"{where}: expected a name of at most {NAME_CHARACTERS} letters, digits, _ and $")
    return value


_SIMPLE: Final[Mapping[str, _Type]] = {
    "address": _Word("address", "address", 160),
    "bool": _Word("bool", "bool", 1),
    "function": _Word("function", "bytes", 192),
    "bytes": _Bytes("bytes"),
    "string": _Bytes("string"),
}
_ERROR: Final = _Error("Error", (_Field("", _SIMPLE["string"], {}),))
_PANIC: Final = _Error("Panic", (_Field("", _elementary("uint256", ""), {}),))


# the values in the data


class _Malformed(Exception):
    """The data is not what its type says."""


class _Reader:
    """Values as text. It stops after `VALUES` of them, however often the data points to the same ones."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = VALUES

    def word(self, at: int) -> int:
        return int.from_bytes(self._exactly(at, 32), "big")

    def values(self, fields: Sequence[_Field], base: int) -> list[str]:
        texts: list[str] = []
        at = base
        for field in fields:
            if not self._left:
                return [*texts, "…"]
            text = self._at(field.type, at, base)
            texts.append(f"{field.name}: {text}" if field.name else text)
            at += field.type.size
        return texts

    def _at(self, kind: _Type, at: int, base: int) -> str:
        """The value whose place, or whose pointer counted from `base`, is at `at`."""
        return self._value(kind, base + self.word(at) if kind.dynamic else at)

    def _value(self, kind: _Type, at: int) -> str:
        self._left -= 1
        match kind:
            case _Word():
                return _shown(kind, self._exactly(at, 32))
            case _Bytes(name):
                return self._bytes(at, is_text=name == "string")
            case _Array(item, length):
                return self._items(item, self.word(at), at + 32) if length is None else self._items(item, length, at)
            case _Tuple(fields):
                return f"({', '.join(self.values(fields, at))})"

    def _bytes(self, at: int, *, is_text: bool) -> str:
        size, start = self.word(at), at + 32
        if size > len(self._data) - start:
            raise _Malformed
        if not is_text:
            return _hex(self._data[start : start + size])
        end = start + min(size, TEXT_BYTES)
        while start < end < start + size and self._data[end] & 0xC0 == 0x80:  # not in the middle of a character
            end -= 1
        return _quoted(self._data[start:end], whole=size <= TEXT_BYTES)

    def _items(self, item: _Type, length: int, base: int) -> str:
        if length * item.size > len(self._data) - base:
            raise _Malformed
        texts: list[str] = []
        while len(texts) < length and self._left:
            texts.append(self._at(item, base + len(texts) * item.size, base))
        more = [f"… {length - len(texts)} more"] if len(texts) < length else []
        return f"[{', '.join(texts + more)}]"

    def _exactly(self, at: int, size: int) -> bytes:
        found = self._data[at : at + size]
        if len(found) < size:
            raise _Malformed
        return found


def _shown(kind: _Word, word: bytes) -> str:
    if kind.base == "bytes":
        size = kind.bits // 8
        if any(word[size:]):
            raise _Malformed
        return f"0x{word[:size].hex()}"
    number = int.from_bytes(word, "big", signed=kind.base == "int")
    if (number if number >= 0 else ~number).bit_length() > (kind.bits - 1 if kind.base == "int" else kind.bits):
        raise _Malformed
    if kind.base == "address":
        return checksum(f"0x{word[12:].hex()}")
    if kind.base == "bool":
        return "true" if number else "false"
    if not kind.decimals:
        return str(number)
    whole, fraction = divmod(abs(number), 10**kind.decimals)
    digits = f"{fraction:0{kind.decimals}d}".rstrip("0")
    return f"{'-' if number < 0 else ''}{whole}{'.' + digits if digits else ''}"
