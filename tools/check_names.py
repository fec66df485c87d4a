"""Check the names of modules and public classes in `src/partage`.

    python tools/check_names.py

Three rules: no module or package is named by a gerund, no public class name occurs in two modules,
and every exception class ends in `Error`. `GERUNDS` and `SHARED_NAMES` list the exceptions with a
reason.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "partage"

#: Established terms.
GERUNDS = {
    "testing": "the usual name of what a package offers for its users' tests",
    "wire/codec/decoding.py": "the usual name of the counterpart of encoding",
    "wire/codec/encoding.py": "the usual name of the counterpart of decoding",
}

#: Class names that occur in several modules because they are one concept on several sides.
SHARED_NAMES = {
    "Action": "what the shell of each member's state machine performs",
    "Clock": "the machine's clock and the simulated one",
    "Connection": "both ends of a connection",
    "Consumer": "asynchronous and synchronous",
    "Disconnect": "the action of a member, in the product and in the designs that adapt it",
    "Driver": "both run a state machine",
    "Event": "the events of each state machine",
    "JoinGroupMember": "of the JoinGroup API, in Kafka's format and in that of a design",
    "JoinGroupProtocol": "of the JoinGroup API, in Kafka's format and in that of a design",
    "JoinGroupRequest": "of the JoinGroup API, in three formats that are compared by name",
    "JoinGroupResponse": "of the JoinGroup API, in three formats that are compared by name",
    "LeaderElection": "asynchronous and synchronous",
    "LeaveRequested": "the event of a member, in the product and in the designs that adapt it",
    "Member": "a member of a group, seen by the coordinator, by the member and by an assignor",
    "Membership": "asynchronous and synchronous",
    "Outcome": "the outcome of each state machine",
    "Processor": "asynchronous and synchronous",
    "RedundantIndexer": "asynchronous and synchronous",
    "SingleWriter": "asynchronous and synchronous",
    "SubscriptionChanged": "the event of a member, in the product and in the designs",
    "Term": "asynchronous and synchronous",
    "TimerFired": "the event of each state machine",
    "WorkerPool": "asynchronous and synchronous",
}


def findings() -> list[str]:
    """Return a line for each violation, in order."""
    found = []
    modules_by_class: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        is_package = path.stem == "__init__"
        module = path.parent.relative_to(SOURCE).as_posix() if is_package else name
        if module.removesuffix(".py").endswith("ing") and module not in GERUNDS:
            found.append(f"{module}: the module is named by a gerund; use a noun")
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.ClassDef):
                continue
            if not node.name.startswith("_"):
                modules_by_class[node.name].append(name)
            bases = {ast.unparse(base) for base in node.bases}
            is_exception = any(base.endswith(("Error", "Exception")) for base in bases)
            if is_exception and not node.name.endswith("Error"):
                found.append(f"{name}: exception {node.name} does not end in Error")
    for class_name, modules in sorted(modules_by_class.items()):
        if len(modules) > 1 and class_name not in SHARED_NAMES:
            found.append(f"class {class_name} is defined in {', '.join(modules)}")
    found += [
        f"SHARED_NAMES lists {class_name}, which is defined only once"
        for class_name in sorted(SHARED_NAMES)
        if len(modules_by_class[class_name]) < 2
    ]
    return found


if __name__ == "__main__":
    lines = findings()
    print("\n".join([*lines, f"{len(lines)} findings in names"]))
    sys.exit(1 if lines else 0)
