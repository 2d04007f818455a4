"""Replicates tables into a lakehouse on Spark and manages their schema changes.

    import instep

    with instep.open(".") as project:            # the folder of instep.yml; or instep.connect(url, key): a server
        shop = project.connection("shop")
        print("\\n".join(shop.plan().lines))      # what a sync will do
        shop.sync().raise_for_failure()
        project.approve(shop.changes())          # those that wait for a decision
        project.query("select * from shop.orders").to_pandas()

See also `help(instep.Project)`, `help(instep.Connection)`, `help(instep.Table)`; errors are in `instep.errors`.
"""

TYPE_CHECKING = False  # as type checkers know it: nothing is imported for it, because each command begins here

if TYPE_CHECKING:
    from instep.python.connection import Connection, Plan
    from instep.python.frames import DestinationTable, register
    from instep.python.policy import CaseResult, Policy, PolicyTest
    from instep.python.progress import Progress
    from instep.python.project import Project, connect, import_configuration, open, spark_conf
    from instep.python.quarantine import Quarantine
    from instep.python.requests import (
        DeclareRenameRequest,
        RepairRequest,
        RestoreRequest,
        SetCursorRequest,
        SetKeyRequest,
        UndoRequest,
        UpgradeSourceRequest,
    )
    from instep.python.results import (
        BackfillEstimate,
        Changes,
        Detection,
        Document,
        QueryResult,
        Records,
        SyncResult,
    )
    from instep.python.selection import Selection
    from instep.python.table import Table

__version__ = "0.1.0"
__all__ = [
    "BackfillEstimate",
    "CaseResult",
    "Changes",
    "Connection",
    "DeclareRenameRequest",
    "DestinationTable",
    "Detection",
    "Document",
    "Plan",
    "Policy",
    "PolicyTest",
    "Progress",
    "Project",
    "Quarantine",
    "QueryResult",
    "Records",
    "RepairRequest",
    "RestoreRequest",
    "Selection",
    "SetCursorRequest",
    "SetKeyRequest",
    "SyncResult",
    "Table",
    "UndoRequest",
    "UpgradeSourceRequest",
    "connect",
    "import_configuration",
    "open",
    "register",
    "spark_conf",
]
_MODULES = {
    "BackfillEstimate": "results", "CaseResult": "policy", "Changes": "results", "Connection": "connection",
    "DeclareRenameRequest": "requests", "DestinationTable": "frames", "Detection": "results", "Document": "results",
    "Plan": "connection", "Policy": "policy", "PolicyTest": "policy", "Progress": "progress", "Project": "project",
    "Quarantine": "quarantine", "QueryResult": "results", "Records": "results", "RepairRequest": "requests",
    "RestoreRequest": "requests", "Selection": "selection", "SetCursorRequest": "requests",
    "SetKeyRequest": "requests", "SyncResult": "results", "Table": "table", "UndoRequest": "requests",
    "UpgradeSourceRequest": "requests",
    "connect": "project", "import_configuration": "project", "open": "project",
    "register": "frames", "spark_conf": "project",
}  # fmt: skip


def __getattr__(name: str) -> object:
    """Load the Python API once a part of it is asked for: commands begin without it."""
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"instep.python.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Return the names that are there, also those that are not loaded yet: for completion."""
    return sorted([*globals(), *__all__])
