"""Checking what a store is constructed with."""

from __future__ import annotations

import math
import re
from typing import Final
from urllib.parse import urlsplit

from agent_memory.errors import InvalidRequestError
from agent_memory.storage.dynamodb.items import HEADER

DEFAULT_TTL_ATTRIBUTE: Final = "expires_at"

# A name, or the ARN of a table (in another account).
# Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_PutItem.html
_TABLE: Final = re.compile(r"[a-zA-Z0-9_.-]{3,255}|arn:[^\s]{1,1000}")
_TAKEN: Final = frozenset({*HEADER, "text", "zip", "id", "prev", "number"})


def checked_options(
    table_name: object,
    endpoint_url: object,
    *,
    ttl_attribute: object,
    ttl_seconds: object,
    timeout: object,
) -> None:
    """Check a store's options.

    Raises:
        InvalidRequestError: one makes no sense; the text says which, and what would.
    """
    if not isinstance(table_name, str) or not _TABLE.fullmatch(table_name):
        raise InvalidRequestError(
            f"table_name must be 3 to 255 letters, digits, '_', '-' or '.', not {table_name!r}"
        )
    if endpoint_url is not None:
        check_endpoint(endpoint_url)
    if ttl_seconds is not None and (type(ttl_seconds) is not int or ttl_seconds < 1):
        raise InvalidRequestError(
            f"ttl_seconds must be a whole number of at least 1, or None, not {ttl_seconds!r}"
        )
    if ttl_attribute is not None:
        _check_attribute(ttl_attribute, ttl_seconds)
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise InvalidRequestError(f"timeout must be a number of seconds above 0, not {timeout!r}")


def check_endpoint(endpoint_url: object) -> None:
    """Check the address of an emulator or a private endpoint.

    Raises:
        InvalidRequestError: it is no text, or holds credentials.
    """
    if not isinstance(endpoint_url, str):
        raise InvalidRequestError(
            f"endpoint_url must be a URL such as 'http://localhost:8000', not a "
            f"{type(endpoint_url).__name__}"
        )
    if "@" in urlsplit(endpoint_url).netloc:  # the SDK would write it into its log
        raise InvalidRequestError(
            "endpoint_url must not hold a user or password: credentials come from the "
            "environment or from session="
        )


def _check_attribute(ttl_attribute: object, ttl_seconds: object) -> None:
    if ttl_seconds is None:
        raise InvalidRequestError(
            "ttl_attribute says where an item's expiry stands; give ttl_seconds too, or neither"
        )
    if not isinstance(ttl_attribute, str) or not ttl_attribute or ttl_attribute in _TAKEN:
        raise InvalidRequestError(
            f"ttl_attribute must be an attribute name that the layout does not use, "
            f"not {ttl_attribute!r}; it uses {', '.join(sorted(_TAKEN))}"
        )
