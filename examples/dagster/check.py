"""Run the example in Dagster: materialize, change the source, see the check warn, decide, materialize again."""

import sys
from pathlib import Path

import dagster as dg
from definitions import InstepProject, checks, tables

import instep

sys.path.insert(0, str(Path(__file__).parents[1]))
import shop


def materialize(folder: Path, instance: dg.DagsterInstance) -> dict[str, bool]:
    """Materialize everything; return whether each check has passed."""
    resources = {"project": InstepProject(folder=str(folder))}
    quiet = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
    done = dg.materialize([tables, *checks], resources=resources, instance=instance, run_config=quiet)
    assert done.success
    return {f"{one.asset_key.path[-1]}: {one.check_name}": one.passed for one in done.get_asset_check_evaluations()}


def main(folder: Path) -> None:
    shop.create(folder)
    with dg.DagsterInstance.ephemeral() as instance:
        first = materialize(folder, instance)
        assert len(first) == 4, first
        assert all(first.values()), first
        shop.run(folder, shop.CHANGE)
        second = materialize(folder, instance)
        assert [name for name, passed in second.items() if not passed] == ["customer: schema_changes_are_decided"]
        with instep.open(folder) as project:
            project.approve(*project.changes())
        third = materialize(folder, instance)
        assert all(third.values()), third
        key = dg.AssetKey(["shop", "customer"])
        event = instance.get_latest_materialization_event(key)
        assert event is not None
        assert event.asset_materialization is not None
        assert event.asset_materialization.metadata["read"].value == 3
    print("dagster: 4 checks passed, warned of a removed column, and passed again once it was decided")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
