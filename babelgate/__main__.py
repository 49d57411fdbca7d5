"""`python -m babelgate` runs the command `babelgate`."""

from babelgate.gateway.cli import main

main()
