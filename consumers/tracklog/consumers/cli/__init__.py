"""The command line: `tracklog`. Each command is a small file here; what it does lives beside this folder.

`app.py` lists the commands and loads each only when it is called, `command.py` gives all of them the same options
and the same manners, `output.py` prints.
"""

from tracklog.consumers.cli.app import main

__all__ = ["main"]
