"""Shows the roles of docstrings (``:class:`…```) as plain code in the built pages."""

import re
from typing import Any

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):<code>(~?)\s*([^<]+)</code>")


def on_page_content(html: str, **_arguments: Any) -> str:
    """Replace each role by its target, shortened to the last name where it asks for that."""
    return _ROLE.sub(_shown, html)


def _shown(match: re.Match[str]) -> str:
    short, target = match.groups()
    plain = re.sub(r"\s+", "", target)
    return f"<code>{plain.rpartition('.')[2] if short else plain}</code>"
