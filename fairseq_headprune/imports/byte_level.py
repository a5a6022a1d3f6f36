"""Symbols that spell bytes (GPT-2's and BART's): each byte is written as one printable character."""

from functools import cache


@cache
def byte_of() -> dict[str, int]:
    """Return the byte that each character stands for: printable Latin-1 is itself, the rest follows from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


def joined(text: str) -> str:
    """Return the text that symbols, joined by spaces, spell; other characters are left as they are."""
    known, data = byte_of(), bytearray()
    for character in text.replace(" ", ""):
        data += bytes([known[character]]) if character in known else character.encode()
    return data.decode("utf-8", errors="replace").strip()
