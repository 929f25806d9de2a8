"""Exporting and erasing a conversation while its store rests: from an operator's request to the answer.

Source: decisions.md sections 6 (audit) and 8 (export, erase).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from actors.authority import EndErased, NoteErasure, Permit
from actors.replies import then
from actors.resting import RestingStores, Waiting
from actors.store.caretaker import EraseConversation, ExportConversation, LookAtConversation
from actors.store.settings import StoreSettings
from actors.supervision import ActorHandle
from messages.errors import InvalidArgument, KnowledgeError, RevocationPending
from messages.json_types import JsonObject
from messages.operator import EraseConversationRequest, ExportConversationRequest
from messages.vocabulary import Partition
from storage.conversation_erase import Erasable
from storage.conversation_export import Exported, plan_export
from storage.layout import Layout
from storage.registry_audit import By

LOOK_SECONDS: Final = 300.0
WORK_SECONDS: Final = 3_600.0
"""A large partition, or a long Git history, takes as long as it takes; the caller's own deadline ends its waiting."""
NOTE_SECONDS: Final = 30.0


class Asking(Waiting, Protocol):
    """Whose request it is. See :class:`actors.operators.PendingOperation`."""

    def succeed(self, result: JsonObject) -> None: ...


class Conversations:
    """One for each runtime."""

    def __init__(
        self,
        layout: Layout,
        resting: RestingStores,
        authority: ActorHandle,
        settings_of: Callable[[Permit], StoreSettings],
        now_ms: Callable[[], int],
    ) -> None:
        self._layout = layout
        self._resting = resting
        self._authority = authority
        self._settings_of = settings_of
        self._now_ms = now_ms

    def export(self, pending: Asking, request: ExportConversationRequest, permit: Permit) -> None:
        """Write the conversation into a folder."""
        vault_id, settings = permit.vault_id, self._settings_of(permit)
        message = ExportConversation(
            settings.layout,
            settings.limits,
            settings.git,
            Partition(request.session),
            plan_export(self._layout, request.path),
            permit.agent,
            self._now_ms(),
        )

        def exported(found: Exported) -> None:
            shown: JsonObject = {"agent": permit.agent, "sessionId": request.session, **found.to_json()}
            self._resting.release(vault_id, None, lambda: pending.succeed(shown))

        self._resting.held(
            vault_id,
            pending,
            lambda: self._resting.cared_for(
                vault_id, message, WORK_SECONDS, exported, lambda error: self._give_up(pending, vault_id, error)
            ),
        )

    def erase(self, pending: Asking, request: EraseConversationRequest, permit: Permit, by: By) -> None:
        """Leave nothing of it; the order stands in the audit before anything is done.

        A barrier: when this is answered, whatever the outcome, no answer that was computed before leaves.
        """
        vault_id, settings = permit.vault_id, self._settings_of(permit)
        partition = Partition(request.session)
        place = settings.layout, settings.limits, settings.git

        def failed(error: KnowledgeError) -> None:
            self._give_up(pending, vault_id, error)

        def looked(found: Erasable) -> None:
            shown: JsonObject = {"agent": permit.agent, "sessionId": request.session, **found.to_json()}
            if request.dry_run:
                self._resting.release(vault_id, None, lambda: pending.succeed({**shown, "state": "dry_run"}))
                return
            if found.git.any and not request.discard_git:
                failed(_has_others(found))
                return
            note = NoteErasure(vault_id, permit.agent, request.session, by)
            noted = self._authority.ask(note, deadline=self._resting.within(NOTE_SECONDS))
            then(noted, lambda _: erase(shown), failed)

        def erase(shown: JsonObject) -> None:
            def ended(proceed: Callable[[], None]) -> None:
                # The store is let go first: a fence that a crash left taken is released by its opening.
                barrier = self._authority.ask(
                    EndErased(vault_id, partition), deadline=self._resting.within(NOTE_SECONDS)
                )

                def held_up(error: KnowledgeError) -> None:
                    pending.fail(_held_up() if isinstance(error, RevocationPending) else error)

                self._resting.release(vault_id, None, lambda: then(barrier, lambda _: proceed(), held_up))

            self._resting.cared_for(
                vault_id,
                EraseConversation(*place, partition),
                WORK_SECONDS,
                lambda _: ended(lambda: pending.succeed({**shown, "state": "erased"})),
                lambda error: ended(lambda: pending.fail(error)),
            )

        look = LookAtConversation(*place, partition)
        self._resting.held(
            vault_id, pending, lambda: self._resting.cared_for(vault_id, look, LOOK_SECONDS, looked, failed)
        )

    def _give_up(self, pending: Asking, vault_id: str, error: KnowledgeError) -> None:
        self._resting.release(vault_id, None, lambda: pending.fail(error))


def _held_up() -> RevocationPending:
    return RevocationPending(
        "The erasure has begun, and no answer from before begins to leave any more; one that was leaving has not ended "
        "yet. Whether all is erased a dry run tells: then nothing of the conversation is found.",
        retry="unknown",
    )


def _has_others(found: Erasable) -> InvalidArgument:
    return InvalidArgument(
        "The vault's Git history must go with the conversation, and it holds what is not ours, which would be lost: "
        "clone it first, or say discardGit. Nothing was erased.",
        field="discardGit",
        reason="git_of_others",
        commits=found.git.commits,
        references=found.git.references,
        known=found.git.known,
    )
