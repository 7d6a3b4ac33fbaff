"""Makes characters that a terminal would obey visible, in text whose author is not known. It does not know the text.

Stored runs come from anywhere: a model's name that holds an escape sequence must not move the cursor or forge a line.
"""

import re
from typing import Final

_OBEYED: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and end of line, and what turns the direction of text."""


def harmless(text: str) -> str:
    """``text`` with the replacement character in the place of each of them."""
    return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", text)
