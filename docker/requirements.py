"""requirements.py [EXTRA]: what pyproject.toml beside this file asks for at run time, one a line."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text("utf-8"))["project"]
extra = sys.argv[1] if len(sys.argv) > 1 else ""
print("\n".join(project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])))
