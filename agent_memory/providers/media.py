"""Images, documents, audio and video, independent of the provider."""

from __future__ import annotations

import base64
import binascii
from typing import Final, Literal, TypeAlias

import attrs

MediaKind: TypeAlias = Literal["image", "document", "audio", "video"]

_MIME: Final = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "gif": "image/gif",
    "webp": "image/webp",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "mp4": "video/mp4",
}
_FORMAT: Final = {mime: name for name, mime in _MIME.items() if name != "jpg"}


@attrs.frozen
class Media:
    """An image, document, audio or video, from any provider's format.

    Args:
        kind: which of the four.
        mime: its media type, such as ``image/png``; ``""`` when it is not known.
        data: the bytes, or None.
        url: where it is, or None.
        file_id: the provider's own name of an uploaded file, or None.
        name: a document's name, or None.
        text: a document that is given as text, or None.
    """

    kind: MediaKind
    mime: str = ""
    data: bytes | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    text: str | None = None

    @property
    def format(self) -> str:
        """The short name of the format, such as ``png``."""
        return _FORMAT.get(self.mime, self.mime.rpartition("/")[2])

    @property
    def as_text(self) -> str | None:
        """What a document says, where it is plain text; else None."""
        if self.text is not None or self.data is None or not self.mime.startswith("text/"):
            return self.text
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            return None

    @property
    def base64(self) -> str:
        """The bytes as base64 text."""
        return base64.b64encode(self.data or b"").decode()

    @property
    def data_url(self) -> str | None:
        """The address, else the bytes as a ``data:`` URL, else None."""
        if self.data is None:
            return self.url
        return f"data:{self.mime or 'application/octet-stream'};base64,{self.base64}"


def mime_of(format_name: object) -> str:
    """The media type of a format's short name; ``""`` when it is not known."""
    return _MIME.get(format_name, "") if isinstance(format_name, str) else ""


def decoded(text: object) -> bytes | None:
    """Return the bytes of base64 text; None when the text is not base64."""
    if not isinstance(text, str):
        return None
    try:
        # Without validation Python skips foreign characters and decodes something else.
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def from_url(kind: MediaKind, url: object, *, name: str | None = None) -> Media | None:
    """Return media from a URL or a ``data:`` URL; None when it is neither."""
    if not isinstance(url, str) or not url:
        return None
    if not url.startswith("data:"):
        return Media(kind, url=url, name=name)
    head, _, body = url.partition(",")
    data = decoded(body) if head.endswith(";base64") else None
    if data is None:
        return None
    return Media(kind, mime=head[5:].partition(";")[0], data=data, name=name)
