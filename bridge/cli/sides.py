"""What stands on either side of a diff: report files, or a run of the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.analyze.views import DIMENSIONS
from bridge.cli import options, times

if TYPE_CHECKING:
    from bridge.join.choices import Choices
    from bridge.report import Joined


@dataclass(frozen=True)
class Side:
    """Some report files, or without any a run of the store, by number or name."""

    reports: tuple[Path, ...] = ()
    run: int | str | None = None

    @classmethod
    def of(cls, text: str, db: Path) -> Side:
        """Read an argument: an existing file first, then a run; what looks like a file is one, there or not."""
        paths = tuple(Path(part) for part in text.split(","))
        if Path(text).exists():
            return cls((Path(text),))
        if len(paths) > 1 or paths[0].suffix or len(paths[0].parts) > 1 or not db.exists():
            return cls(paths)
        return cls(run=options.run_of(text))

    def loaded(
        self, db: Path, choices: Choices, *, by: str, kernel_names: str, **asked: Any
    ) -> Joined:
        """Load it, and of it the time that is asked for; ValueError, in a line, if there is no such time."""
        details = {name for part in by.split(",") for name in DIMENSIONS.get(part.strip(), ())}
        details |= {"mangled"} & {kernel_names}
        joined = options.joined(self.reports, db, self.run, choices, details)
        return times.within(joined, **asked)

    def before(self, joined: Joined, db: Path) -> Side:
        """Return the newest run of the store that is none of this report, and say which."""
        from bridge import store

        recordings = [path for facts in joined.report.facts for path in facts.recordings]
        own = store.identity((*self.reports, *recordings)) if self.reports else ""
        run = store.described(db, self.run).id if not self.reports else None
        others = [
            r for r in store.listed(db) if store.without_ncu(r.identity) != own and r.id != run
        ]
        if not others:
            raise store.StoreError(f"{db}: no run of another report to compare with; name BEFORE")
        found = others[-1]
        name = f" ({found.name})" if found.name else ""
        click.echo(f"before: run {found.id}{name} of {db}, {', '.join(found.source)}", err=True)
        return Side(run=found.id)
