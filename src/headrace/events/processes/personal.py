"""Keeps of whom instances were told, and takes away what is forgotten (see forgetting.py)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from headrace.errors import EventsError
from headrace.events.decider import category_of
from headrace.events.processes.codec import NamedValues
from headrace.events.processes.forgetting import placeholders, standing, without
from headrace.events.processes.rows import Outcome, ProcessRows, Told
from headrace.events.store import EventStore

logger: Final = logging.getLogger(__name__)


class Personal:
    """What the instances of one process have of persons."""

    def __init__(self, process_name: str, store: EventStore, states: NamedValues) -> None:
        self._process_name = process_name
        self._categories = frozenset(store.deciders)
        self._placeholders = placeholders(store.codec)
        self._states = states

    def forget(self, rows: ProcessRows, subject: str) -> None:
        """Forget a person."""
        for instance in rows.mark_forgotten(subject):
            self.tidy(rows, instance, is_logged=True)

    def add(self, rows: ProcessRows, instance: str, texts: Mapping[str, Collection[str]]) -> None:
        """Keep of whom an instance was told, and by which texts they would be found."""
        known = {told.subject: told for told in rows.told(instance)} if texts else {}
        for subject, new in texts.items():
            told = known.get(subject, Told(subject=subject, texts=frozenset()))
            rows.keep_told(instance, replace(told, texts=told.texts.union(new)))

    def tidy(self, rows: ProcessRows, instance: str, *, is_logged: bool) -> None:
        """Keep no more of persons than an instance needs, and nothing of those who are forgotten.

        `is_logged` says that what stays of them is to be logged: when they are forgotten, and when a command
        is settled, not at each event.
        """
        known = rows.told(instance)
        if not known:
            return
        gone = frozenset[str]().union(*(told.texts for told in known if told.is_forgotten))
        if any(told.is_forgotten for told in known):
            self._clean(rows, instance, gone)
        state, outcomes = rows.state(instance), rows.outcomes(instance)
        if Outcome.PENDING in outcomes:
            # Its refusal may bring back any of the texts.
            return
        for told in known:
            texts = standing(state[1], told.texts) if state else frozenset[str]()
            if not texts and (told.is_forgotten or (state is None and not outcomes)):
                rows.drop_told(instance, told.subject)
            elif texts != told.texts:
                rows.keep_told(instance, replace(told, texts=texts))
            if texts and told.is_forgotten and is_logged:
                self._warn(instance, told.subject)

    def _clean(self, rows: ProcessRows, instance: str, texts: Collection[str]) -> None:
        kept = rows.state(instance)
        if kept is not None:
            name, data = kept
            cleaned = without(
                data,
                texts,
                fits=lambda each: self._states.can_read(name, each),
                stays=self._is_stream,
                instead=self._placeholders,
            )
            rows.keep_state(instance, (name, cleaned))
        rows.erase_settled(instance)

    def _is_stream(self, said: str) -> bool:
        """Whether it may be where a command goes. A sentence that begins like one is none."""
        try:
            return category_of(said) in self._categories and not any(each.isspace() for each in said)
        except EventsError:
            return False

    def _warn(self, instance: str, subject: str) -> None:
        logger.warning(
            "process %s: the state of instance %s still has a text of %s, who is forgotten: it is of a type "
            "that takes no other, or the name of a stream; it stays until the instance goes on without it",
            self._process_name,
            instance,
            subject,
        )
