"""``SummarizingChatStorage`` and its parts.

:mod:`.storage` is the wrapper and :mod:`.options` are its options; :mod:`.buffers` holds the
views of activated chats; :mod:`.loader` brings a view up to what the log holds;
:mod:`.compactor` decides when a chat is summarized and installs the summary, for the wrapper and
for conversations; :mod:`.draft` asks the summarizer. :mod:`.view` and :mod:`.compaction` are pure.
"""

from agent_memory.summarizing.options import SummarizingOptions
from agent_memory.summarizing.storage import SummarizingChatStorage

__all__ = ["SummarizingChatStorage", "SummarizingOptions"]
