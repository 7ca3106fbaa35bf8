"""Escaping untrusted text for terminals, JSON and Markdown: visible, and never interpreted."""

from __future__ import annotations

from typing import Final

_CONTROL: Final = {
    # C0 and DEL have Unicode pictures; a newline and a tab are harmless.
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    # C1: terminals read U+009B as ESC [, so each of these can start an escape sequence.
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
    # Bidirectional controls reorder the text around them (Unicode UTR 36, spoofing).
    **{
        code: f"\\u{code:04x}"
        for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
    },
}
_UNSEEN: Final = {code: f"\\u{code:04x}" for code in _CONTROL if code > ord(" ")}


def visible(text: str) -> str:
    r"""Return a text without control sequences: characters a terminal would obey become visible.

    Line ends and tabs stay; escape, the other control characters and marks of direction are
    replaced by their picture or code, lone surrogates by ``\udc80``.
    """
    shown = text.translate(_CONTROL)
    return shown.encode("utf-8", "backslashreplace").decode()


def one_line(text: str) -> str:
    """Return a text as one visible line."""
    return " ".join(visible(text).split())


def clipped(text: str, length: int) -> str:
    """Return a text as one visible line of at most `length` characters.

    Of a long text only the part that is shown is processed.
    """
    line = one_line(text[: 4 * length])
    if len(line) <= length and len(text) <= 4 * length:
        return line
    return line[: length - 1] + "…"


def safe_json(text: str) -> str:
    r"""Return JSON text in which control characters are escaped, as in ``\u009b``.

    Its value is unchanged. JSON itself escapes only the control characters below the space.
    """
    return text if text.isascii() and "\x7f" not in text else text.translate(_UNSEEN)
