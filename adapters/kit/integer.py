"""Integers in the text of a request: query parameters, headers and cursors."""

from babelgate.canonical import FaultCode, FaultError


def parse_integer(text: str, max_digits: int, minimum: int = 0, maximum: int | None = None) -> int | None:
    """Return the integer that a text of ASCII digits represents. Return None for any other text, one with more than
    `max_digits` characters, and an integer below `minimum` or above `maximum` (None: no maximum)."""
    if not (text.isascii() and text.isdigit() and len(text) <= max_digits):
        return None
    number = int(text)
    return number if minimum <= number and (maximum is None or number <= maximum) else None


def read_integer(text: str, name: str, minimum: int, maximum: int | None = None) -> int:
    """Return the value of the parameter `name`, an integer of at most nine digits from `minimum` to `maximum` (None: no
    maximum). Raises invalid for any other text."""
    number = parse_integer(text, 9, minimum, maximum)
    if number is None:
        range_ = f"from {minimum}" + (f" to {maximum}" if maximum else "")
        raise FaultError(FaultCode.INVALID, f"{name}: must be an integer {range_}")
    return number
