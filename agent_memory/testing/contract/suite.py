"""All themes of the contract together: :class:`ChatStorageTests`."""

from __future__ import annotations

from agent_memory.testing.contract.batches import BatchTests
from agent_memory.testing.contract.cancellation import CancellationTests
from agent_memory.testing.contract.chat_keys import KeyTests
from agent_memory.testing.contract.chat_listing import ListingTests
from agent_memory.testing.contract.closing import ClosingTests
from agent_memory.testing.contract.concurrency import ConcurrencyTests
from agent_memory.testing.contract.fidelity import FidelityTests
from agent_memory.testing.contract.forgetting import ForgettingTests
from agent_memory.testing.contract.log_calls import LogCallTests
from agent_memory.testing.contract.order import OrderTests
from agent_memory.testing.contract.summary_storage import SummaryRecordTests


class ChatStorageTests(
    FidelityTests,
    KeyTests,
    OrderTests,
    BatchTests,
    LogCallTests,
    ConcurrencyTests,
    CancellationTests,
    ForgettingTests,
    SummaryRecordTests,
    ListingTests,
    ClosingTests,
):
    """The contract of :class:`agent_memory.ChatStorage`, to be run by every store and wrapper.

    Derive a class whose name begins with ``Test`` and give it one fixture, ``make_storage``: a
    callable without arguments that pickles (a class, a function of a module, a
    ``functools.partial`` of one), each call of which gives a *new storage object over the same
    medium*; the medium is new for every test. Where ``scope`` is ``"process"`` each object may
    have a medium of its own, and the tests that need two objects are skipped.

    It needs the extra ``testing`` (pytest, pytest-asyncio in any mode, hypothesis). The class
    attributes of :class:`~agent_memory.testing.contract.contract_base.ContractBase` are knobs for
    slow stores; overriding ``corrupt`` brings the tests of unreadable records in.

    Tests are named by behaviour and, where a case was met in the field, by its number.
    """
