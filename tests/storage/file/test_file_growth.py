"""Long histories: appends and reads cost what they bring, and what is remembered stays small."""

from __future__ import annotations

from file_support import IDS, KEY, fetched, log_of, saved

from agent_memory import ConversationMessage, FileChatStorage, Note


def user(content, **fields):
    return ConversationMessage("user", content, **fields)


async def test_repeats_of_the_newest_64_messages_and_notes_between_are_known(tmp_path):
    """Also to a store that has only just been opened; notes take none of their places."""
    messages = [user(str(number)) for number in range(64)]
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, user("older"))
        for message in messages:
            await storage.save_chat_message(*IDS, message)
            await storage.save_note(*IDS, Note("run"))
    for _ in range(2):
        await saved(tmp_path, messages)
    assert len(await fetched(tmp_path)) == 65


async def test_c16_a_large_append_is_known_whole(tmp_path):
    """A batch beyond 64 that is retried, also in another process, is stored once."""
    batch = [user(str(number)) for number in range(300)]
    await saved(tmp_path, batch, batch)
    await saved(tmp_path, batch)
    assert len(await fetched(tmp_path)) == 300


async def test_what_the_store_remembers_of_a_chat_stays_small(tmp_path):
    """The ids of the newest 64 messages, however many are saved."""
    async with FileChatStorage(tmp_path) as storage:
        for number in range(200):
            await storage.save_chat_message(*IDS, user(str(number)))
        ((_, state),) = storage._appender.cache._states.values()
    assert len(state.known) == 64


async def test_an_append_reads_nothing_of_a_file_that_nobody_else_wrote_to(tmp_path, monkeypatch):
    """And writes its own line alone."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_messages(*IDS, [user("x" * 1000) for _ in range(1000)])
        monkeypatch.setattr("agent_memory.storage.file.appender.FileSnapshot", None)
        before = log_of(tmp_path).stat().st_size
        await storage.save_chat_message(*IDS, user("small"))
    assert log_of(tmp_path).stat().st_size - before < 400


async def test_c08_a_long_history_with_large_messages_is_read_from_its_end(tmp_path):
    """Its size reduced here: 30 MB, with 5 MB messages in between."""
    async with FileChatStorage(tmp_path, durability="os") as storage:
        for number in range(5):
            await storage.save_chat_messages(*IDS, [user("x" * 1000) for _ in range(1000)])
            await storage.save_chat_message(*IDS, user(str(number) * 5_000_000))
        newest = await storage.fetch_chat(*IDS, 3)
        assert [len(message.content) for message in newest] == [1000, 1000, 5_000_000]
        assert [m.position for m in await storage.fetch_chat_since(*IDS, 5003)] == [5004, 5005]
        assert len(await storage.fetch_chat(*IDS)) == 5005
        assert await storage.trim_chat(*IDS, 2) == 5003
        assert [m.position for m in await storage.fetch_chat(*IDS)] == [5004, 5005]


async def test_any_part_of_a_log_is_found(tmp_path):
    """Searched by halves or from the end, among lines of very different lengths."""
    sizes = [10, 3000, 40, 200_000, 7, 900]
    async with FileChatStorage(tmp_path, durability="os") as storage:
        await storage.save_chat_messages(
            *IDS, [user("x" * sizes[n * n % len(sizes)]) for n in range(240)]
        )
        for after in range(0, 241, 7):
            for first in (1, 5, None):
                read = await storage._read(KEY, after=after, first=first)
                end = 240 if first is None else min(240, after + first)
                assert [e.position for e in read.entries] == [*range(after + 1, end + 1)]
        for last in (1, 2, 59, 240, 1000):
            read = await storage._read(KEY, after=3, last=last)
            first = max(4, 241 - last)
            assert [e.position for e in read.entries] == [*range(first, 241)]
