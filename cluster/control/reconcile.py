"""What to do about the difference between the engines that are wanted and those that live. A pure function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.messages.spec import EngineSpec
from cluster.messages.status import EngineState


@dataclass(frozen=True)
class Living:
    """What this decision needs to know about an engine's actor."""

    actor: str
    engine: str  # the engine's name in the configuration, present or past
    state: EngineState | None  # None: adopted, and has not answered yet
    current: bool = True  # whether it runs the spec that is wanted under that name
    served: bool = True  # whether it has served, so that requests may be running
    serves_model: bool = True  # whether it serves under this fleet's model name
    lost: str = ""  # why it must be replaced; empty: it need not be
    drained: bool = False  # whether it has drained, or its time for that is over
    age_s: float = 0.0  # since it was created or adopted

    @property
    def up(self) -> bool:
        """Whether a rollout need not wait for it. One that waits for GPUs may need those of an old one, so it counts as up."""
        return self.state in ("serving", "waiting")


@dataclass
class Actions:
    """What to do now. The next decision sees the result and goes on from there."""

    create: list[EngineSpec] = field(default_factory=list)
    drain: dict[str, str] = field(default_factory=dict)  # actor: why
    remove: dict[str, str] = field(default_factory=dict)  # actor: why

    def dismiss(self, actor: Living, why: str) -> None:
        """Drain an actor that may have requests, and remove any other at once."""
        if not actor.served:
            self.remove[actor.actor] = why
        elif actor.state != "draining":
            self.drain[actor.actor] = why


def reconcile(
    wanted: Mapping[str, EngineSpec], living: Sequence[Living], *, waiting: Collection[str] = (), surge: int = 0
) -> Actions:
    """Decide what to create, drain and remove.

    `wanted` holds specs by engine name; `waiting` holds the names of engines that must not be created yet. Where a spec has
    changed, the old actor goes before the new one is created, one engine at a time. Up to `surge` new ones may live beside
    the old ones.
    """
    actions = Actions()
    by_engine: dict[str, list[Living]] = defaultdict(list)
    for actor in living:
        if actor.lost or actor.drained:
            actions.remove[actor.actor] = actor.lost or "it is drained"
            continue
        by_engine[actor.engine].append(actor)
        if actor.state is not None and actor.engine in wanted and not actor.serves_model:
            actions.dismiss(actor, "it serves another model name")
    for actor in _unwanted(wanted, living):
        if actor.actor not in actions.remove:
            actions.dismiss(actor, "it is no longer wanted")

    down = {name for name in wanted if not any(actor.up for actor in by_engine[name])}
    room = len(wanted) + surge - sum(map(len, by_engine.values()))
    for name, spec in wanted.items():
        if any(actor.state is None for actor in by_engine[name]):
            continue
        stay = [a for a in by_engine[name] if a.state != "draining" and a.actor not in {*actions.drain, *actions.remove}]
        new = sorted((a for a in stay if a.current), key=lambda a: (a.state != "serving", -a.age_s))
        for actor in new[1:]:
            actions.dismiss(actor, "another actor of the same engine lives")
        old = [actor for actor in stay if not actor.current]
        in_use = any(actor.served for actor in old)
        if not new and in_use and surge:
            if room > 0 and name not in waiting:
                actions.create.append(spec)
                room -= 1
        elif old and (new[0].up if new else not in_use or not down - {name}):
            down.add(name)
            for actor in old:
                actions.dismiss(actor, "its configuration changed")
        if not new and name not in waiting and all(a.actor in actions.remove for a in by_engine[name]):
            actions.create.append(spec)
    return actions


def _unwanted(wanted: Collection[str], living: Sequence[Living]) -> list[Living]:
    """Actors that can go now because their engines are no longer wanted.

    When names or sizes of engines have changed, the old ones serve until the new ones do. If the new ones wait for their GPUs,
    the old ones go one at a time.
    """
    rest = [actor for actor in living if actor.engine not in wanted and actor.state is not None]
    missing = set(wanted) - {actor.engine for actor in living if actor.state == "serving"}
    if not missing or any(not actor.serves_model for actor in rest):
        return rest
    useless = [actor for actor in rest if not actor.served]
    useful = sorted((actor for actor in rest if actor.served), key=lambda actor: actor.state == "serving")
    all_wait = missing <= {actor.engine for actor in living if actor.state == "waiting"}
    one_goes = useless or any(actor.state == "draining" or actor.lost for actor in rest)
    return useless + (useful[:1] if all_wait and not one_goes else [])
