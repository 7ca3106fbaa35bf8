"""The SDK's errors: which may be retried, and how they are translated."""

from __future__ import annotations

from typing import Any, Final

import attrs

from agent_memory.errors import InvalidRequestError, MessageTooLargeError, StorageUnavailableError
from agent_memory.messages import ChatKey


@attrs.frozen
class ErrorClass:
    """How a failed request is handled.

    Args:
        retry: whether the same request may succeed later.
        applied: whether a write may have been applied although it failed.
        advice: what the user should do, for the error's text.
    """

    retry: bool
    applied: bool = False
    advice: str = ""


_THROTTLED: Final = ErrorClass(retry=True)
_UNSURE: Final = ErrorClass(retry=True, applied=True)
_CREDENTIALS: Final = ErrorClass(retry=False, advice="check the credentials and the region")

# Source of the codes, and of which may be retried:
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
_BY_CODE: Final = {
    "InternalServerError": _UNSURE,
    "InternalFailure": _UNSURE,
    "ServiceUnavailable": _UNSURE,
    "ServiceUnavailableException": _UNSURE,
    "RequestTimeout": _UNSURE,
    "ItemCollectionSizeLimitExceededException": ErrorClass(
        retry=False, advice="create the table without local secondary indexes"
    ),
    "LimitExceededException": _THROTTLED,
    "ProvisionedThroughputExceededException": _THROTTLED,
    "ReplicatedWriteConflictException": _THROTTLED,
    "RequestLimitExceeded": _THROTTLED,
    "ThrottlingException": _THROTTLED,
    "Throttling": _THROTTLED,
    "TransactionConflictException": _THROTTLED,
    "TransactionInProgressException": _THROTTLED,
    "AccessDeniedException": ErrorClass(
        retry=False,
        advice="allow dynamodb:PutItem, GetItem, DeleteItem, Query, Scan, BatchWriteItem and, for "
        "create_table=True, CreateTable, DescribeTable, DescribeTimeToLive and UpdateTimeToLive",
    ),
    "ExpiredTokenException": _CREDENTIALS,
    "IncompleteSignature": _CREDENTIALS,
    "InvalidClientTokenId": _CREDENTIALS,
    "InvalidSignatureException": _CREDENTIALS,
    "MissingAuthenticationTokenException": _CREDENTIALS,
    "UnrecognizedClientException": _CREDENTIALS,
}

# Exceptions of botocore, by name because it is imported late. Those that are raised before a
# request leaves come first.
_BY_NAME: Final = (
    ("NoRegionError", ErrorClass(retry=False, advice="give region=…, or set AWS_DEFAULT_REGION")),
    ("NoCredentialsError", _CREDENTIALS),
    ("PartialCredentialsError", _CREDENTIALS),
    ("CredentialRetrievalError", ErrorClass(retry=True, advice="check the credentials")),
    ("EndpointConnectionError", ErrorClass(retry=True)),
    ("ConnectTimeoutError", ErrorClass(retry=True)),
    ("HTTPClientError", _UNSURE),
    ("ConnectionError", _UNSURE),
    ("ResponseParserError", _UNSURE),
    ("BotoCoreError", ErrorClass(retry=False)),
)


def code_of(error: BaseException) -> str:
    """Return the service's error code, or ``""`` if the service did not answer."""
    response: Any = error.__dict__.get("response")
    if not hasattr(response, "get"):  # errors of the connection may have one that is no answer
        return ""
    return str(response.get("Error", {}).get("Code", ""))


def classify(error: BaseException) -> ErrorClass | None:
    """Return how an error is handled, or None if it is not the SDK's."""
    code = code_of(error)
    if code:
        response: Any = error.__dict__["response"]
        status: Any = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        server_fault = isinstance(status, int) and status >= 500  # noqa: PLR2004 (HTTP)
        return _BY_CODE.get(code, _UNSURE if server_fault else ErrorClass(retry=False))
    names = {kind.__name__ for kind in type(error).__mro__}
    for name, error_class in _BY_NAME:
        if name in names:
            return error_class
    return _UNSURE if isinstance(error, OSError) else None


def translate_error(
    error: BaseException, table: str, key: ChatKey | None, *, stored: bool | None
) -> Exception:
    """Return the package's error for one of the SDK's."""
    code, text = code_of(error), str(error)
    where = f"DynamoDB table {table!r}" + ("" if key is None else f", {key}")
    if code == "ResourceNotFoundException":
        return StorageUnavailableError(
            f"there is no {where}, in this region and account; create it, or pass "
            f"create_table=True ({text})",
            key=key,
            stored=False,
        )
    if code == "ValidationException" and "size has exceeded" in text:
        return MessageTooLargeError(f"{where}: an item exceeds 400 KB ({text})", key=key)
    if code == "ValidationException":
        return InvalidRequestError(
            f"{where} refuses the request; it must have the partition key 'pk' (S) and the sort "
            f"key 'sk' (B), see DynamoDbChatStorage ({text})"
        )
    error_class = classify(error)
    advice = f"; {error_class.advice}" if error_class is not None and error_class.advice else ""
    return StorageUnavailableError(
        f"{where}: {type(error).__name__}: {text}{advice}", key=key, stored=stored
    )
