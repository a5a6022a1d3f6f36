"""Numbers of heads as they are written in flags."""

from fairseq_headprune.parts import HEADS


def parse_count(flag: str, text: str | None) -> int | dict[str, int]:
    """Read a number of heads: ``24``, or one a component: ``enc_self=8,enc_dec=8,dec_self=8``.

    Raises:
        ValueError: not integers, an unknown or repeated component.
    """
    try:
        if "=" not in str(text):
            return int(str(text))
        pairs = [part.split("=") for part in str(text).split(",")]
        counts = {component.strip(): int(number) for component, number in pairs}
    except ValueError:
        raise ValueError(
            f"{flag} {text}: not a number of heads; give an integer, or one a component as in enc_self=8,enc_dec=8"
        ) from None
    if set(counts) - set(HEADS) or len(counts) != len(pairs):
        raise ValueError(f"{flag} {text}: name each of {', '.join(HEADS)} at most once")
    return counts
