"""`python -m gateway` is `babelgate`."""

from gateway.cli import main

main()
