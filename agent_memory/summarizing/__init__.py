"""``SummarizingChatStorage`` and its parts.

:mod:`.storage` is the wrapper; :mod:`.chat_views` keeps the views of activated chats, each in a
buffer of :mod:`.buffers`; :mod:`.loader` brings a view up to what the log holds;
:mod:`.compactor` says when a chat is compacted, :mod:`.draft` what of it becomes a
summary, :mod:`.summary_installer` puts that into the store and the view.
"""

from agent_memory.summarizing.storage import SummarizingChatStorage

__all__ = ["SummarizingChatStorage"]
